# SPDX-License-Identifier: Apache-2.0
"""The studies of docs/results: each is a sweep that ``fdg sweep`` would run, with every method in one of them."""

import shlex
import subprocess
from pathlib import Path

import pytest
import studies
from PIL import Image
from studies import EXCEPT_FIVE, FIVE, STUDIES
from typer.testing import CliRunner

from fdg_plugins.cli.main import app
from fdg_plugins.data import dataset_spec
from fdg_plugins.plugins.methods import METHODS


def test_the_five_and_the_others_are_all_methods() -> None:
    assert sorted([*FIVE.split(","), *EXCEPT_FIVE.split(",")]) == sorted(METHODS.own())


def test_a_study_is_its_calls_with_the_options_behind_two_dashes(monkeypatch: pytest.MonkeyPatch) -> None:
    called: list[list[str]] = []

    def run(command: list[str]) -> subprocess.CompletedProcess[bytes]:
        called.append(command)
        return subprocess.CompletedProcess(command, 0)

    monkeypatch.setattr(subprocess, "run", run)
    assert studies.main(["office", "--data-root", "/data", "--", "--parallel", "2", "--seeds", "0,1,2"]) == 0
    assert [command[2 : command.index("--to")] for command in called] == [*map(shlex.split, STUDIES["office"])]
    behind = ["--to", "sweeps/office", "--data-root", "/data", "--parallel", "2", "--seeds", "0,1,2"]
    assert [command[command.index("--to") :] for command in called] == [behind] * 2


@pytest.fixture(scope="module")
def office(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A data root with a few plain images for Office-Caltech10, which has no stand-in."""
    root, spec = tmp_path_factory.mktemp("data"), dataset_spec("officecaltech10")
    for domain in spec.domains:
        for number, name in enumerate(spec.classes):
            folder = root / spec.folder / domain / name
            folder.mkdir(parents=True)
            for grey in range(10):
                Image.new("L", (16, 16), 20 * grey + number).save(folder / f"{grey}.png")
    return root


@pytest.mark.slow
@pytest.mark.parametrize("study", STUDIES)
def test_every_study_has_a_plan(study: str, office: Path, tmp_path: Path) -> None:
    data = ["--data-root", str(office)] if study.startswith("office") else []
    for call in STUDIES[study]:
        order = ["sweep", "--to", str(tmp_path / "sweep"), *shlex.split(call), *data, "--dry-run"]
        planned = CliRunner().invoke(app, order)
        assert planned.exit_code == 0, planned.output
        assert "to do:" in planned.output
