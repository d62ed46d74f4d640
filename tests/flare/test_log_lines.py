# SPDX-License-Identifier: Apache-2.0
"""No site writes lines of the server's log by what FLARE quotes of its messages."""

import logging

import pytest

from fdg_plugins.flare.log_lines import LONGEST, keep_to_one_line

FORGED = "x\n2030-01-01 00:00:00,000 - FederationController - ERROR - stopped: site honest lied\x1b[2J\u202e"


def written(name: str, level: int, text: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """Return what a handler of the process writes of a line of the logger ``name``."""
    handler = logging.NullHandler()
    monkeypatch.setattr(logging.getLogger(), "handlers", [handler])
    keep_to_one_line()
    keep_to_one_line()
    assert len(handler.filters) == 1
    record = logging.LogRecord(name, level, "", 0, "task %s is not found", (text,), None)
    assert handler.filter(record)
    return record.getMessage()


@pytest.mark.parametrize("text", [FORGED, "x" * 10**6])
def test_a_line_of_flare_stays_one_printable_line(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    said = written("ServerRunner", logging.INFO, text, monkeypatch)
    assert said.isprintable()
    assert said.startswith("task x")
    assert len(said) < LONGEST + 50


@pytest.mark.parametrize(("name", "level"), [("ServerRunner", logging.ERROR), ("fdg_plugins.controllers", 20)])
def test_a_traceback_and_this_packages_tables_keep_their_lines(
    name: str, level: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert written(name, level, "a\nb", monkeypatch) == "task a\nb is not found"
