# SPDX-License-Identifier: Apache-2.0
"""A run as a real process, of a program in the engine's place: followed, failed, stopped; no process is ever left."""

import signal
from pathlib import Path

import pytest

from fdg_plugins.errors import SettingsError
from fdg_plugins.lab.engine.engines import ENGINES
from fdg_plugins.lab.engine.names import EngineName
from fdg_plugins.lab.engine.run import STOPPED, Ending, carry_out, settle_run
from fdg_plugins.lab.sweep.execute import StopOrder
from fdg_plugins.lab.sweep.kinds import FederatedRuns, launch
from fdg_plugins.lab.sweep.machine import Machine
from fdg_plugins.lab.sweep.plan import PlannedRun
from fdg_plugins.lab.sweep.processes import processes_below
from fdg_plugins.record.run_record import RunRecord
from fdg_plugins.storage import read_json
from tests.engine.engine_stubs import ROUNDS, FakeEngine, fake, record_after

pytestmark = pytest.mark.usefixtures("quick_polls")

RUN = PlannedRun("fedavg-pacs-photo-seed0", "pacs", "paper", "fedavg", "photo", 0, {})


def followed(engine: FederatedRuns, folder: Path, order: StopOrder, *, stops: bool = False) -> tuple[Ending, list[int]]:
    """Follow a run, which is told to stop at its first record if it ``stops``; return the rounds of each record."""
    rounds = []

    def show(record: RunRecord) -> None:
        rounds.append(len(record.rounds))
        if stops:
            order.signal = signal.SIGTERM

    folder.mkdir()
    found = launch(engine, RUN, folder, 4, Machine(4, (None,)), {})
    ending = carry_out(found, folder, show, order)
    assert processes_below(folder) == []
    return ending, rounds


def test_a_finished_run_is_followed_round_by_round(tmp_path: Path) -> None:
    ending, rounds = followed(fake(tmp_path / "records"), tmp_path / "run", StopOrder())
    assert ending == Ending(record_after(ROUNDS, "finished"), ending.seconds, None)
    assert rounds == [1, 2, 2], "each state of the record once"


def test_a_run_that_dies_has_failed_and_its_record_says_so(tmp_path: Path) -> None:
    engine = fake(tmp_path / "records", "dies")
    ending, _ = followed(engine, tmp_path / "run", StopOrder())
    assert ending == Ending(record_after(ROUNDS), ending.seconds, "a fake ended with exit code 3.")
    settle_run(tmp_path / "run", engine.results, ending)
    record = read_json(tmp_path / "run" / "results.json")
    assert (record["status"], record["stopped_because"]) == ("stopped", ending.reason)


def test_an_order_to_stop_ends_the_run_and_the_session_of_its_site(tmp_path: Path) -> None:
    ending, _ = followed(fake(tmp_path / "records", "hangs"), tmp_path / "run", StopOrder(), stops=True)
    assert (ending.reason, ending.stopped) == (STOPPED, True)
    before, rounds = followed(fake(tmp_path / "records"), tmp_path / "other", StopOrder(signal.SIGINT))
    assert (before.stopped, rounds) == (True, [])


def test_a_run_whose_record_is_not_one_has_failed_and_is_ended(tmp_path: Path) -> None:
    engine = FakeEngine(tmp_path / "records", "hangs")
    (tmp_path / "records" / "0.json").write_text('{"rounds": []}')
    ending, _ = followed(engine, tmp_path / "run", StopOrder())
    assert str(ending.reason).startswith("results.json: ")


def test_every_name_has_an_engine_and_those_that_cannot_take_a_path_refuse_it(tmp_path: Path) -> None:
    assert set(ENGINES) == set(EngineName)
    ENGINES[EngineName.PROCESS].check_path(tmp_path / "two words")
    for name in (EngineName.SIMULATOR, EngineName.POC):
        with pytest.raises(SettingsError):
            ENGINES[name].check_path(tmp_path / "two words")
