# SPDX-License-Identifier: Apache-2.0
"""The training process: the bits of work done in place, one task lost when it dies, and never a process left behind."""

import os
import pickle
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import psutil
import pytest
from nvflare.apis.fl_constant import ReturnCode

from fdg_plugins.executors.training_process import TrainingProcess, WorkerPool
from fdg_plugins.executors.work import CENSUS_FILE, SiteTask, SiteWork, TaskResult
from fdg_plugins.messages import TASK_CENSUS, TASK_EVALUATE, TASK_PROBE
from fdg_plugins.settings.site_config import SiteConfig
from fdg_plugins.testing.inputs import same_bits
from tests.executors.sites import PROTOCOL, Site, census_order, census_request, order
from tests.flare_runner import run_task

ROOT = str(Path(__file__).parents[2])
SOON_S = 120  # for what takes no time at all, on a machine that has none to give
LONG = PROTOCOL.model_copy(update={"local_epochs": 1000})


def never() -> bool:
    return False


def ignore(line: str) -> None:
    pass


@pytest.fixture
def config(data_root: Path) -> SiteConfig:
    return SiteConfig(data_root=data_root, device="cpu", threads=1)


@pytest.fixture
def folder(tmp_path: Path, config: SiteConfig) -> Path:
    """The state of a run whose census is done."""
    assert SiteWork().do_work(census_order(), config, tmp_path, never, ignore).kind == "ok"
    return tmp_path


@pytest.fixture(scope="module")
def printed() -> list[str]:
    return []


@pytest.fixture(scope="module")
def process(printed: list[str]) -> Iterator[TrainingProcess]:
    """One training process for all tests, since its start takes seconds; a test that ends it costs another start."""
    process = TrainingProcess(printed.append)
    yield process
    process.close()


def assert_same(one: TaskResult, other: TaskResult) -> None:
    """The same work has come to both, but for the time that a training took."""
    values = [result.value for result in (one, other)]
    if one.value and "report" in one.value:
        values = [{**value, "report": value["report"].model_copy(update={"seconds": 0})} for value in values]
    assert values[0] == values[1]
    assert (one.kind, one.reason, one.public) == (other.kind, other.reason, other.public)
    assert one.tensors.keys() == other.tensors.keys()
    assert all(same_bits(tensors, other.tensors[group]) for group, tensors in one.tensors.items())


def is_gone(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE  # an orphan that nobody has fetched yet
    except psutil.NoSuchProcess:
        return True


def wait_until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + SOON_S
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


@pytest.mark.slow
def test_work_in_a_process_has_the_same_bits(process: TrainingProcess, config: SiteConfig, tmp_path: Path) -> None:
    orders = [
        census_order(),
        order(),
        order(TASK_EVALUATE),
        order(classes=8),
        order(TASK_PROBE, PROTOCOL.model_copy(update={"objective": {"name": "iir"}})),
        census_order("sketch"),
        order(site="sketch"),
    ]
    results: list[list[TaskResult]] = []
    lines: list[list[str]] = []
    for worker, folder in ((SiteWork(), tmp_path / "here"), (process, tmp_path / "there")):
        said: list[str] = []
        results.append([worker.do_work(one, config, folder, never, said.append) for one in orders])
        lines.append(said)
    for in_place, apart in zip(*results, strict=True):
        assert_same(in_place, apart)
    assert [one.kind for one in results[0]] == ["ok", "ok", "ok", "failed", "ok", "ok", "failed"]
    assert results[0][3].reason.startswith("parameter 'classifier.bias' of the model received has shape ")
    assert (tmp_path / "here" / CENSUS_FILE).read_bytes() == (tmp_path / "there" / CENSUS_FILE).read_bytes()
    assert lines[0] == lines[1]
    trained = [line.partition(" | train loss ")[0] for line in lines[1] if "epoch" in line]
    assert trained == ["site photo | round 3/10 | epoch 1/2", "site photo | round 3/10 | epoch 2/2"]


@pytest.mark.parametrize(("job", "by_default", "other"), [("job", "apart", "no"), ("simulate_job", "in place", "yes")])
def test_work_is_apart_by_default_but_not_in_the_simulator_and_the_environment_decides_otherwise(
    tmp_path: Path, data_root: Path, monkeypatch: pytest.MonkeyPatch, job: str, by_default: str, other: str
) -> None:
    done: list[str] = []

    def note(name: str, *_: object, **__: object) -> TaskResult:
        done.append(name)
        return TaskResult("aborted")

    for kind, name in ((TrainingProcess, "apart"), (SiteWork, "in place")):
        monkeypatch.setattr(kind, "do_work", partial(note, name))
    site = Site("photo", tmp_path, data_root=str(data_root))
    context = site.context(job)
    monkeypatch.delenv("FDG_ISOLATE")
    reply = run_task(site.executor, TASK_CENSUS, census_request(), context)
    assert reply.get_return_code() == ReturnCode.TASK_ABORTED
    monkeypatch.setenv("FDG_ISOLATE", other)
    run_task(site.executor, TASK_CENSUS, census_request(), context)
    assert done == [by_default, {"no": "in place", "yes": "apart"}[other]]


def test_a_site_goes_to_the_process_of_its_last_task_unless_it_is_busy(
    tmp_path: Path, config: SiteConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    done: list[tuple[str, TrainingProcess]] = []

    def work(process: TrainingProcess, asked: SiteTask, *_: object) -> TaskResult:
        done.append((asked.site, process))
        if len(done) == 1:
            pool.do_work(census_order("b"), config, tmp_path, never, ignore)
        return TaskResult("aborted")

    monkeypatch.setattr(TrainingProcess, "do_work", work)
    pool = WorkerPool(2, ignore)
    for site in ("a", "a", "b", "c"):
        pool.do_work(census_order(site), config, tmp_path, never, ignore)
    pool.close()
    of_a, of_b = done[0][1], done[1][1]
    assert of_a is not of_b
    assert done[:4] == [("a", of_a), ("b", of_b), ("a", of_a), ("b", of_b)]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("how", "text"),
    [
        (signal.SIGSEGV, "the training process died of SIGSEGV."),
        (signal.SIGKILL, "the training process was killed (SIGKILL), perhaps out of memory."),
    ],
)
def test_a_death_in_training_costs_one_task_and_the_next_gives_the_bits_it_would_have_given(
    process: TrainingProcess, config: SiteConfig, folder: Path, printed: list[str], how: signal.Signals, text: str
) -> None:
    died: list[int] = []

    def kill(line: str) -> None:
        if "epoch" in line and not died:
            assert process.pid is not None
            died.append(process.pid)
            os.kill(process.pid, how)

    outcome = process.do_work(order(protocol=LONG), config, folder, never, kill)
    assert (outcome.kind, outcome.reason) == ("failed", text)
    assert is_gone(died[0])
    assert process.pid is None
    if how == signal.SIGSEGV:
        assert any("Segmentation fault" in line for line in printed), "where it happened is in the log"
    after = process.do_work(order(), config, folder, never, ignore)
    assert process.pid not in (None, died[0])
    assert_same(after, SiteWork().do_work(order(), config, folder, never, ignore))


@pytest.mark.slow
def test_abort_ends_the_process_and_workers(process: TrainingProcess, config: SiteConfig, folder: Path) -> None:
    heard: list[str] = []
    seen: set[int] = set()

    def stop_once_there_are_data_workers() -> bool:
        assert process.pid is not None
        assert not seen, "it is asked no more"
        workers = psutil.Process(process.pid).children() if heard else []
        seen.update({process.pid, *(worker.pid for worker in workers)} if workers else set())
        return bool(seen)

    with_workers = config.model_copy(update={"workers": 1})
    stop = stop_once_there_are_data_workers
    assert process.do_work(order(protocol=LONG), with_workers, folder, stop, heard.append) == TaskResult("aborted")
    assert len(seen) >= 2
    wait_until(lambda: all(map(is_gone, seen)))
    assert process.pid is None


PARENT = """
import pickle
import sys
from fdg_plugins.executors.training_process import TrainingProcess

if __name__ == "__main__":
    work = pickle.load(sys.stdin.buffer)
    process = TrainingProcess(lambda line: None)
    process.do_work(*work, lambda: False, lambda line: print(process.pid, flush=True))
"""


@pytest.mark.slow
def test_the_death_of_the_parent_ends_the_process(config: SiteConfig, folder: Path, tmp_path: Path) -> None:
    (script := tmp_path / "parent.py").write_text(PARENT)
    with subprocess.Popen(
        [sys.executable, script], stdin=subprocess.PIPE, stdout=subprocess.PIPE, env={**os.environ, "PYTHONPATH": ROOT}
    ) as parent:
        try:
            assert parent.stdin is not None
            assert parent.stdout is not None
            pickle.dump((order(protocol=LONG), config, folder), parent.stdin)
            parent.stdin.flush()
            child = int(parent.stdout.readline())
            assert not is_gone(child)
        finally:
            parent.kill()
    wait_until(lambda: is_gone(child))


def test_end_of_run_aborts_the_task(process: TrainingProcess, config: SiteConfig, folder: Path) -> None:
    looks: list[threading.Thread] = []

    def close_from_elsewhere() -> bool:
        if not looks:
            looks.append(threading.Thread(target=process.close))
            looks[0].start()
        return False

    outcome = process.do_work(order(protocol=LONG), config, folder, close_from_elsewhere, ignore)
    looks[0].join()
    assert outcome == TaskResult("aborted")
    assert process.pid is None
