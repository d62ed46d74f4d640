# SPDX-License-Identifier: Apache-2.0
"""The command ``fdg`` itself: help that comes at once, and users' mistakes without tracebacks."""

import json
import os
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest
from typer.testing import CliRunner

from fdg_plugins.cli.console import RENAMED, say
from fdg_plugins.cli.main import app

TORCH = version("torch")
HEAVY = ("torch", "nvflare", "pydantic")


def test_help_loads_neither_torch_nor_flare() -> None:
    code = (
        "import json, sys\n"
        "from fdg_plugins.cli.main import app\n"
        "try:\n    app(['--help'])\nexcept SystemExit:\n    pass\n"
        f"print(json.dumps([name for name in {HEAVY} if name in sys.modules]))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=300)
    assert json.loads(done.stdout.splitlines()[-1]) == []
    assert "kit" in done.stdout
    assert len(done.stdout.splitlines()) <= 40


@pytest.mark.parametrize(
    "arguments",
    [
        ["no-such-command"],
        ["kit", "allow", "--kit", "/nowhere"],
        ["centralised", "erm", "--target", "photo"],
        pytest.param(["allow-list"], marks=pytest.mark.slow),
        pytest.param(["export", "job"], marks=pytest.mark.slow),
        pytest.param(["export", "job", "/x", "--y"], marks=pytest.mark.slow),
    ],
)
def test_a_users_mistake_ends_with_2_and_no_traceback(arguments: list[str]) -> None:
    script = Path(sys.executable).with_name("fdg")
    done = subprocess.run([script, *arguments], capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 2
    assert done.stdout == ""
    assert "Traceback" not in done.stderr
    assert done.stderr.strip()


@pytest.mark.parametrize(
    "command", [["kit", "check", "--kit"], ["kit", "harden", "--kit"], ["report"], ["poc", "stop", "--folder"]]
)
def test_a_path_that_the_system_refuses_ends_with_2_and_one_line(command: list[str], tmp_path: Path) -> None:
    result = CliRunner().invoke(app, [*command, str(tmp_path / ("n" * 300))])
    assert result.exit_code == 2, result.output
    assert "cannot be used: File name too long." in result.stderr
    assert len(result.stderr.strip().splitlines()) == 1


def test_the_versions_are_printed() -> None:
    result = CliRunner().invoke(app, ["--version"])
    assert result.exit_code == 0
    assert result.stdout == f"fdg-plugins {version('fdg-plugins')}, nvflare {version('nvflare')}, torch {TORCH}\n"


def test_a_path_that_is_no_utf8_is_printed_escaped(capsys: pytest.CaptureFixture[str]) -> None:
    say("/srv/b\xe4der/\udcff: written")
    say("/srv/\udcff: left out", on_stderr=True)
    assert capsys.readouterr() == ("/srv/b\xe4der/\\udcff: written\n", "/srv/\\udcff: left out\n")


FDG = str(Path(sys.executable).with_name("fdg"))


def test_what_the_encoding_of_the_output_lacks_is_escaped() -> None:
    environment = {**os.environ, "PYTHONIOENCODING": "latin-1"}
    done = subprocess.run(
        [FDG, "explain", "fedprox", "--all"], capture_output=True, timeout=300, check=True, env=environment
    )
    assert "strength (\\u03bc)" in done.stdout.decode("latin-1")


@pytest.mark.parametrize("old", RENAMED)
def test_a_command_of_an_earlier_version_is_answered_with_its_new_name(old: str) -> None:
    result = CliRunner().invoke(app, [old, "--kit", "x"])
    assert result.exit_code == 2
    assert f"fdg {RENAMED[old]}" in result.stderr
    assert CliRunner().invoke(app, [*RENAMED[old].split(), "--help"]).exit_code == 0
    assert old not in {command.name for command in app.registered_commands}


@pytest.mark.parametrize(
    ("arguments", "meant"),
    [
        (["run", "fedomg", "--set", "kappa", "0.3"], "--set kappa=0.3"),
        (["run", "fedomg", "--engine", "procces"], "'process'"),
        (["run", "fedomg+gaa"], "'ga'"),
    ],
)
def test_a_slip_is_answered_with_what_was_meant(arguments: list[str], meant: str) -> None:
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 2
    assert meant in result.stderr
