# SPDX-License-Identifier: Apache-2.0
"""A run as a real process that fails, and what a person sees of a run while it goes on."""

import io
from pathlib import Path

import pytest
from rich.console import Console

from fdg_plugins.lab.engine.run import RunDisplay
from fdg_plugins.lab.sweep.machine import Machine, launch
from fdg_plugins.lab.sweep.run import StopOrder, carry_out, processes_below
from fdg_plugins.record.run_record import RunRecord
from tests.engine.engine_stubs import ROUNDS, fake_engine, record_after

pytestmark = pytest.mark.usefixtures("quick_polls")


def test_a_run_whose_record_is_not_one_has_failed_and_is_ended(tmp_path: Path) -> None:
    engine, folder = fake_engine(tmp_path / "records", "hangs"), tmp_path / "run"
    (tmp_path / "records" / "0.json").write_text('{"rounds": []}')
    folder.mkdir()
    found = launch(engine, folder, 4, Machine(4, (None,)), {})
    ending = carry_out(found, folder, StopOrder(None), RunDisplay(ROUNDS, Console(file=io.StringIO())).show)
    assert str(ending.reason).startswith("results.json: ")
    assert processes_below(folder) == []


def shown(*records: RunRecord, terminal: bool = False) -> str:
    """Return what a person sees of the records, one after the other."""
    file = io.StringIO()
    console = Console(file=file, force_terminal=terminal, width=200, highlight=False, color_system=None)
    with RunDisplay(ROUNDS, console) as display:
        for record in records:
            display.show(record.model_dump(mode="json"))
    return file.getvalue()


def test_a_round_is_a_step_of_a_bar_at_a_terminal_and_else_a_line() -> None:
    record = record_after(1)
    text = shown(record_after(0), record, terminal=True)
    assert "1/2 sites 2/3 source 50.0 % target 50.0 % ETA 6 s" in text
    assert "train loss" not in text
    line = "round 1/2 | sites 2/3 | train loss 1.2500 | initial model: source val 50.0 %, target sketch 50.0 % | "
    assert shown(record_after(0), record, record) == f"{line}6.0 s | ETA 6 s\n"
    record.rounds[0] = record.rounds[0].model_copy(update={"refused_reports": {"photo": "too long."}})
    for terminal in (False, True):
        text = shown(record, record, record_after(2), terminal=terminal)
        assert text.count("round 1: the report of site photo was refused: too long.") == 1
