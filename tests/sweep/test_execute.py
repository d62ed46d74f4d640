# SPDX-License-Identifier: Apache-2.0
"""Runs as real processes, of a program in the engine's place: kept, named as failed, ended, and gone on with."""

import signal
import subprocess
import sys
import time
from collections.abc import Callable
from datetime import datetime
from pathlib import Path

import pytest

from fdg_plugins.errors import DataError
from fdg_plugins.lab.sweep import machine
from fdg_plugins.lab.sweep.execute import Runner, Store
from fdg_plugins.lab.sweep.jobs import make_job
from fdg_plugins.lab.sweep.machine import ENGINES, EngineName, Machine, launch
from fdg_plugins.lab.sweep.plan import PlannedRun
from fdg_plugins.lab.sweep.run import (
    MARK,
    Ending,
    Launch,
    StopOrder,
    end_earlier,
    finished_record,
    held,
    listening,
    make_folder,
    processes_below,
    settle,
    start,
)
from fdg_plugins.lab.sweep.run import carry_out as carry_one
from fdg_plugins.record.run_files import LAST_FILE, SELECTED_FILE
from fdg_plugins.storage import read_json
from tests.sweep.fake_simulator import CRASHES, DIES, FAKE, HANGS, LINGERS, REASON, STOPS

ENGINE = ENGINES[EngineName.PROCESS]
RESULTS = Path("workspace", "server")
BOTH = pytest.mark.parametrize("method", ["fedavg", "erm"])


@pytest.fixture(autouse=True)
def _fake(monkeypatch: pytest.MonkeyPatch, quick_polls: None) -> None:
    monkeypatch.setattr(machine, "ONE_PROCESS", FAKE)


def planned(seed: int, method: str = "fedavg", **settings: int) -> PlannedRun:
    """Return a run that the fake simulator treats as ``seed`` says."""
    where = {"name": f"{method}-photo-seed{seed}", "dataset": "pacs", "protocol": "paper", "target": "photo"}
    return PlannedRun(method=method, seed=seed, settings=settings, **where)


def runner(folder: Path, gpus: tuple[str | None, ...] = (None,), tell: Callable[..., None] = lambda *_: None) -> Runner:
    return Runner(Store(folder), Machine(4, gpus), True, {}, tell, keep_models=True)


def carry_out(folder: Path, *seeds: int, method: str = "fedavg") -> dict[int, tuple[str, str]]:
    """Execute runs; return status and reason of each by its seed."""
    ended = runner(folder).carry_out([planned(seed, method) for seed in seeds], StopOrder())
    return {int(name.rpartition("seed")[2]): (one.status, one.reason or "") for name, one in ended.items()}


def wait_until(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + 300
    while not condition() and time.monotonic() < deadline:
        time.sleep(0.05)


def launched(folder: Path, run: PlannedRun) -> subprocess.Popen[bytes]:
    """Start a run as a sweep does, which is then gone."""
    make_job(run, stand_in=True).write(folder)
    return start(folder, launch(ENGINE, folder, 4, Machine(4, (None,)), {}))


@BOTH
def test_runs_are_kept_or_named_as_failed_and_the_rest_goes_on(tmp_path: Path, method: str) -> None:
    ended = carry_out(tmp_path, STOPS, DIES, CRASHES, 0, method=method)
    assert ended == {
        STOPS: ("failed", REASON),
        DIES: ("failed", "one process ended with exit code 3."),
        CRASHES: ("finished", ""),  # although its process was killed after the record
        0: ("finished", ""),
    }
    store = Store(tmp_path)
    names = {path.name for path in (store.runs / planned(0, method).name).iterdir()}
    assert names == {"job", "log.txt", "run.json", "results.json", "local_models", LAST_FILE, SELECTED_FILE}
    left = {path.name for path in (store.runs / planned(DIES, method).name).iterdir()}
    assert left == {"job", "log.txt", "reason.txt"}
    states = [store.state(planned(seed, method).name) for seed in (STOPS, 0, 1)]
    assert states == ["failed", "finished", "to do"]


@BOTH
@pytest.mark.parametrize("seed", [HANGS, LINGERS])
def test_an_order_to_stop_leaves_no_process_and_keeps_what_has_finished(tmp_path: Path, method: str, seed: int) -> None:
    order, told = StopOrder(), list[str]()
    lasting = planned(seed, method)
    record = tmp_path / "runs" / lasting.name / ENGINE.results / "results.json"

    def tell(name: str, ending: Ending | None) -> None:
        if ending is not None:
            told.append(name)
        elif name == lasting.name:
            signal.setitimer(signal.ITIMER_REAL, 0.1, 0.1)

    def look(*_: object) -> None:
        if record.exists():
            order.signal = signal.SIGTERM

    before = signal.signal(signal.SIGALRM, look)
    try:
        ended = runner(tmp_path, tell=tell).carry_out([planned(0, method), lasting, planned(1, method)], order)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert [one.status for one in ended.values()] == ["finished", "finished" if seed == LINGERS else "stopped"]
    assert told == [*ended] == [planned(0, method).name, lasting.name]
    assert processes_below(tmp_path) == []


def test_several_runs_go_on_at_once_each_on_its_gpu(tmp_path: Path) -> None:
    runs = [planned(seed) for seed in range(4)]
    runner(tmp_path, gpus=("0", "1")).carry_out(runs, StopOrder())
    records = [read_json(tmp_path / "runs" / run.name / "results.json") for run in runs]
    assert {record["environment"]["CUDA_VISIBLE_DEVICES"] for record in records} == {"0", "1"}
    assert {record["environment"]["FDG_THREADS"] for record in records} == {"2"}, "two runs on four cores"


def test_what_a_killed_sweep_left_behind_is_ended_and_its_run_done_again(tmp_path: Path) -> None:
    run = planned(HANGS)
    left = launched(Store(tmp_path).runs / run.name, run)
    wait_until(lambda: len(processes_below(tmp_path)) == 2)  # the run and its site in a session of its own
    alias = tmp_path.with_name(f"{tmp_path.name}-alias")
    alias.symlink_to(tmp_path)
    assert len(processes_below(alias)) == 2, "by whatever path the folder is reached"
    carry_out(tmp_path, 0)
    assert left.poll() is not None
    assert processes_below(tmp_path) == []


@pytest.mark.parametrize("same_job", [True, False])
def test_a_run_that_finished_after_its_sweep_was_killed_is_kept_by_the_next(tmp_path: Path, same_job: bool) -> None:
    run, folder = planned(LINGERS), Store(tmp_path).runs / planned(LINGERS).name
    launched(folder, run)
    wait_until(lambda: finished_record(folder / ENGINE.results / "results.json"))
    wanted = run if same_job else planned(LINGERS, rounds=5).model_copy(update={"seed": DIES})
    ended = runner(tmp_path).carry_out([wanted], StopOrder())
    assert [one.status for one in ended.values()] == ["finished" if same_job else "failed"]
    assert (folder / "log.txt").read_text() == "round 1 of the run\n", "it was not run again, or alone"


def test_a_sweep_that_cannot_go_on_leaves_no_process(tmp_path: Path) -> None:
    def tell(name: str, _: Ending | None) -> None:
        if name == planned(0).name:
            raise DataError("the disk is full.")

    with pytest.raises(DataError):
        runner(tmp_path, (None, None), tell).carry_out([planned(HANGS), planned(0)], StopOrder())
    assert processes_below(tmp_path) == []


@pytest.mark.parametrize(
    ("log", "reason"),
    [
        ("1 - ERROR - site a | failed\n1 - ERROR - stopped: site a is out\n1 - ERROR - Aborting\n", "site a is out"),
        ("Traceback\n  raise\ntorch.OutOfMemoryError: CUDA\n", "torch.OutOfMemoryError: CUDA"),
        ("nothing of use", "one process ended with exit code 3."),
    ],
)
def test_the_reason_of_a_run_without_a_record_is_the_last_in_its_log(tmp_path: Path, log: str, reason: str) -> None:
    (tmp_path / "log.txt").write_text("1 - ERROR - stopped: an earlier part of the run\n")
    words = (sys.executable, "-c", f"import sys; sys.stdout.write({log!r}); sys.exit(3)")
    way = Launch(ENGINE.title, words, ENGINE.results, {MARK: str(tmp_path)})
    assert carry_one(way, tmp_path, StopOrder()).reason == reason


def test_a_signal_becomes_an_order_unless_it_is_ignored() -> None:
    before = signal.getsignal(signal.SIGTERM), signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with listening() as order:
            signal.raise_signal(signal.SIGHUP)
            assert order.signal is None
            signal.raise_signal(signal.SIGTERM)
            assert order.signal == signal.SIGTERM
        assert signal.getsignal(signal.SIGTERM) == before[0]
    finally:
        signal.signal(signal.SIGHUP, before[1])


def test_a_folder_is_new_or_empty_and_held_by_one_process(tmp_path: Path) -> None:
    now = datetime(2030, 5, 6, 7, 8, 9)
    assert make_folder(tmp_path / "a" / "b", "name", now) == make_folder(tmp_path / "a" / "b", "name", now)
    for taken in (tmp_path, Path(__file__), Path(__file__) / "run"):
        with pytest.raises(DataError):
            make_folder(taken, "name", now)
    with held(tmp_path / "lock", "it"), pytest.raises(DataError), held(tmp_path / "lock", "it"):
        pytest.fail("two hold it")
    with pytest.raises(BrokenPipeError), held(tmp_path / "lock", "it"):
        raise BrokenPipeError  # an error of the run is not one of its folder


@pytest.fixture
def ended(tmp_path: Path) -> Path:
    """The folder of a run that has ended in its second round, and an earlier part of which has left something."""
    for place in (tmp_path, tmp_path / RESULTS):
        (place / "tb_events").mkdir(parents=True)
        (place / "tb_events" / place.name).touch()
        (place / "mlflow.db").write_text(place.name)
    (tmp_path / RESULTS / "global_model.safetensors").write_bytes(b"model")
    (tmp_path / RESULTS / "results.json").write_text('{"status": "running", "stopped_because": null, "rounds": [1]}')
    return tmp_path


def test_what_a_killed_execution_has_tracked_stays_beside_the_earlier(ended: Path) -> None:
    assert not end_earlier(ended, RESULTS)
    assert {path.name for path in ended.iterdir()} == {"tb_events", "mlflow.db", "mlflow-2.db"}
    assert {path.name for path in (ended / "tb_events").iterdir()} == {ended.name, RESULTS.name}
    assert (ended / "mlflow.db").read_text() == ended.name


def test_what_a_run_has_left_is_in_its_folder_and_its_state_stays_as_long_as_it_is_of_use(ended: Path) -> None:
    checkpoint = ended / "state" / "server" / "fdg_state" / "job" / "checkpoint.safetensors"
    for finished in (False, True):
        checkpoint.parent.mkdir(parents=True, exist_ok=True)
        checkpoint.touch()
        settle(ended, RESULTS, ("global_model.safetensors", "results.json"), finished=finished)
        assert checkpoint.exists() != finished
    assert (ended / "global_model.safetensors").read_bytes() == b"model"
    assert not (ended / "workspace").exists()
