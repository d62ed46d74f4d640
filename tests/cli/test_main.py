# SPDX-License-Identifier: Apache-2.0
"""The command ``fdg`` itself: help that comes at once, and users' mistakes without tracebacks."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from fdg_plugins.cli.main import app

HEAVY = ("torch", "nvflare", "pydantic")


def test_help_loads_neither_torch_nor_flare() -> None:
    code = (
        "import json, sys\n"
        "from fdg_plugins.cli.main import app\n"
        "try:\n    app(['--help'])\nexcept SystemExit:\n    pass\n"
        f"print(json.dumps([name for name in {HEAVY} if name in sys.modules]))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert json.loads(done.stdout.splitlines()[-1]) == []
    assert "allow-list" in done.stdout


@pytest.mark.parametrize(
    "command",
    [
        "allow-list",
        "export-job",
        "submit",
        "resume",
        "run",
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
        ["allow-list"],
        ["export-job"],
        ["no-such-command"],
        ["allow-list", "--kit", "/nowhere"],
        ["export-job", "/x", "--y"],
    ],
)
def test_a_users_mistake_ends_with_2_and_no_traceback(arguments: list[str]) -> None:
    script = Path(sys.executable).with_name("fdg")
    done = subprocess.run([script, *arguments], capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 2
    assert done.stdout == ""
    assert "Traceback" not in done.stderr
    assert done.stderr.strip()
