# SPDX-License-Identifier: Apache-2.0
"""The command ``fdg`` itself: size, help, former names, mistakes in one sentence; its pages on methods."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest
import typer
from rich.text import Text
from typer.testing import CliRunner

from fdg_plugins.cli.console import RENAMED, say
from fdg_plugins.cli.main import COMMANDS, app
from fdg_plugins.cli.one_federation import interrupted_run, main
from fdg_plugins.plugins.composition import parse_method
from fdg_plugins.plugins.methods import METHODS
from fdg_plugins.record.checkpoint import CHECKPOINT_FILE
from tests.cli.commands import check_refusal, fdg
from tests.conftest import forget_installed
from tests.processes import FDG, printed_by


def test_help_fits_one_screen_and_loads_neither_torch_nor_flare() -> None:
    code = (
        "import json, sys\n"
        "from fdg_plugins.cli.main import app\n"
        "try:\n    app(['--help'])\nexcept SystemExit:\n    pass\n"
        "print(json.dumps([name for name in ('torch', 'nvflare', 'pydantic') if name in sys.modules]))"
    )
    *told, loaded = printed_by(sys.executable, "-c", code).splitlines()
    assert json.loads(loaded) == []
    assert len(told) < 40


def options_of(command: Any) -> Iterator[str]:
    """Yield the options of a command and of those below it, without ``--help``."""
    yield from (one.opts[0] for one in command.params if one.param_type_name == "option")
    for inner in getattr(command, "commands", {}).values():
        yield from options_of(inner)


def test_there_are_at_most_14_commands_and_70_options() -> None:
    group: Any = typer.main.get_command(app)
    assert len(group.commands) <= 14
    assert len([option for option in options_of(group) if option != "--help"]) <= 70
    told = {name: command.help.partition("\n")[0] for name, command in group.commands.items()}
    assert told == {name: text for name, (_, text) in COMMANDS.items()}


def test_a_path_that_the_system_refuses_ends_with_2_and_one_line(tmp_path: Path) -> None:
    check_refusal(fdg("kit", "check", tmp_path / ("n" * 300)), "cannot be used: File name too long.")


def test_the_versions_are_printed() -> None:
    told = f"fdg-plugins {version('fdg-plugins')}, nvflare {version('nvflare')}, torch {version('torch')}\n"
    assert fdg("--version").stdout == told


def test_what_cannot_be_encoded_is_printed_escaped(capsys: pytest.CaptureFixture[str]) -> None:
    say("/srv/b\xe4der/\udcff: written")
    assert capsys.readouterr().out == "/srv/b\xe4der/\\udcff: written\n"
    environment = {**os.environ, "PYTHONIOENCODING": "latin-1"}
    words = [FDG, "explain", "fedprox", "--all"]
    done = subprocess.run(words, capture_output=True, timeout=300, check=True, env=environment)
    assert "strength (\\u03bc)" in done.stdout.decode("latin-1")


def test_a_command_of_an_earlier_version_is_answered_with_its_new_name() -> None:
    for old, new in RENAMED.items():
        check_refusal(fdg(old, "--kit", "x"), f"fdg {new}")
        assert fdg(*new.split(), "--help").exit_code == 0


@pytest.mark.parametrize(
    ("arguments", "meant"),
    [
        (["run", "fedomg", "--set", "kappa", "0.3"], "--set kappa=0.3"),
        (["run", "fedomg", "--local-epochs", "3"], "--set local_epochs=3"),
        (["run", "fedomg", "--datset", "pacs"], "--dataset"),
        (["run", "fedomg", "--data=pacss"], "did you mean 'pacs'?"),
        (["run", "fedomg", "--engine", "procces"], "'process'"),
        (["run", "fedomg+gaa"], "did you mean 'ga'?"),
        (["run", "fedomg", "--set", "kapa=1"], "did you mean 'kappa'?"),
        (["run", "fedomg", "--data", "photos"], "there is no folder 'photos' here."),
        (["run", "fedomg", "--target", "scetch"], "photo, sketch"),
        (["run", "jobs/pacs_fedmog"], "jobs/pacs_fedmog"),
        (["run", "erm", "--set", "step=1"], "did you mean 'steps'?"),
        (["run", "erm", "--engine", "process"], "in one process"),
        (["sweep", "--to", "folder"], "the folder is the argument: folder."),
        (["data", "check", "mnist", "--data-root", "."], "fdg data verify mnist"),
        (["data", "check", "pacs", "--data-root", "nowhere"], "'nowhere'"),
    ],
)
def test_a_slip_is_answered_with_what_was_meant(
    arguments: list[str], meant: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)  # the user's own folder of photos may be where the tests run
    result = fdg(*arguments)
    assert result.exit_code == 2
    assert isinstance(result.exception, SystemExit)
    assert meant in result.stderr


@pytest.fixture
def broken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """An installed distribution whose method and data set are in a module that raises an error."""
    (tmp_path / "broken_plugin.py").write_text("raise RuntimeError('of its own')", encoding="utf-8")
    info = tmp_path / "broken_plugin-1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: broken-plugin\nVersion: 1\n", encoding="utf-8")
    groups = "[fdg_plugins.methods]\nodd = broken_plugin:METHOD\n[fdg_plugins.datasets]\nodd = broken_plugin:SET"
    (info / "entry_points.txt").write_text(groups, encoding="utf-8")
    monkeypatch.syspath_prepend(str(tmp_path))
    forget_installed()
    yield
    monkeypatch.undo()
    forget_installed()


@pytest.mark.usefixtures("no_fdg_variables", "broken")
def test_a_broken_plug_in_is_named_to_who_asks_for_it_and_left_out_of_lists() -> None:
    for command in (("run",), ("sweep", "new", "--dry-run", "--methods")):
        result = fdg(*command, "fedomgx")
        check_refusal(result, "'fedomgx'", "did you mean 'fedomg'")
        assert "broken" not in result.stderr
    told = "'odd' of plug-in broken-plugin cannot be loaded: RuntimeError: of its own."
    check_refusal(fdg("run", "odd"), f"method {told}")
    listed = fdg("data", "list")
    assert (listed.exit_code, listed.stderr, "pacs" in listed.stdout) == (0, f"left out: data set {told}\n", True)


def test_the_run_to_resume_is_the_one_whose_rounds_the_server_has_kept(tmp_path: Path) -> None:
    assert interrupted_run(tmp_path) is None
    kept = tmp_path / "server" / "fdg_state" / "3379af42"
    kept.mkdir(parents=True)
    assert interrupted_run(tmp_path) is None
    (kept / CHECKPOINT_FILE).touch()
    assert interrupted_run(tmp_path) == "3379af42"


def test_a_job_that_cannot_be_executed_ends_with_its_reason_in_the_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("FL_LOG_LEVEL", "concise")
    assert main([str(tmp_path / name) for name in ("job", "workspace", "state")]) == 1
    assert "is not a job" in caplog.text


def test_code_does_not_reach_a_federation(tmp_path: Path) -> None:
    file = Path(__file__).parents[2] / "custom" / "clipped_fedavg.py"
    words = ["run", "clipped_fedavg", "--plugin", file, "--engine", "poc"]
    check_refusal(fdg(*words, "--to", tmp_path / "run"), "would bring clipped_fedavg.py")
    assert not (tmp_path / "run").exists()


def test_without_a_method_every_method_has_its_line() -> None:
    first = [line.split()[:1] for line in fdg("explain").stdout.splitlines()]
    assert [[record.key] in first for record in METHODS.all()].count(False) == 0


@pytest.mark.parametrize("name", [*METHODS.names(), "fedomg+ga+dim"])
def test_a_page_has_all_formulas_unbroken_on_80_columns(name: str) -> None:
    result = CliRunner(env={"COLUMNS": "80", "FORCE_COLOR": "1"}).invoke(app, ["explain", name, "--all"])
    assert result.exit_code == 0, result.output
    lines = [Text.from_ansi(line) for line in result.stdout.splitlines()]
    assert max(line.cell_len for line in lines) <= 80
    plain = [line.plain.rstrip() for line in lines]
    assert plain.index("What leaves a site") > 0
    for record in parse_method(name).records:
        for equation in record.equations:
            assert all(any(line.endswith(text) for line in plain) for text in equation.formula.splitlines())


def test_a_default_is_that_of_the_job_and_not_of_the_class() -> None:
    assert "server_lr 0.05" in fdg("explain", "fedomg").stdout
    assert '"travels": "body"' in fdg("explain", "fedbabu", "--all").stdout


def test_a_reference_says_what_it_trains_on() -> None:
    for name, data in (("erm", "pooled images"), ("local", "each site alone")):
        assert data in " ".join(fdg("explain", name).stdout.split())


def test_a_wrong_name_ends_in_one_sentence() -> None:
    for name in ("fedmog", "fedomg+fedavg", "fedomg+erm"):
        check_refusal(fdg("explain", name), f"method is {name!r}, ")
