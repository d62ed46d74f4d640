# SPDX-License-Identifier: Apache-2.0
"""A run as a real process, of a program in the engine's place: followed, failed, stopped; no process is ever left."""

import io
from pathlib import Path
from signal import SIGINT
from typing import Any

import pytest
from rich.console import Console

from fdg_plugins.errors import SettingsError
from fdg_plugins.lab.engine.run import RunDisplay
from fdg_plugins.lab.sweep.machine import ENGINES, Engine, EngineName, Machine, launch
from fdg_plugins.lab.sweep.run import STOPPED, Ending, StopOrder, carry_out, processes_below
from fdg_plugins.record.run_record import RunRecord
from tests.engine.engine_stubs import ROUNDS, fake, fake_engine, record_after

pytestmark = pytest.mark.usefixtures("quick_polls")


def followed(engine: Engine, folder: Path, signal: int | None = None) -> tuple[Ending, list[int]]:
    """Follow a run, unless there is an order to stop already; return the rounds of each record."""
    rounds, display = [], RunDisplay(ROUNDS, Console(file=io.StringIO()))

    def show(content: Any) -> None:
        display.show(content)
        assert display.record is not None
        rounds.append(len(display.record.rounds))

    folder.mkdir()
    found = launch(engine, folder, 4, Machine(4, (None,)), {})
    ending = carry_out(found, folder, StopOrder(signal), show)
    assert processes_below(folder) == []
    return ending, rounds


def test_a_finished_run_is_followed_round_by_round(tmp_path: Path) -> None:
    ending, rounds = followed(fake(tmp_path / "records"), tmp_path / "run")
    assert ending == Ending(ending.seconds)
    assert rounds == [1, 2, 2], "each state of the record once"


def test_a_run_that_is_stopped_before_it_begins_is_not_started(tmp_path: Path) -> None:
    assert followed(fake(tmp_path / "records"), tmp_path / "run", SIGINT) == (Ending(reason=STOPPED), [])


def test_a_run_whose_record_is_not_one_has_failed_and_is_ended(tmp_path: Path) -> None:
    engine = fake_engine(tmp_path / "records", "hangs")
    (tmp_path / "records" / "0.json").write_text('{"rounds": []}')
    ending, _ = followed(engine, tmp_path / "run")
    assert str(ending.reason).startswith("results.json: ")


def test_every_name_has_an_engine_and_those_that_cannot_take_a_path_refuse_it(tmp_path: Path) -> None:
    assert set(ENGINES) == set(EngineName)
    ENGINES[EngineName.PROCESS].check_path(tmp_path / "two words")
    for name in (EngineName.SIMULATOR, EngineName.POC):
        with pytest.raises(SettingsError):
            ENGINES[name].check_path(tmp_path / "two words")


def shown(*records: RunRecord, terminal: bool = False) -> str:
    """Return what a person sees of the records, one after the other."""
    file = io.StringIO()
    console = Console(file=file, force_terminal=terminal, width=200, highlight=False, color_system=None)
    with RunDisplay(ROUNDS, console) as display:
        for record in records:
            display.show(record.model_dump(mode="json"))
    return file.getvalue()


def test_each_round_and_the_last_evaluation_have_one_line() -> None:
    last = record_after(2, "finished")
    lines = shown(record_after(1), record_after(1), record_after(2), last, last).splitlines()
    assert lines == [
        "round 1/2 | sites 2/3 | train loss 1.2500 | initial model: source val 50.0 %, target sketch 50.0 % | "
        "6.0 s | ETA 6 s",
        "round 2/2 | sites 2/3 | train loss 1.2500 | model after round 1: source val 60.0 %, target sketch 60.0 %"
        " | 6.0 s | ETA 0 s",
        "model after round 2: source val 70.0 %, target sketch 70.0 %",
    ]
    assert shown(record_after(0), record_after(2)).splitlines() == lines[:2], "of rounds between two looks, too"


def test_at_a_terminal_a_bar_takes_their_place_and_a_refused_report_has_one_line() -> None:
    record = record_after(1)
    text = shown(record_after(0), record, terminal=True)
    assert "1/2 sites 2/3 source 50.0 % target 50.0 % ETA 6 s" in text
    assert "train loss" not in text
    record.rounds[0] = record.rounds[0].model_copy(update={"refused_reports": {"photo": "too long."}})
    for terminal in (False, True):
        text = shown(record, record, record_after(2), terminal=terminal)
        assert text.count("round 1: the report of site photo was refused: too long.") == 1
