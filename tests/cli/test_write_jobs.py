# SPDX-License-Identifier: Apache-2.0
"""``fdg export jobs`` writes what the project keeps in ``jobs/``, and nothing over anything."""

import filecmp
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from fdg_plugins.cli.main import app

JOBS = Path(__file__).parents[2] / "jobs"


def jobs(*arguments: object) -> Result:
    return CliRunner().invoke(app, ["export", "jobs", *map(str, arguments)])


def files(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


def test_they_are_those_of_the_project(tmp_path: Path) -> None:
    result = jobs("pacs_fedomg", "vessels_fedavg", "--to", tmp_path / "mine")
    assert (result.exit_code, result.stderr) == (0, "")
    assert result.stdout.splitlines()[-1] == f"next: nvflare simulator {tmp_path / 'mine' / 'pacs_fedomg'}"
    for name in ("pacs_fedomg", "vessels_fedavg"):
        written = tmp_path / "mine" / name
        assert files(written) == files(JOBS / name)
        assert filecmp.cmpfiles(written, JOBS / name, files(written), shallow=False)[1:] == ([], [])


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["pacs_fedomgg"], "did you mean 'pacs_fedomg'"),
        (["pacs_fedavg", "pacs_fedprox"], "exists already, expected one"),
    ],
)
def test_a_wrong_request_writes_nothing(arguments: list[str], sentence: str, tmp_path: Path) -> None:
    (tmp_path / "pacs_fedprox").mkdir()
    result = jobs(*arguments, "--to", tmp_path)
    assert (result.exit_code, result.stdout) == (2, "")
    assert sentence in result.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["pacs_fedprox"]
