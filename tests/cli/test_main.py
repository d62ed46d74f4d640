# SPDX-License-Identifier: Apache-2.0
"""The command ``fdg`` itself: its size, help that comes at once, former names, mistakes in one sentence."""

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

from fdg_plugins.cli.console import RENAMED, say
from fdg_plugins.cli.main import COMMANDS, app
from tests.cli.commands import check_refusal, fdg

FDG = str(Path(sys.executable).with_name("fdg"))
TORCH = version("torch")


def test_help_fits_one_screen_and_loads_neither_torch_nor_flare() -> None:
    code = (
        "import json, sys\n"
        "from fdg_plugins.cli.main import app\n"
        "try:\n    app(['--help'])\nexcept SystemExit:\n    pass\n"
        "print(json.dumps([name for name in ('torch', 'nvflare', 'pydantic') if name in sys.modules]))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=300)
    assert json.loads(done.stdout.splitlines()[-1]) == []
    assert len(done.stdout.splitlines()) <= 40


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
    told = f"fdg-plugins {version('fdg-plugins')}, nvflare {version('nvflare')}, torch {TORCH}\n"
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


def test_a_kit_may_be_named_by_an_option_as_before(tmp_path: Path) -> None:
    check_refusal(fdg("kit", "check", "--kit", tmp_path / "nowhere"), "nowhere")


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
    ],
)
def test_a_slip_is_answered_with_what_was_meant(arguments: list[str], meant: str) -> None:
    result = fdg(*arguments)
    assert result.exit_code == 2
    assert isinstance(result.exception, SystemExit)
    assert meant in result.stderr
