# SPDX-License-Identifier: Apache-2.0
"""Runs as real processes, of a program in the simulator's place: kept, named as failed, ended, and gone on with."""

import os
import signal
import sys
import time
from collections.abc import Collection
from pathlib import Path

import psutil
import pytest

from fdg_plugins.data import PACS
from fdg_plugins.errors import DataError
from fdg_plugins.lab.sweep.execute import Active, Outcome, Runner, StopOrder, listening, pending
from fdg_plugins.lab.sweep.jobs import SIMULATOR
from fdg_plugins.lab.sweep.kinds import kind_of
from fdg_plugins.lab.sweep.plan import PlannedRun
from fdg_plugins.lab.sweep.processes import MARK, processes_below
from fdg_plugins.lab.sweep.recover import recover
from fdg_plugins.lab.sweep.request import DataFound
from fdg_plugins.lab.sweep.run_process import Position, RunProcess
from fdg_plugins.lab.sweep.store import MODEL_FILES, Store
from fdg_plugins.storage import read_json
from tests.sweep.fake_simulator import CRASHES, DIES, HANGS, LINGERS, REASON, STOPS
from tests.sweep.sweep_stubs import FAKE_SIMULATOR, planned, start_fake

pytestmark = pytest.mark.usefixtures("quick_polls")

DATA = DataFound(stand_in=True, images=dict.fromkeys(PACS.domains, 1))


class Watcher:
    """Notes what it is told; gives the order to stop once ``until`` of those that never end have finished a round."""

    def __init__(self, order: StopOrder, until: int | None = None) -> None:
        self.events: list[str] = []
        self.most = 0
        self._order = order
        self._until = until

    def started(self, run: PlannedRun) -> None:
        self.events.append(f"started {run.seed}")

    def finished(self, run: PlannedRun, seconds: float) -> None:
        assert seconds > 0
        self.events.append(f"finished {run.seed}")

    def failed(self, run: PlannedRun, reason: str) -> None:
        self.events.append(f"failed {run.seed}")

    def show(self, active: Collection[Active], waiting: Collection[PlannedRun]) -> None:
        self.most = max(self.most, len(active))
        hanging = [one for one in active if one.run.seed in (HANGS, LINGERS) and one.position == Position(1, 4)]
        if self._until is not None and len(hanging) >= self._until:
            self._order.signal = signal.SIGTERM


def carry_out(
    folder: Path, *seeds: int, method: str = "fedavg", stop_when: int | None = None, keep_models: bool = False
) -> tuple[Outcome, Watcher]:
    order = StopOrder()
    watcher = Watcher(order, stop_when)
    runner = Runner(Store(folder), start_fake, [None], watcher, keep_models)
    return runner.carry_out([planned(seed, method) for seed in seeds], order), watcher


def ended(folder: Path, method: str, code: str) -> RunProcess:
    """Return the process of a run of ``method`` that was Python code, once it has ended."""
    process = RunProcess(planned(0, method), kind_of(method), folder, (sys.executable, "-c", code), {})
    while not process.has_ended():
        time.sleep(0.02)
    return process


def start_with_its_job(run: PlannedRun, working: Path) -> RunProcess:
    """Start the fake simulator on the job that a sweep would write."""
    kind = kind_of(run.method)
    kind.write_job(run, DATA, working)
    command = (*FAKE_SIMULATOR, *kind.command(run, threads=4, sites=4)[len(SIMULATOR) :])
    return RunProcess(run, kind, working, command, {**os.environ, MARK: str(working)})


def test_finished_runs_are_kept_in_their_order(tmp_path: Path) -> None:
    outcome, watcher = carry_out(tmp_path, 0, 1)
    assert outcome == Outcome(finished=[planned(0).name, planned(1).name])
    assert watcher.events == ["started 0", "finished 0", "started 1", "finished 1"]
    assert watcher.most == 1
    log = (tmp_path / "runs" / planned(0).name / "log.txt").read_text()
    assert log == "round 1 of the run\n"
    assert read_json(tmp_path / "runs" / planned(0).name / "results.json")["arguments"] == [
        *("job", "-w", "workspace", "-t", "4")
    ]
    assert not (tmp_path / "running").exists()


def test_a_run_that_fails_is_named_and_does_not_stop_the_rest(tmp_path: Path) -> None:
    outcome, _ = carry_out(tmp_path, STOPS, DIES, 0)
    assert outcome.finished == [planned(0).name]
    died = "the simulator ended with exit code 3 and left no record."
    assert outcome.failed == {planned(STOPS).name: REASON, planned(DIES).name: died}
    assert Store(tmp_path).failure(planned(STOPS).name) == REASON
    assert (tmp_path / "failed" / planned(DIES).name / "log.txt").read_text() == "round 1 of the run\n"


def test_a_reference_is_carried_out_and_fails_as_a_federated_run_does(tmp_path: Path) -> None:
    outcome, watcher = carry_out(tmp_path, STOPS, DIES, 0, method="irm", keep_models=True)
    assert outcome.finished == [planned(0, "irm").name]
    died = "fdg run ended with exit code 3 and left no record."
    assert outcome.failed == {planned(STOPS, "irm").name: REASON, planned(DIES, "irm").name: died}
    assert watcher.events[-2:] == ["started 0", "finished 0"]
    kept = tmp_path / "runs" / planned(0, "irm").name
    assert (kept / "log.txt").read_text() == "round 1 of the run\n"
    assert {path.name for path in kept.glob("*.safetensors")} == set(MODEL_FILES)
    assert read_json(kept / "results.json")["arguments"] == [
        *("run", "irm", "--dataset", "pacs", "--target", "photo", "--seed", "0", "--protocol", "paper"),
        *("--set", "rounds=4", "--to", "workspace"),
    ]


@pytest.mark.parametrize("method", ["fedavg", "erm"])
def test_an_order_to_stop_leaves_no_process_and_keeps_what_has_finished(tmp_path: Path, method: str) -> None:
    outcome, _ = carry_out(tmp_path, 0, HANGS, 1, method=method, stop_when=1)
    assert outcome == Outcome(finished=[planned(0, method).name], stopped=True)
    assert processes_below(tmp_path) == []
    assert sorted(path.name for path in tmp_path.iterdir()) == ["runs"]


def test_a_run_that_has_finished_is_kept_although_its_process_did_not_end_well(tmp_path: Path) -> None:
    outcome, _ = carry_out(tmp_path, CRASHES, 0, keep_models=True)
    assert outcome == Outcome(finished=[planned(CRASHES).name, planned(0).name])
    assert {path.name for path in (tmp_path / "runs" / planned(CRASHES).name).iterdir()} >= set(MODEL_FILES)


@pytest.mark.parametrize("method", ["fedavg", "erm"])
def test_a_run_that_has_finished_is_kept_although_its_process_had_to_be_ended(tmp_path: Path, method: str) -> None:
    outcome, watcher = carry_out(tmp_path, LINGERS, 1, method=method, stop_when=1, keep_models=True)
    assert outcome == Outcome(finished=[planned(LINGERS, method).name], stopped=True)
    assert watcher.events == [f"started {LINGERS}", f"finished {LINGERS}"]
    assert {path.name for path in (tmp_path / "runs" / planned(LINGERS, method).name).iterdir()} >= set(MODEL_FILES)
    assert processes_below(tmp_path) == []
    assert not (tmp_path / "running").exists()


@pytest.mark.parametrize("same_job", [True, False])
def test_a_run_that_finished_after_its_sweep_was_killed_is_kept_by_the_next(tmp_path: Path, same_job: bool) -> None:
    store, run = Store(tmp_path), planned(LINGERS)
    started = start_with_its_job(run, store.begin(run.name))
    deadline = time.monotonic() + 300
    while store.seconds_of_finished(run.name, started.kind.record_folder) is None and time.monotonic() < deadline:
        time.sleep(0.05)
    wanted = run if same_job else run._replace(settings={"rounds": 5})
    found = recover([planned(1), wanted], store, DATA, in_one_process=False, keep_models=True)
    assert found == ([run.name] if same_job else [])
    assert pending([wanted], store, retry_failed=True) == ([] if same_job else [wanted])
    assert started.has_ended()
    assert store.runs.exists() == same_job


def test_what_cannot_be_kept_stays_and_is_kept_by_the_next_sweep(tmp_path: Path) -> None:
    (tmp_path / "runs").write_text("no folder")
    with pytest.raises(DataError, match="cannot be written"):
        carry_out(tmp_path, 0, keep_models=True)
    (tmp_path / "runs").unlink()
    store, run = Store(tmp_path), planned(0)
    store.clear()
    assert store.seconds_of_finished(run.name, kind_of("fedavg").record_folder) is not None
    store.keep(run, kind_of("fedavg").record_folder, 1.0, keep_models=True)
    expected = {"job", "log.txt", "results.json", "run.json", "local_models", *MODEL_FILES}
    assert {path.name for path in (store.runs / run.name).iterdir()} == expected


def test_several_runs_go_on_at_once_and_all_are_ended(tmp_path: Path) -> None:
    order = StopOrder()
    watcher = Watcher(order, until=2)
    hanging = [planned(HANGS, method) for method in ("fedavg", "fedomg", "feddim")]
    outcome = Runner(Store(tmp_path), start_fake, ["0", "1"], watcher, keep_models=False).carry_out(hanging, order)
    assert (outcome.stopped, watcher.most) == (True, 2)
    assert processes_below(tmp_path) == []


def test_two_runs_at_once_have_two_gpus_and_one_after_the_other_may_share_one(tmp_path: Path) -> None:
    order = StopOrder()
    runs = [planned(seed) for seed in range(4)]
    Runner(Store(tmp_path), start_fake, ["0", "1"], Watcher(order), keep_models=False).carry_out(runs, order)
    records = [read_json(tmp_path / "runs" / run.name / "results.json") for run in runs]
    used = [record["environment"]["CUDA_VISIBLE_DEVICES"] for record in records]
    assert set(used[:2]) == {"0", "1"} == set(used)


def test_what_a_killed_sweep_left_behind_is_ended_before_its_run_is_done_again(tmp_path: Path) -> None:
    store = Store(tmp_path)
    left = start_fake(planned(HANGS), store.begin(planned(HANGS).name), None)
    deadline = time.monotonic() + 300
    while len(processes_below(tmp_path)) < 2 and time.monotonic() < deadline:
        time.sleep(0.05)
    assert len(processes_below(tmp_path)) == 2, "the run and its site in a session of its own"
    alias = tmp_path.with_name(f"{tmp_path.name}-alias")
    alias.symlink_to(tmp_path)
    assert len(processes_below(alias)) == 2, "by whatever path the folder is reached"
    carry_out(tmp_path, 0)
    assert left.has_ended()
    assert processes_below(tmp_path) == []
    assert not (tmp_path / "running").exists()


def test_done_again_it_does_exactly_what_is_missing(tmp_path: Path) -> None:
    store, plan = Store(tmp_path), [planned(seed) for seed in (0, STOPS, 1)]
    assert pending(plan, store, retry_failed=True) == plan
    carry_out(tmp_path, 0, STOPS)
    assert pending(plan, store, retry_failed=True) == [planned(STOPS), planned(1)]
    assert pending(plan, store, retry_failed=False) == [planned(1)]


def test_a_sweep_that_cannot_go_on_leaves_no_process(tmp_path: Path) -> None:
    def start(run: PlannedRun, working: Path, gpu: str | None) -> RunProcess:
        if run.seed == 0:
            raise DataError("the disk is full.")
        return start_fake(run, working, gpu)

    order = StopOrder()
    runner = Runner(Store(tmp_path), start, [None, None], Watcher(order), keep_models=False)
    with pytest.raises(DataError, match="the disk is full"):
        runner.carry_out([planned(HANGS), planned(0)], order)
    assert processes_below(tmp_path) == []


def test_a_process_whose_mark_cannot_be_read_yet_is_ended_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Between the start of a program and its first instruction, its environment is empty."""
    process = start_fake(planned(HANGS), tmp_path, None)
    monkeypatch.setattr(psutil.Process, "environ", lambda self: {})
    process.end()
    assert process.has_ended()


def test_a_simulator_that_is_not_installed_is_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"command /nowhere/nvflare cannot be started: No such file"):
        RunProcess(planned(0), kind_of("fedavg"), tmp_path, ("/nowhere/nvflare", "simulator"), {})


@pytest.mark.parametrize(
    ("method", "log", "reason"),
    [
        (
            "fedavg",
            "2026 - ERROR - site a | task census failed: x\n2026 - ERROR - stopped: site a cannot take part: x\n"
            "2026 - ERROR - Aborting current RUN due to FATAL_SYSTEM_ERROR received: x\n",
            "site a cannot take part: x",
        ),
        (
            "fedavg",
            "2026 - ERROR - Simulator setup error: RuntimeError\n2026 - INFO - end\n",
            "Simulator setup error: RuntimeError",
        ),
        ("fedavg", "2026 - ERROR - " + "x" * 1000, "x" * 297 + "..."),
        ("fedavg", "nothing", "the simulator ended with exit code 3 and left no record."),
        (
            "erm",
            "PACS: pooled photo\nError: domain photo has 1 training image, expected at least 2.\n",
            "domain photo has 1 training image, expected at least 2.",
        ),
        (
            "erm",
            "Traceback (most recent call last):\n  raise\ntorch.OutOfMemoryError: CUDA out of memory. Tried 2 GiB\n",
            "torch.OutOfMemoryError: CUDA out of memory. Tried 2 GiB",
        ),
        ("erm", "2026 - ERROR - no log of FLARE's", "fdg run ended with exit code 3 and left no record."),
    ],
)
def test_the_reason_of_a_run_without_a_record_is_the_last_in_its_log(
    tmp_path: Path, method: str, log: str, reason: str
) -> None:
    process = ended(tmp_path, method, "import sys; sys.exit(3)")
    (tmp_path / "log.txt").write_text(log)
    assert process.failure() == reason


def test_what_an_earlier_part_of_a_run_was_stopped_by_is_no_reason_of_a_later_one(tmp_path: Path) -> None:
    (tmp_path / "log.txt").write_text("2026 - ERROR - stopped: No space left on device.\n", encoding="utf-8")
    process = ended(tmp_path, "fedavg", "print('round 4 of the run')\nimport os; os.kill(os.getpid(), 9)")
    assert process.failure() == "the simulator was ended by signal 9 and left no record."
    assert (tmp_path / "log.txt").read_text(encoding="utf-8").startswith("2026"), "the log goes on"


def test_exit_code_zero_without_a_finished_record_is_no_success(tmp_path: Path) -> None:
    reason = "the simulator ended with exit code 0 and left no record."
    assert ended(tmp_path, "fedavg", "").failure() == reason


def test_a_signal_becomes_an_order_and_what_was_before_comes_back() -> None:
    before = signal.getsignal(signal.SIGTERM)
    with listening() as order:
        assert order.signal is None
        signal.raise_signal(signal.SIGTERM)
        assert order.signal == signal.SIGTERM
    assert signal.getsignal(signal.SIGTERM) == before


def test_a_signal_that_is_ignored_stays_ignored() -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with listening() as order:
            signal.raise_signal(signal.SIGHUP)
            assert order.signal is None
    finally:
        signal.signal(signal.SIGHUP, before)
