# SPDX-License-Identifier: Apache-2.0
"""What a person sees of a run: a line for each round where output is kept, a bar at a terminal."""

import io

import pytest
from rich.console import Console

from fdg_plugins.lab.engine.progress import RunDisplay
from fdg_plugins.record.run_record import RunRecord
from tests.engine.engine_stubs import ROUNDS, record_after


def shown(*records: RunRecord, terminal: bool = False, width: int = 200) -> str:
    file = io.StringIO()
    console = Console(file=file, force_terminal=terminal, width=width, highlight=False, color_system=None)
    with RunDisplay(ROUNDS, console) as display:
        for record in records:
            display.show(record)
    return file.getvalue()


def test_each_round_and_the_last_evaluation_have_one_line() -> None:
    last = record_after(2, "finished")
    lines = shown(record_after(1), record_after(1), record_after(2), last, last).splitlines()
    assert lines == [
        "round 1/2 | sites 2/3 | train loss 0.5000 | initial model: source val 50.0 %, target art_painting 50.0 % | "
        "6.0 s | ETA 6 s",
        "round 2/2 | sites 2/3 | train loss 0.5000 | model after round 1: source val 60.0 %, target art_painting 60.0 %"
        " | 6.0 s | ETA 0 s",
        "model after round 2: source val 70.0 %, target art_painting 70.0 %",
    ]


def test_rounds_that_finish_between_two_looks_all_have_their_line() -> None:
    assert [line[:9] for line in shown(record_after(0), record_after(2)).splitlines()] == ["round 1/2", "round 2/2"]


@pytest.mark.parametrize("terminal", [False, True])
def test_a_report_that_was_refused_has_one_line(terminal: bool) -> None:
    record = record_after(1)
    record.rounds[0] = record.rounds[0].model_copy(update={"refused_reports": {"photo": "too long."}})
    text = shown(record, record, record_after(2), terminal=terminal)
    assert text.count("round 1: the report of site photo was refused: too long.") == 1


@pytest.mark.parametrize("width", [80, 120])
def test_at_a_terminal_a_bar_has_rounds_sites_scores_and_the_time_left(width: int) -> None:
    text = shown(record_after(0), record_after(1), terminal=True, width=width)
    assert "starting" in text
    assert "1/2 sites 2/3 source 50.0 % target 50.0 % ETA 6 s" in text
    assert "train loss" not in text
