# SPDX-License-Identifier: Apache-2.0
"""A run as a real process, of a program in the engine's place: followed, failed, stopped; no process is ever left."""

import os
import signal
from pathlib import Path

import pytest

from fdg_plugins.errors import SettingsError
from fdg_plugins.lab.engine.engine import Engine, Launch
from fdg_plugins.lab.engine.engines import ENGINES, SimulatorEngine
from fdg_plugins.lab.engine.execute import STOPPED, Ending, carry_out
from fdg_plugins.lab.engine.names import EngineName
from fdg_plugins.lab.sweep import jobs
from fdg_plugins.lab.sweep.execute import StopOrder
from fdg_plugins.lab.sweep.plan import PlannedRun
from fdg_plugins.lab.sweep.processes import MARK, processes_below
from fdg_plugins.record.run_record import RunRecord
from tests.engine.engine_stubs import ROUNDS, FakeEngine, fake, record_after

pytestmark = pytest.mark.usefixtures("quick_polls")

RUN = PlannedRun("fedavg-pacs-photo-seed0", "pacs", "paper", "fedavg", "photo", 0, {})


class Watcher:
    """Notes the number of rounds in each record; gives the order to stop at the first, if ``stops``."""

    def __init__(self, order: StopOrder, stops: bool = False) -> None:
        self.rounds: list[int] = []
        self._order = order
        self._stops = stops

    def show(self, record: RunRecord) -> None:
        self.rounds.append(len(record.rounds))
        if self._stops:
            self._order.signal = signal.SIGTERM


def launch(folder: Path) -> Launch:
    folder.mkdir()
    return Launch(RUN, folder, 4, {**os.environ, MARK: str(folder)}, 4)


def followed(engine: Engine, folder: Path, stops: bool = False) -> tuple[Ending, Watcher]:
    order = StopOrder()
    watcher = Watcher(order, stops)
    ending = carry_out(engine, launch(folder), watcher, order)
    assert processes_below(folder) == []
    return ending, watcher


def test_a_finished_run_is_followed_round_by_round(tmp_path: Path) -> None:
    ending, watcher = followed(fake(tmp_path / "records"), tmp_path / "run")
    assert (ending.reason, ending.stopped) == (None, False)
    assert ending.seconds > 0
    assert ending.record == record_after(ROUNDS, "finished")
    assert watcher.rounds == [1, 2, 2], "each state of the record once"


def test_a_run_that_dies_has_failed_with_its_last_record(tmp_path: Path) -> None:
    ending, _ = followed(fake(tmp_path / "records", "dies"), tmp_path / "run")
    assert ending.reason == "the simulator ended with exit code 3 and left a record that says running."
    assert ending.record == record_after(ROUNDS)
    assert not ending.stopped


def test_an_order_to_stop_ends_the_run_and_the_session_of_its_site(tmp_path: Path) -> None:
    ending, _ = followed(fake(tmp_path / "records", "hangs"), tmp_path / "run", stops=True)
    assert (ending.reason, ending.stopped) == (STOPPED, True)


def test_an_order_that_came_before_the_start_starts_nothing(tmp_path: Path) -> None:
    engine, order = fake(tmp_path / "records"), StopOrder(signal.SIGINT)
    assert carry_out(engine, launch(tmp_path / "run"), Watcher(order), order).stopped
    assert engine.launches == []


def test_a_run_whose_record_is_not_one_has_failed_and_is_ended(tmp_path: Path) -> None:
    engine = FakeEngine(tmp_path / "records", "hangs")
    (tmp_path / "records" / "0.json").write_text('{"rounds": []}')
    ending, _ = followed(engine, tmp_path / "run")
    assert str(ending.reason).startswith("results.json: ")


def test_a_program_that_is_not_installed_is_a_failure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jobs, "SIMULATOR", ("/nowhere/nvflare", "simulator"))
    ending, _ = followed(SimulatorEngine(), tmp_path / "run")
    assert ending.reason == "command /nowhere/nvflare cannot be started: No such file or directory."


def test_every_name_has_an_engine() -> None:
    assert set(ENGINES) == set(EngineName)


def test_the_simulator_refuses_a_path_that_it_would_split(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="which FLARE's simulator cannot take"):
        ENGINES[EngineName.SIMULATOR].check_folder(tmp_path / "two words")
