# SPDX-License-Identifier: Apache-2.0
"""The command ``fdg`` itself: help that comes at once, and users' mistakes without tracebacks."""

import errno
import json
import os
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest
import typer
from typer.core import TyperGroup
from typer.testing import CliRunner

from fdg_plugins.cli.console import say
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
    assert "allow-list" in done.stdout


@pytest.mark.parametrize(
    "command",
    [
        "allow-list",
        "export",
        "job",
        "submit",
        "resume",
        "run",
        "jobs",
        "sweep",
        "report",
        "plot",
        "audit",
        "explain",
        "doctor",
        "centralised",
        "privacy",
        "clean",
    ],
)
def test_every_command_teaches_by_example(command: str) -> None:
    result = CliRunner().invoke(app, [command, "--help"])
    assert result.exit_code == 0
    assert "Examples" in result.stdout
    assert f"fdg {command}" in result.stdout


@pytest.mark.parametrize(
    "arguments",
    [
        ["no-such-command"],
        ["kit", "allow", "--kit", "/nowhere"],
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


def test_a_folder_that_the_user_may_not_enter_ends_with_2(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(path: Path) -> bool:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))

    monkeypatch.setattr(Path, "is_dir", refuse)
    result = CliRunner().invoke(app, ["kit", "check", "--kit", str(tmp_path)])
    assert result.exit_code == 2, result.output
    assert result.stderr == f"Error: path {tmp_path} cannot be used: Permission denied.\n"


def test_an_error_of_the_system_that_names_no_path_is_not_hidden(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(path: Path) -> bool:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(Path, "is_dir", fail)
    assert isinstance(CliRunner().invoke(app, ["kit", "check", "--kit", "kit"]).exception, OSError)


def test_the_versions_are_printed() -> None:
    result = CliRunner().invoke(app, ["--version"])
    assert result.exit_code == 0
    assert result.stdout == f"fdg-plugins {version('fdg-plugins')}, nvflare {version('nvflare')}, torch {TORCH}\n"


GROUP = typer.main.get_command(app)
assert isinstance(GROUP, TyperGroup)
COMMANDS = GROUP.commands


@pytest.mark.parametrize("command", sorted(COMMANDS))
def test_help_has_room_for_its_texts_on_80_columns(command: str) -> None:
    printed = CliRunner().invoke(app, [command, "--help"], env={"COLUMNS": "80", "TERMINAL_WIDTH": "80"}).stdout
    (line,) = [line for line in printed.splitlines() if "--help " in line]
    assert len(line) == 80
    assert 78 - line.index("Show this message") >= 30


@pytest.mark.parametrize("command", sorted(COMMANDS))
def test_the_lines_of_a_help_end_at_the_width_of_the_terminal_and_not_where_the_source_does(command: str) -> None:
    text = COMMANDS[command].help
    assert text is not None
    assert not any("\n" in paragraph for paragraph in text.split("\n\n"))
    printed = CliRunner().invoke(app, [command, "--help"], env={"COLUMNS": "100", "TERMINAL_WIDTH": "100"}).stdout
    assert " ".join(text.replace("\\[", "[").split()) in " ".join(printed.split())


def test_a_path_that_is_no_utf8_is_printed_escaped(capsys: pytest.CaptureFixture[str]) -> None:
    say("/srv/b\xe4der/\udcff: written")
    say("/srv/\udcff: left out", on_stderr=True)
    assert capsys.readouterr() == ("/srv/b\xe4der/\\udcff: written\n", "/srv/\\udcff: left out\n")


FDG = str(Path(sys.executable).with_name("fdg"))
FULL = Path("/dev/full")


@pytest.mark.skipif(not FULL.exists(), reason="no device that is always full here")
@pytest.mark.parametrize(("arguments", "code"), [(["explain"], 1), (["explain", "nothing"], 2)])
def test_output_that_cannot_be_written_is_said_in_one_sentence(arguments: list[str], code: int) -> None:
    with FULL.open("w") as full:
        done = subprocess.run(
            [FDG, *arguments], stdout=full, stderr=subprocess.PIPE, text=True, timeout=300, check=False
        )
    assert done.returncode == code
    *_, last = done.stderr.splitlines()
    assert (last == "Error: the output cannot be written: No space left on device.") is (code == 1)
    assert done.stderr.count("\n") == 1


def test_what_the_encoding_of_the_output_lacks_is_escaped() -> None:
    environment = {**os.environ, "PYTHONIOENCODING": "latin-1"}
    done = subprocess.run([FDG, "explain", "fedprox"], capture_output=True, timeout=300, check=True, env=environment)
    assert "strength (\\u03bc)" in done.stdout.decode("latin-1")


def test_a_command_goes_on_when_its_reader_has_left(tmp_path: Path) -> None:
    code = "import sys; from fdg_plugins.cli.console import say; say('a'); say('b'); open(sys.argv[1], 'x').close()"
    end, start = os.pipe()
    os.close(end)
    done = subprocess.run(
        [sys.executable, "-c", code, tmp_path / "reached"],
        stdout=start,
        stderr=subprocess.PIPE,
        timeout=300,
        check=False,
    )
    os.close(start)
    assert (done.returncode, done.stderr) == (0, b"")
    assert (tmp_path / "reached").exists()
