# SPDX-License-Identifier: Apache-2.0
"""The training process: the bits of work done in place, one task lost when it dies, and never a process left behind."""

import contextlib
import itertools
import json
import logging
import math
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import psutil
import pytest
import torch
from nvflare.apis.dxo import from_shareable
from nvflare.apis.event_type import EventType
from nvflare.apis.fl_constant import ReservedKey, ReturnCode

from fdg_plugins.data import SharedDomains
from fdg_plugins.executors import isolation
from fdg_plugins.executors.counted import CENSUS_FILE
from fdg_plugins.executors.dialogue import pack_line, pack_order, pack_outcome, read_answer, read_order
from fdg_plugins.executors.frames import MAGIC, MAX_HEADER, MAX_PAYLOAD, PREFIX, Frame, FrameError, FrameReader, pack
from fdg_plugins.executors.isolation import TrainingProcess, reason_of_end
from fdg_plugins.executors.work import SiteTask, SiteWork, TaskResult
from fdg_plugins.messages import META_REPORT, TASK_CENSUS, TASK_EVALUATE, TASK_PROBE, TASK_TRAIN, TrainReport
from fdg_plugins.models import build_model
from fdg_plugins.settings.site_config import SiteConfig
from fdg_plugins.testing.inputs import same_bits
from tests.executors.test_site import PROTOCOL, Site, census_request, counted, task_request
from tests.flare_runner import run_task

SOON_S = 120  # for what takes no time at all, on a machine that has none to give
LONG = PROTOCOL.model_copy(update={"local_epochs": 1000})


def never() -> bool:
    return False


def ignore(line: str) -> None:
    pass


def census_order(site: str = "photo") -> SiteTask:
    values = PROTOCOL.model_dump(mode="json")
    return SiteTask(TASK_CENSUS, site, {"protocol": values, "stand_in_protocol": values, "run": "run-1"})


def order(task: str = TASK_TRAIN, protocol: Any = PROTOCOL, site: str = "photo", classes: int = 7) -> SiteTask:
    request = {"protocol": protocol.model_dump(mode="json"), "stand_in": False, "run": "run-1"}
    state = build_model("convnet", classes, seed=0).state_dict()
    return SiteTask(task, site, request, round_number=2, state=dict(state))


@pytest.fixture
def config(data_root: Path) -> SiteConfig:
    return SiteConfig(data_root=data_root, device="cpu", threads=1)


@pytest.fixture
def folder(tmp_path: Path, config: SiteConfig) -> Path:
    """The state of a run whose census is done."""
    assert SiteWork().do_work(census_order(), config, tmp_path, never, ignore).kind == "ok"
    return tmp_path


def test_each_of_many_sites_computes_with_its_own_threads(tmp_path: Path, config: SiteConfig) -> None:
    """The sessions of all of them stay open, so none is opened again before its second task."""
    before = torch.get_num_threads()
    own = {"photo": 1, "cartoon": before + 2, "sketch": None}
    work = SiteWork(SharedDomains())
    try:
        for _ in range(2):
            for site, threads in own.items():
                chosen = config.model_copy(update={"threads": threads})
                assert work.do_work(census_order(site), chosen, tmp_path / site, never, ignore).kind == "ok"
                assert torch.get_num_threads() == (threads or before), site
    finally:
        torch.set_num_threads(before)


@pytest.fixture(scope="module")
def printed() -> list[str]:
    """What the training process of these tests printed."""
    return []


@pytest.fixture(scope="module")
def process(printed: list[str]) -> Iterator[TrainingProcess]:
    """One training process for all tests, since its start takes seconds; a test that ends it costs another start."""
    process = TrainingProcess(printed.append)
    yield process
    process.close()


def without_seconds(outcome: TaskResult) -> Any:
    return {**json.loads(json.dumps(outcome.value))["report"], "seconds": 0}


def assert_same_training(one: TaskResult, other: TaskResult) -> None:
    assert (one.kind, other.kind) == ("ok", "ok"), (one.reason, other.reason)
    assert without_seconds(one) == without_seconds(other)
    assert one.tensors["update"].keys() == other.tensors["update"].keys()
    for name, value in one.tensors["update"].items():
        assert value.dtype == other.tensors["update"][name].dtype
        assert torch.equal(value, other.tensors["update"][name]), name


def is_gone(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE  # an orphan that nobody has fetched yet
    except psutil.NoSuchProcess:
        return True


def children_of(pid: int) -> list[psutil.Process]:
    """Return the children of a process, none if it is gone itself."""
    try:
        return psutil.Process(pid).children()
    except psutil.NoSuchProcess:
        return []


def wait_until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + SOON_S
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


# --- the same work --------------------------------------------------------------------------------


@pytest.mark.slow
def test_the_work_gives_the_same_bits_lines_and_sentences_in_another_process(
    process: TrainingProcess, config: SiteConfig, tmp_path: Path
) -> None:
    here, there = tmp_path / "here", tmp_path / "there"
    outcomes: list[list[TaskResult]] = []
    lines: list[list[str]] = []
    orders = [
        census_order(),
        order(),
        order(TASK_EVALUATE),
        order(classes=8),
        order(TASK_PROBE, PROTOCOL.model_copy(update={"objective": {"name": "iir"}})),
        census_order("sketch"),
        order(site="sketch"),
    ]
    for worker, folder in ((SiteWork(), here), (process, there)):
        said: list[str] = []
        outcomes.append([worker.do_work(one, config, folder, never, said.append) for one in orders])
        lines.append(said)
    in_place, apart = outcomes
    assert in_place[0].value == apart[0].value
    assert (here / CENSUS_FILE).read_bytes() == (there / CENSUS_FILE).read_bytes()
    assert_same_training(in_place[1], apart[1])
    assert in_place[2] == apart[2]
    assert apart[3].kind == apart[6].kind == "failed"
    assert apart[4].value == in_place[4].value == {"count": 21}
    assert apart[4].tensors["report"].keys() == in_place[4].tensors["report"].keys() != set()
    assert all(
        torch.equal(one, apart[4].tensors["report"][name]) for name, one in in_place[4].tensors["report"].items()
    )
    assert in_place[3] == apart[3], "an error of ours crosses word for word"
    assert apart[3].reason.startswith("parameter 'classifier.bias' of the model received has shape ")
    assert (apart[6].reason, apart[6].stand_in) == ("domain 'sketch' is held out in this run and never trains.", False)
    assert lines[0] == lines[1]
    trained = [line.partition(" | train loss ")[0] for line in lines[1] if "epoch" in line]
    assert trained == ["site photo | round 3/10 | epoch 1/2", "site photo | round 3/10 | epoch 2/2"]


def test_the_process_outlives_its_tasks_and_the_thread_that_asked_for_the_first(
    process: TrainingProcess, config: SiteConfig, folder: Path
) -> None:
    process.close()
    outcomes: list[TaskResult] = []
    asking = threading.Thread(
        target=lambda: outcomes.append(process.do_work(order(TASK_EVALUATE), config, folder, never, ignore))
    )
    asking.start()
    asking.join()
    first = process.pid
    time.sleep(0.2)
    outcomes.append(process.do_work(order(TASK_EVALUATE), config, folder, never, ignore))
    assert outcomes[0] == outcomes[1]
    assert outcomes[0].kind == "ok"
    assert first is not None
    assert process.pid == first
    assert str(folder) in psutil.Process(first).cmdline(), "whoever looks at the processes sees whose it is"


@pytest.mark.slow
def test_the_executor_answers_the_same_and_ends_the_process_with_the_run(
    tmp_path: Path, data_root: Path, wire: None, caplog: pytest.LogCaptureFixture
) -> None:
    replies = []
    site = Site("photo", tmp_path)
    for isolate in (False, True):
        site.configure(data_root=str(data_root), device="cpu", threads=1, isolate=isolate)
        census = counted(site)
        with caplog.at_level(logging.INFO):
            replies.append((census, site.ask(TASK_TRAIN, task_request()), site.ask(TASK_EVALUATE, task_request())))
    (census, trained, judged), (census_apart, trained_apart, judged_apart) = replies
    assert census == census_apart
    assert from_shareable(judged).data == from_shareable(judged_apart).data
    one, other = from_shareable(trained), from_shareable(trained_apart)
    assert same_bits(one.data, other.data)
    assert one.meta.keys() == other.meta.keys()
    reports = [
        TrainReport.model_validate(dxo.meta[META_REPORT]).model_copy(update={"seconds": 0}) for dxo in (one, other)
    ]
    assert reports[0] == reports[1]
    assert {name: str(trained.get_header(name)) for name in trained.get("__headers__", {})} == {
        name: str(trained_apart.get_header(name)) for name in trained_apart.get("__headers__", {})
    }
    said = [record.getMessage() for record in caplog.records if "| epoch 1/2 |" in record.getMessage()]
    assert len(said) == 2

    assert site.executor._process is not None
    pid = site.executor._process.pid
    assert pid is not None
    assert not is_gone(pid)
    site.executor.handle_event(EventType.END_RUN, site.context())
    assert site.executor._process.pid is None
    assert is_gone(pid)


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
    site = Site("photo", tmp_path)
    site.configure(data_root=str(data_root))
    context = site.context()
    context.set_prop(ReservedKey.RUN_NUM, job, private=False, sticky=False)
    monkeypatch.delenv("FDG_ISOLATE")
    reply = run_task(site.executor, TASK_CENSUS, census_request(), context)
    assert reply.get_return_code() == ReturnCode.TASK_ABORTED
    monkeypatch.setenv("FDG_ISOLATE", other)
    run_task(site.executor, TASK_CENSUS, census_request(), context)
    assert done == [by_default, {"no": "in place", "yes": "apart"}[other]]


# --- death ------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize(
    ("how", "text"),
    [
        (signal.SIGSEGV, "the training process died of SIGSEGV."),
        (signal.SIGKILL, "the training process was killed (SIGKILL), perhaps out of memory."),
    ],
)
def test_a_death_in_training_costs_one_task_and_the_next_gives_the_bits_it_would_have_given(
    process: TrainingProcess,
    config: SiteConfig,
    folder: Path,
    printed: list[str],
    how: signal.Signals,
    text: str,
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
    assert_same_training(after, SiteWork().do_work(order(), config, folder, never, ignore))


@pytest.mark.slow
def test_a_data_worker_that_dies_costs_one_task(process: TrainingProcess, config: SiteConfig, folder: Path) -> None:
    heard: list[str] = []

    def kill_data_workers() -> bool:
        for worker in children_of(process.pid or 0) if heard else []:
            with contextlib.suppress(psutil.NoSuchProcess):
                worker.send_signal(signal.SIGSEGV)
        return False

    with_workers = config.model_copy(update={"workers": 1})
    outcome = process.do_work(order(protocol=LONG), with_workers, folder, kill_data_workers, heard.append)
    assert outcome.kind == "failed"
    # A data worker dies in its own time: whoever sees it first (loader, queue, signal handler) has words of its own.
    assert outcome.reason
    assert process.pid is None, "after an error that nobody foresaw, the next task gets a new process"


@pytest.mark.slow
def test_an_abort_ends_the_process_and_its_data_workers_at_once(
    process: TrainingProcess, config: SiteConfig, folder: Path
) -> None:
    heard: list[str] = []
    seen: set[int] = set()
    asked: list[float] = []

    def stop_once_there_are_data_workers() -> bool:
        assert process.pid is not None
        workers = {worker.pid for worker in children_of(process.pid)} if heard else set()
        seen.update({process.pid, *workers} if workers else set())
        if seen:
            asked.append(time.monotonic())
        return bool(seen)

    with_workers = config.model_copy(update={"workers": 1})
    outcome = process.do_work(
        order(protocol=LONG), with_workers, folder, stop_once_there_are_data_workers, heard.append
    )
    assert outcome == TaskResult("aborted")
    assert time.monotonic() - asked[0] < SOON_S
    assert len(asked) == 1
    assert len(seen) >= 2
    wait_until(lambda: all(map(is_gone, seen)))
    assert process.pid is None


PARENT = """
import sys
from fdg_plugins.executors.dialogue import read_order
from fdg_plugins.executors.frames import FrameReader, read_frame
from fdg_plugins.executors.isolation import TrainingProcess

work = read_order(read_frame(0, FrameReader()))
process = TrainingProcess(lambda line: None)
process.do_work(*work, lambda: False, lambda line: print(process.pid, flush=True))
"""


@pytest.mark.slow
def test_the_death_of_the_parent_ends_the_process(config: SiteConfig, folder: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-P", "-c", PARENT], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as parent:
        try:
            assert parent.stdin is not None
            assert parent.stdout is not None
            parent.stdin.write(b"".join(pack_order(order(protocol=LONG), config, folder)))
            parent.stdin.flush()
            child = int(parent.stdout.readline())
            assert not is_gone(child)
        finally:
            parent.kill()
    wait_until(lambda: is_gone(child))


def test_an_end_of_the_run_in_the_middle_of_a_task_aborts_it(planted: Callable[[str], TrainingProcess]) -> None:
    process = planted("time.sleep(600)")
    looks: list[threading.Thread] = []

    def close_from_elsewhere() -> bool:
        if not looks:
            looks.append(threading.Thread(target=process.close))
            looks[0].start()
        return False

    outcome = process.do_work(census_order(), SiteConfig(), Path(), close_from_elsewhere, ignore)
    looks[0].join()
    assert outcome == TaskResult("aborted")
    assert process.pid is None


# --- what a process may do with its pipes; planted ones start at once -----------------------------------


@pytest.fixture
def planted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], TrainingProcess]]:
    """Training processes that do something else instead, with ``answers`` to write to."""
    processes: list[TrainingProcess] = []

    def plant(code: str, log: Callable[[str], None] = ignore) -> TrainingProcess:
        head = "import os, signal, sys, time\nanswers = int(sys.argv[2])\n"
        (tmp_path / "planted_worker.py").write_text(head + code)
        processes.append(TrainingProcess(log))
        return processes[-1]

    monkeypatch.setattr(isolation, "WORKER", "planted_worker")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")
    yield plant
    for process in processes:
        process.close()


GOOD = b"".join(pack_outcome(TaskResult("ok", {"count": 3}, stand_in=True)))


def written(content: bytes) -> str:
    return f"os.write(answers, {content!r})\ntime.sleep(600)"


@pytest.mark.parametrize(
    ("code", "text"),
    [
        ("sys.exit(3)", "the training process ended with exit code 3."),
        ("os._exit(0)", "the training process ended with exit code 0."),
        ("raise RuntimeError('at the start')", "the training process ended with exit code 1."),
        ("os.kill(os.getpid(), signal.SIGABRT)", "the training process died of SIGABRT."),
        ("os.kill(os.getpid(), 40)", "the training process died of signal 40."),
        (f"os.write(answers, {GOOD[:30]!r})", "the training process ended with exit code 0."),
        (written(b"Loading weights\n"), "what came through the pipe is not a frame; is something else writing to it?"),
        (written(b"L"), "what came through the pipe is not a frame; is something else writing to it?"),
        (
            written(PREFIX.pack(MAGIC, MAX_HEADER + 1, 0)),
            f"a frame's header has {MAX_HEADER + 1} bytes, expected at most {MAX_HEADER}.",
        ),
        (
            written(PREFIX.pack(MAGIC, 2, MAX_PAYLOAD + 1)),
            f"a frame's payload has {MAX_PAYLOAD + 1} bytes, expected at most {MAX_PAYLOAD}.",
        ),
        (written(PREFIX.pack(MAGIC, 2, 1) + b"{}x"), "a frame cannot be read (SafetensorError)."),
        (
            written(b"".join(pack({"sing": "la"}))),
            "the training process sent a frame that is neither a line for the log nor an outcome.",
        ),
    ],
)
def test_a_process_that_dies_or_talks_nonsense_is_one_sentence_and_is_gone(
    planted: Callable[[str], TrainingProcess], code: str, text: str
) -> None:
    process = planted(code)
    outcome = process.do_work(census_order(), SiteConfig(), Path(), never, ignore)
    assert outcome == TaskResult("failed", reason=text, public=text)
    assert process.pid is None


def test_what_a_process_prints_goes_to_the_log_and_what_it_says_is_heard_in_order(
    planted: Callable[..., TrainingProcess],
) -> None:
    said: list[str] = []
    printed: list[str] = []
    frames = b"".join(part for at in range(100) for part in pack_line(f"line {at}")) + GOOD
    code = f"print('a library')\nos.write(2, b'a warning')\nos.write(answers, {frames!r})\ntime.sleep(600)"
    process = planted(code, printed.append)
    outcome = process.do_work(census_order(), SiteConfig(), Path(), never, said.append)
    assert outcome == TaskResult("ok", {"count": 3}, stand_in=True)
    assert said == [f"line {at}" for at in range(100)]
    process.close()
    assert printed == ["a library", "a warning"]


def test_an_order_that_nobody_reads_can_be_aborted_and_ends_with_its_reader(
    planted: Callable[[str], TrainingProcess],
) -> None:
    large = SiteTask(TASK_TRAIN, "photo", None, state={"weight": torch.zeros(10**6)})
    looks = itertools.count(1)
    process = planted("time.sleep(600)")
    outcome = process.do_work(large, SiteConfig(), Path(), lambda: next(looks) > 5, ignore)
    assert outcome.kind == "aborted"
    outcome = planted("os.read(0, 100)\nsys.exit(5)").do_work(large, SiteConfig(), Path(), never, ignore)
    assert outcome.reason == "the training process ended with exit code 5."


def test_a_process_that_died_between_two_tasks_is_replaced_without_a_loss(
    planted: Callable[[str], TrainingProcess],
) -> None:
    process = planted(f"os.write(answers, {GOOD!r})")
    assert process.do_work(census_order(), SiteConfig(), Path(), never, ignore).kind == "ok"
    first = process.pid
    assert first is not None
    wait_until(lambda: is_gone(first))
    assert process.do_work(census_order(), SiteConfig(), Path(), never, ignore).kind == "ok"
    assert process.pid != first


def test_a_process_that_cannot_be_started_is_one_sentence(
    planted: Callable[[str], TrainingProcess], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "executable", "/nowhere/python")
    outcome = planted("").do_work(census_order(), SiteConfig(), Path(), never, ignore)
    assert outcome.reason == "the training process could not be started: No such file or directory."


def test_a_process_that_cannot_be_ended_is_named_as_such() -> None:
    assert reason_of_end(None).startswith("the training process cannot be ended")


# --- frames -----------------------------------------------------------------------------------------


def frame_of(parts: list[bytes], size: int = 10**9) -> Frame:
    """Return the frame as it arrives in pieces of ``size`` bytes."""
    content, reader = b"".join(parts), FrameReader()
    for start in range(0, len(content), size):
        assert reader.next_frame() is None
        reader.feed(content[start : start + size])
    frame = reader.next_frame()
    assert frame is not None
    assert reader.next_frame() is None
    return frame


@pytest.mark.parametrize("size", [1, 7, 1000])
def test_a_frame_arrives_with_its_bits_in_pieces_of_any_size(size: int) -> None:
    whole = torch.arange(12.0).reshape(3, 4)
    state = {
        "scalar": torch.tensor(3),
        "empty": torch.zeros(0, 2),
        "nan": torch.tensor([math.nan, -0.0, math.inf]),
        "bfloat16": torch.tensor([1.5], dtype=torch.bfloat16),
        "transposed": whole.T,
        "row": whole[0],
        "same row": whole[0],
        "Grüße/state": torch.tensor([True]),
        "parameter": torch.nn.Parameter(torch.ones(2)),
    }
    frame = frame_of(pack({"value": [1, None, "ü", 0.1]}, {"state": state, "received": {}}), size)
    assert frame.header == {"value": [1, None, "ü", 0.1]}
    assert frame.groups["received"] == {}
    assert frame.groups["state"].keys() == state.keys()
    for name, value in state.items():
        arrived = frame.groups["state"][name]
        assert (arrived.dtype, arrived.shape) == (value.dtype, value.shape)
        assert torch.equal(arrived.nan_to_num(7), value.detach().nan_to_num(7)) if value.is_floating_point() else True


def test_orders_and_outcomes_arrive_as_they_were_sent() -> None:
    config = SiteConfig(data_root=Path("/data"), part="1/2", allowed_reports=("gap",), workers=3, isolate=True)
    sent = SiteTask(TASK_TRAIN, "photo", {"run": "r"}, 4, {"a": torch.ones(2)}, {"b": torch.zeros(1)})
    received, config_received, folder = read_order(frame_of(pack_order(sent, config, Path("/state"))))
    assert (config_received, folder) == (config, Path("/state"))
    assert (received.task, received.site, received.request, received.round_number) == (
        "train",
        "photo",
        {"run": "r"},
        4,
    )
    assert torch.equal(received.state["a"], sent.state["a"])
    assert received.received.keys() == {"b"}
    failed = TaskResult("failed", reason="it is so.", public="it is.", trace="a\nb", stand_in=True)
    assert read_answer(frame_of(pack_outcome(failed))) == failed
    lost = read_answer(frame_of(pack_outcome(TaskResult("ok", {"loss": math.nan, "best": math.inf}))))
    assert isinstance(lost, TaskResult)
    assert math.isnan(lost.value["loss"])
    assert lost.value["best"] == math.inf


def raw(head: Any, tensors: bytes | None = None) -> list[bytes]:
    payload = pack({})[1] if tensors is None else tensors
    text = head if isinstance(head, bytes) else json.dumps(head).encode()
    return [PREFIX.pack(MAGIC, len(text), len(payload)) + text, payload]


@pytest.mark.parametrize(
    ("parts", "problem"),
    [
        ([b"GET / HTTP/1.1\r\n"], "not a frame"),
        (raw(b"{"), "cannot be read"),
        (raw(b"[" * 200_000), "cannot be read"),
        (raw([]), "not of the expected form"),
        (raw({"header": 1, "tensors": {}}), "not of the expected form"),
        (raw({"header": {}, "tensors": {"state": [1]}}), "not of the expected form"),
        (raw({"header": {}, "tensors": {"state": ["a"]}}), "not those that its header names"),
        (raw({"header": {}, "tensors": {}}, b"\xff" * 16), "cannot be read"),
        (raw({"header": {}, "tensors": {}}, b""), "cannot be read"),
    ],
)
def test_bytes_that_are_no_frame_are_refused_in_one_sentence(parts: list[bytes], problem: str) -> None:
    with pytest.raises(FrameError, match=problem) as caught:
        frame_of(parts)
    assert "\n" not in str(caught.value)
