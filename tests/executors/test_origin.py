# SPDX-License-Identifier: Apache-2.0
"""Whose tasks the executor does: FLARE's own runner is real here, and so are those who call the executor otherwise."""

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from nvflare.apis.dxo import from_shareable
from nvflare.apis.event_type import EventType
from nvflare.apis.fl_constant import FLContextKey, ReservedKey, ReservedTopic, ReturnCode
from nvflare.apis.fl_context import FLContext
from nvflare.apis.shareable import ReservedHeaderKey, Shareable, make_reply
from nvflare.apis.signal import Signal
from nvflare.apis.utils.event import fire_event_to_components
from nvflare.app_common.ccwf import CyclicClientController
from nvflare.private.fed.client.client_engine_executor_spec import TaskAssignment
from nvflare.private.fed.client.client_runner import ClientRunner, ClientRunnerConfig, TaskRouter

from fdg_plugins.audit.file import AUDIT_FILE, read_audit
from fdg_plugins.executors import SiteExecutor
from fdg_plugins.executors.work import SiteTask, SiteWork
from fdg_plugins.messages import HEADER_REASON, TASK_CENSUS, TASK_EVALUATE, TASK_TRAIN
from tests.executors.test_site import Site, census_request, counted, task_request
from tests.flare_runner import SiteWorkspace, fetch, run_task, site_context

ANOTHER_WAY = "the site does only tasks that it fetched from the server itself, and this one came another way."

pytestmark = pytest.mark.usefixtures("wire")


@pytest.fixture
def photo(tmp_path: Path, data_root: Path) -> Site:
    site = Site("photo", tmp_path)
    site.configure(data_root=str(data_root), device="cpu")
    return site


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
    assert reply.get_return_code() == ReturnCode.EXECUTION_EXCEPTION
    assert reply.get_header(HEADER_REASON) == ANOTHER_WAY
    assert "DXO" not in reply
    assert done == []


# --- FLARE's runner ---


class Engine:
    """FLARE's engine at a site, whose server hands out the tasks of ``queue``."""

    def __init__(self, folder: Path, executor: SiteExecutor) -> None:
        self.workspace = SiteWorkspace(folder)
        self.handlers = [executor]
        self.queue: list[tuple[str, Shareable]] = []
        self.sent: list[Shareable] = []
        router = TaskRouter()
        router.add_executor([TASK_CENSUS, TASK_TRAIN, TASK_EVALUATE], executor)
        self.runner = ClientRunner({}, ClientRunnerConfig(router, {}, {}), "job", self)

    def register_aux_message_handler(self, topic: str, message_handle_func: Callable[..., Any]) -> None:
        pass

    def get_workspace(self) -> SiteWorkspace:
        return self.workspace

    def fire_event(self, event: str, fl_ctx: FLContext) -> None:
        fire_event_to_components(event, self.handlers, fl_ctx)

    def new_context(self) -> FLContext:
        context = site_context("photo", self.workspace)
        context.set_prop(ReservedKey.ENGINE, self, private=True, sticky=False)
        context.set_prop(FLContextKey.RUNNER, self.runner, private=True, sticky=False)
        return context

    def peer(self) -> FLContext:
        peer = FLContext()
        peer.set_prop(FLContextKey.CURRENT_RUN, "job", private=False, sticky=False)
        peer.set_prop(ReservedKey.IDENTITY_NAME, "server", private=False, sticky=False)
        return peer

    def get_task_assignment(self, fl_ctx: FLContext, timeout: float | None = None) -> TaskAssignment:
        # As FLARE's client does around the request to the server.
        fire_event_to_components(EventType.BEFORE_PULL_TASK, self.handlers, fl_ctx)
        name, data = self.queue.pop(0)
        fire_event_to_components(EventType.AFTER_PULL_TASK, self.handlers, fl_ctx)
        fl_ctx.set_peer_context(self.peer())
        return TaskAssignment(name, f"id-{len(self.queue)}", data)

    def send_aux_request(self, targets: list[str], **_: Any) -> dict[str, Shareable]:
        return {target: make_reply(ReturnCode.OK) for target in targets}

    def send_task_result(self, result: Shareable, fl_ctx: FLContext, timeout: float | None = None) -> bool:
        self.sent.append(result)
        return True

    def serve(self, task: str, data: Shareable) -> Shareable:
        """Return what the runner sends for a task that the server hands out."""
        self.queue.append((task, data))
        _, processed = self.runner.fetch_and_run_one_task(self.new_context())
        assert processed
        return self.sent[-1]

    def ask_by_message(self, task: str, data: Shareable, task_id: str = "own-id") -> Shareable:
        """Return what a participant gets that sends the runner a task itself."""
        data.set_header(ReservedHeaderKey.TASK_NAME, task)
        data.set_header(ReservedHeaderKey.TASK_ID, task_id)
        context = self.new_context()
        context.set_peer_context(self.peer())
        return self.runner._handle_do_task(ReservedTopic.DO_TASK, data, context)


@pytest.fixture
def engine(photo: Site) -> Engine:
    return Engine(photo.folder, photo.executor)


def test_what_flares_runner_fetched_is_done(engine: Engine, done: list[str]) -> None:
    assert engine.serve(TASK_CENSUS, census_request()).get_return_code() == ReturnCode.OK
    assert from_shareable(engine.serve(TASK_TRAIN, task_request())).data_kind == "WEIGHT_DIFF"
    assert done == [TASK_CENSUS, TASK_TRAIN]
    lines = [(line.task, line.stage, line.id) for line in read_audit(engine.workspace.folder / AUDIT_FILE)]
    assert [(task, stage) for task, stage, _ in lines] == [
        (task, stage) for task in (TASK_CENSUS, TASK_TRAIN) for stage in ("returned", "sent")
    ]
    assert lines[0][2] == lines[1][2] != lines[2][2] == lines[3][2]


@pytest.mark.parametrize(("task", "request_"), [(TASK_CENSUS, census_request), (TASK_TRAIN, task_request)])
def test_a_task_that_somebody_sends_the_runner_in_a_message_is_refused(
    engine: Engine, task: str, request_: Callable[[], Shareable], done: list[str]
) -> None:
    assert_refused(engine.ask_by_message(task, request_()), done)
    engine.serve(TASK_CENSUS, census_request())
    done.clear()
    assert_refused(engine.ask_by_message(task, request_()), done)


def test_a_message_with_the_id_of_the_task_at_work_is_refused_and_the_task_is_done(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine.serve(TASK_CENSUS, census_request())
    beside: list[Shareable] = []
    do_work = SiteWork.do_work

    def disturbed(self: SiteWork, *arguments: Any, **rest: Any) -> Any:
        beside.append(engine.ask_by_message(TASK_TRAIN, task_request(), "id-0"))
        return do_work(self, *arguments, **rest)

    monkeypatch.setattr(SiteWork, "do_work", disturbed)
    assert engine.serve(TASK_TRAIN, task_request()).get_return_code() == ReturnCode.OK
    assert_refused(beside[0], [])


# --- components of a job ---


def test_flares_own_client_side_controller_gets_nothing(engine: Engine, done: list[str]) -> None:
    engine.serve(TASK_CENSUS, census_request())
    done.clear()
    controller = CyclicClientController(learn_task_name=TASK_TRAIN)
    controller.learn_executor = engine.runner.find_executor(TASK_TRAIN)
    result = controller.execute_learn_task(task_request(), engine.new_context(), Signal())
    assert_refused(result, done)
    last = list(read_audit(engine.workspace.folder / AUDIT_FILE))[-1]
    assert (last.stage, last.task, last.return_code, last.tensors) == (
        "returned",
        TASK_TRAIN,
        "EXECUTION_EXCEPTION",
        (),
    )


def fetched(site: Site) -> tuple[FLContext, Shareable]:
    counted(site)
    context, data = site.context(), task_request()
    fetch(site.executor, TASK_TRAIN, data, context)
    return context, data


def test_other_data_in_the_context_of_a_fetched_task_are_refused(photo: Site, done: list[str]) -> None:
    context, data = fetched(photo)
    done.clear()
    assert_refused(photo.executor.execute(TASK_TRAIN, copy.copy(data), context, Signal()), done)


def test_a_task_is_done_once(photo: Site, done: list[str]) -> None:
    counted(photo)
    context, data = photo.context(), task_request()
    assert run_task(photo.executor, TASK_EVALUATE, data, context).get_return_code() == ReturnCode.OK
    done.clear()
    assert_refused(photo.executor.execute(TASK_EVALUATE, data, context, Signal()), done)
