# SPDX-License-Identifier: Apache-2.0
"""The executor as FLARE calls it: whose tasks it does, each answered, each process as good as another."""

import copy
import json
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from nvflare.apis.client import Client
from nvflare.apis.dxo import DataKind, MetaKey, from_shareable
from nvflare.apis.event_type import EventType
from nvflare.apis.fl_constant import EventScope, FLContextKey, ReservedKey, ReservedTopic, ReturnCode
from nvflare.apis.fl_context import FLContext
from nvflare.apis.shareable import ReservedHeaderKey, Shareable, make_reply
from nvflare.apis.signal import Signal
from nvflare.app_common.ccwf import CyclicClientController
from nvflare.private.fed.client.client_engine_executor_spec import TaskAssignment
from nvflare.private.fed.client.client_runner import ClientRunner, ClientRunnerConfig, TaskRouter

from fdg_plugins.audit.file import AUDIT_FILE, read_audit
from fdg_plugins.data.stand_in import write_stand_in
from fdg_plugins.executors import SiteExecutor
from fdg_plugins.executors.work import CENSUS_FILE, SiteTask, SiteWork
from fdg_plugins.lab.engine.local_parties import LocalSite
from fdg_plugins.messages import (
    HEADER_REASON,
    META_REPORT,
    META_REQUEST,
    META_SAMPLES,
    TASK_CENSUS,
    TASK_EVALUATE,
    TASK_STATISTICS,
    TASK_TRAIN,
    CensusReply,
    Precision,
    TrainReport,
)
from fdg_plugins.models import build_model
from fdg_plugins.testing.inputs import same_bits
from fdg_plugins.training.loop import Suited
from tests.executors.sites import PROTOCOL, Site, census_request, reason, task_request
from tests.flare_runner import fetch, run_task, workspace_of

LOOKS_OF_A_TRAINING = 1 + 2 * 3 + 1  # one batch before, three in each of two epochs, one after
NO_CENSUS = "the site has not answered the census of this job, and does no other task of it before."

pytestmark = pytest.mark.usefixtures("wire")


class CountedSignal(Signal):
    """A signal that is given from the look after ``looks`` looks on, and counts all of them."""

    def __init__(self, looks: int) -> None:
        super().__init__()
        self.looks = looks
        self.count = 0

    @property
    def triggered(self) -> bool:
        self.count += 1
        return self.count > self.looks

    @triggered.setter
    def triggered(self, value: bool) -> None:
        pass


def test_training_is_answered_with_update_report_and_number_of_samples_in_any_process(photo: Site) -> None:
    photo.count()
    dxo = from_shareable(photo.ask(TASK_TRAIN, task_request(round_number=9)))
    assert dxo.data_kind == DataKind.WEIGHT_DIFF
    expected = build_model("convnet", 7, seed=0).state_dict()
    assert {name: value.shape for name, value in dxo.data.items()} == {n: v.shape for n, v in expected.items()}
    report = TrainReport.model_validate(dxo.meta[META_REPORT])
    assert report.received is not None
    assert (report.domain, report.steps, report.received.split) == ("photo", 6, "validation")
    assert report.learning_rate == pytest.approx(0.1 * PROTOCOL.learning_rate), "of the tenth of ten rounds"
    assert dxo.meta[META_SAMPLES] == 21
    assert dxo.meta[MetaKey.INITIAL_METRICS] == {"val_accuracy": report.received.value("accuracy")}
    photo.restart()
    torch.rand(5)
    again = from_shareable(photo.ask(TASK_TRAIN, task_request(round_number=9)))
    assert same_bits(dxo.data, again.data)


def test_on_the_stand_in_its_own_protocol_counts(tmp_path: Path, photo: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FDG_CACHE", str(tmp_path / "cache"))
    few = partial(write_stand_in, images_per_class=3)
    monkeypatch.setattr("fdg_plugins.data.domains.write_stand_in", few)
    photo.configure(data_root=None)
    drawn = PROTOCOL.model_copy(update={"seed": 4})
    reply = CensusReply.model_validate(from_shareable(photo.ask(TASK_CENSUS, census_request(stand_in=drawn))).data)
    assert (reply.stand_in, reply.num_test, reply.split) == (True, 21, "pacs/90-10@4")
    accepted = photo.ask(TASK_EVALUATE, task_request(drawn, stand_in=True))
    assert accepted.get_return_code() == ReturnCode.OK
    assert "STAND-IN" in reason(photo.ask(TASK_EVALUATE, task_request(drawn)))


@pytest.mark.parametrize("looks", [0, 1, LOOKS_OF_A_TRAINING - 1])
def test_an_aborted_training_ends_at_the_very_next_batch(photo: Site, looks: int) -> None:
    photo.count()
    signal = CountedSignal(looks)
    reply = photo.ask(TASK_TRAIN, task_request(), signal)
    assert reply.get_return_code() == ReturnCode.TASK_ABORTED
    assert signal.count == looks + 1


def test_other_precision_after_the_census_is_refused(photo: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    protocol = PROTOCOL.model_copy(update={"precision": "auto"})

    def move_to(precision: Precision) -> None:
        photo.restart()
        monkeypatch.setattr("fdg_plugins.training.loop.suited_precision", lambda device: Suited(precision, ""))

    move_to("bfloat16")
    photo.ask(TASK_CENSUS, census_request(protocol))
    move_to("float32")
    told = reason(photo.ask(TASK_TRAIN, task_request(protocol)))
    assert told.startswith("precision 'auto' means float32 on this machine, but meant bfloat16")
    move_to("bfloat16")
    assert photo.ask(TASK_EVALUATE, task_request(protocol)).get_return_code() == ReturnCode.OK


@pytest.mark.parametrize("task", [TASK_STATISTICS, TASK_EVALUATE])
def test_a_task_before_the_census_of_its_own_job_is_refused(photo: Site, task: str) -> None:
    assert reason(photo.ask(task, task_request())) == NO_CENSUS
    photo.count()
    assert reason(photo.ask(task, task_request(), job="another")) == NO_CENSUS, "of the same run, which goes on in it"
    photo.ask(TASK_CENSUS, census_request(), job="another")
    assert photo.ask(TASK_EVALUATE, task_request(), job="another").get_return_code() == ReturnCode.OK
    assert reason(photo.ask(task, task_request())) == NO_CENSUS


@pytest.mark.parametrize(
    ("name", "role", "task", "what"),
    [
        *(("photo", "held_out", task, "never trains") for task in (TASK_TRAIN, TASK_STATISTICS)),
        ("photo", "held_out", TASK_EVALUATE, "is not evaluated as a source"),
        ("sketch", "source", TASK_EVALUATE, "is not evaluated as held out"),
    ],
)
def test_refused_role_has_no_task(tmp_path: Path, data_root: Path, name: str, role: str, task: str, what: str) -> None:
    site = Site(name, tmp_path, data_root=str(data_root), device="cpu", role=role)
    site.count()
    assert reason(site.ask(task, task_request())) == f"the site accepts only the role {role!r} and {what}."
    site.configure(role="source" if role == "held_out" else "held_out")
    assert site.ask(TASK_EVALUATE, task_request()).get_return_code() == ReturnCode.OK


@pytest.mark.parametrize("number", [-1, PROTOCOL.rounds + 1, "1", True])
def test_a_task_of_a_round_that_the_run_does_not_have_leaves_nothing_at_the_site(photo: Site, number: Any) -> None:
    photo.count()
    before = sorted(photo.state.iterdir())
    told = reason(photo.ask(TASK_TRAIN, task_request(round_number=number)))
    assert told == f"the task is of round {number!r}, expected 0 to {PROTOCOL.rounds}."
    assert sorted(photo.state.iterdir()) == before


@pytest.mark.parametrize(
    ("task", "kind", "request_", "told"),
    [
        (TASK_TRAIN, DataKind.COLLECTION, {}, "a COLLECTION needs ExchangeReceiveFilter in the job's site config"),
        (TASK_TRAIN, DataKind.WEIGHTS, {"exchanged": True}, "need ExchangeSendFilter at the server"),
        ("paint", DataKind.WEIGHTS, {}, "the unknown task 'paint'"),
    ],
)
def test_a_task_that_a_site_cannot_read_is_refused_with_what_the_job_lacks(
    photo: Site, task: str, kind: str, request_: dict[str, Any], told: str
) -> None:
    asked = task_request()
    asked["DXO"]["kind"] = kind
    asked["DXO"]["meta"][META_REQUEST].update(request_)
    assert told in reason(photo.ask(task, asked))


@pytest.mark.parametrize(("package", "is_refused"), [("fdg-plugins", True), ("nvflare", True), ("torch", False)])
def test_a_site_that_comes_back_does_no_task_with_other_code(photo: Site, package: str, is_refused: bool) -> None:
    photo.count()
    path = photo.state / CENSUS_FILE
    written = json.loads(path.read_text())
    path.write_text(json.dumps({**written, "versions": {**written["versions"], package: "0.0.1"}}))
    photo.restart()
    answer = photo.ask(TASK_EVALUATE, task_request())
    assert (answer.get_return_code() != ReturnCode.OK) is is_refused


@pytest.mark.parametrize("event", [EventType.ABORT_TASK, EventType.END_RUN])
@pytest.mark.parametrize(("scope", "ends"), [(EventScope.LOCAL, True), (EventScope.FEDERATION, False)])
def test_an_event_that_another_participant_sent_ends_nothing(photo: Site, event: str, scope: str, ends: bool) -> None:
    closed: list[None] = []
    photo.executor._process = SimpleNamespace(close=lambda: closed.append(None))  # type: ignore[assignment]
    context = FLContext()
    context.set_prop(FLContextKey.EVENT_SCOPE, scope, private=True, sticky=False)
    photo.executor.handle_event(event, context)
    assert bool(closed) is ends


# --- whose tasks it does: FLARE's own runner is real here, and so are those who call the executor otherwise ---


@pytest.fixture
def done(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The tasks on which the site began to work."""
    tasks: list[str] = []
    do_work = SiteWork.do_work

    def noting(self: SiteWork, order: SiteTask, *arguments: Any, **rest: Any) -> Any:
        tasks.append(order.task)
        return do_work(self, order, *arguments, **rest)

    monkeypatch.setattr(SiteWork, "do_work", noting)
    return tasks


def assert_refused(reply: Shareable, done: list[str]) -> None:
    assert "this one came another way" in reason(reply)
    assert done == []


class Engine(LocalSite):
    """FLARE's runner at a site, whose server hands out the tasks of ``queue`` and keeps what is ``sent``."""

    def __init__(self, folder: Path, executor: SiteExecutor) -> None:
        self.queue: list[tuple[str, Shareable]] = []
        self.sent: list[Shareable] = []
        server: Any = SimpleNamespace(
            hand_out=self._hand_out,
            take_in=lambda client, result, _: self.sent.append(result),
            answer=lambda *_: make_reply(ReturnCode.OK),
        )
        router = TaskRouter()
        router.add_executor([TASK_CENSUS, TASK_TRAIN, TASK_EVALUATE], executor)
        made, config = SimpleNamespace(handlers=[executor], components={}), ClientRunnerConfig(router, {}, {})

        def runner(_: object, job: str, engine: LocalSite) -> ClientRunner:
            return ClientRunner({}, config, job, engine)

        super().__init__(server, None, "photo", "job", workspace_of(folder), made, {}, runner)

    def new_context(self) -> FLContext:
        context = super().new_context()
        context.set_prop(FLContextKey.RUNNER, self.runner, private=True, sticky=False)
        return context

    def peer(self) -> FLContext:
        peer = FLContext()
        peer.set_prop(FLContextKey.CURRENT_RUN, "job", private=False, sticky=False)
        peer.set_prop(ReservedKey.IDENTITY_NAME, "server", private=False, sticky=False)
        return peer

    def _hand_out(self, client: Client, peer: FLContext) -> tuple[TaskAssignment, FLContext]:
        name, data = self.queue.pop(0)
        return TaskAssignment(name, f"id-{len(self.queue)}", data), self.peer()

    def serve(self, task: str, data: Shareable) -> Shareable:
        self.queue.append((task, data))
        _, processed = self.runner.fetch_and_run_one_task(self.new_context())
        assert processed
        return self.sent[-1]

    def ask_by_message(self, task: str, data: Shareable, task_id: str = "own-id") -> Shareable:
        """Return what a participant gets that sends the runner a task itself."""
        data.set_header(ReservedHeaderKey.TASK_NAME, task)
        data.set_header(ReservedHeaderKey.TASK_ID, task_id)
        return self.answer(ReservedTopic.DO_TASK, data, self.peer())


@pytest.fixture
def engine(photo: Site) -> Engine:
    return Engine(photo.folder, photo.executor)


def test_what_flares_runner_fetched_is_done_and_what_a_message_asks_is_refused(
    engine: Engine, photo: Site, done: list[str]
) -> None:
    assert_refused(engine.ask_by_message(TASK_CENSUS, census_request()), done)
    assert engine.serve(TASK_CENSUS, census_request()).get_return_code() == ReturnCode.OK
    assert from_shareable(engine.serve(TASK_TRAIN, task_request())).data_kind == "WEIGHT_DIFF"
    assert done == [TASK_CENSUS, TASK_TRAIN]
    done.clear()
    assert_refused(engine.ask_by_message(TASK_TRAIN, task_request()), done)
    lines = [(line.task, line.stage, line.id) for line in read_audit(photo.folder / AUDIT_FILE)]
    both = ("returned", "sent")
    assert [line[:2] for line in lines[2:6]] == [(task, stage) for task in (TASK_CENSUS, TASK_TRAIN) for stage in both]
    assert lines[2][2] == lines[3][2] != lines[4][2] == lines[5][2]


def test_message_with_the_id_of_a_task_is_refused(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    engine.serve(TASK_CENSUS, census_request())
    beside: list[Shareable] = []
    do_work = SiteWork.do_work

    def disturbed(self: SiteWork, *arguments: Any, **rest: Any) -> Any:
        beside.append(engine.ask_by_message(TASK_TRAIN, task_request(), "id-0"))
        return do_work(self, *arguments, **rest)

    monkeypatch.setattr(SiteWork, "do_work", disturbed)
    assert engine.serve(TASK_TRAIN, task_request()).get_return_code() == ReturnCode.OK
    assert_refused(beside[0], [])


def test_flares_own_client_side_controller_gets_nothing(engine: Engine, photo: Site, done: list[str]) -> None:
    controller = CyclicClientController(learn_task_name=TASK_TRAIN)
    controller.learn_executor = engine.runner.find_executor(TASK_TRAIN)
    assert_refused(controller.execute_learn_task(task_request(), engine.new_context(), Signal()), done)
    last = read_audit(photo.folder / AUDIT_FILE)[-1]
    assert (last.stage, last.task, last.tensors) == ("returned", TASK_TRAIN, ())


def test_a_fetched_task_is_done_once_and_with_its_own_data(photo: Site, done: list[str]) -> None:
    photo.count()
    done.clear()
    context, data = photo.context(), task_request()
    fetch(photo.executor, TASK_EVALUATE, data, context)
    assert_refused(photo.executor.execute(TASK_EVALUATE, copy.copy(data), context, Signal()), done)
    assert HEADER_REASON not in run_task(photo.executor, TASK_EVALUATE, data, context)["__headers__"]
    done.clear()
    assert_refused(photo.executor.execute(TASK_EVALUATE, data, context, Signal()), done)
