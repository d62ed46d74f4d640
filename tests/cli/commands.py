# SPDX-License-Identifier: Apache-2.0
"""The command line as a test calls it."""

from typer.testing import CliRunner, Result

from fdg_plugins.cli.main import app


def fdg(*arguments: object) -> Result:
    """Run ``fdg`` with these words, in a terminal wide enough for every table."""
    return CliRunner().invoke(app, list(map(str, arguments)), env={"COLUMNS": "300"})


def printed(*arguments: object) -> str:
    """Return what ``fdg`` with these words, which must succeed, prints on standard output."""
    result = fdg(*arguments)
    assert result.exit_code == 0, result.output
    return result.stdout


def check_refusal(result: Result, *parts: str) -> None:
    """Assert that a command was refused in one sentence, which has these ``parts``, without a traceback."""
    assert result.exit_code == 2, result.output
    assert isinstance(result.exception, SystemExit)
    assert [line[:7] for line in result.stderr.splitlines() if line[:5] not in ("Note:", "Warni")] == ["Error: "]
    for part in parts:
        assert part in result.stderr
