# SPDX-License-Identifier: Apache-2.0
"""Requests for tasks that wait at the server: who waits has the next task at once, and nobody waits for ever."""

import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import pytest
from nvflare.apis.client import Client
from nvflare.apis.fl_constant import FLContextKey
from nvflare.apis.fl_context import FLContext
from nvflare.apis.shareable import Shareable
from nvflare.apis.signal import Signal
from nvflare.private.defs import SpecialTaskName

from fdg_plugins.controllers.messenger import Messenger
from fdg_plugins.flare.held_requests import GRACE_S, HeldRequests
from tests.controllers.federation_stubs import Engine, Line, context_of

LONG_S = 30.0  # no test takes as long, unless something waits that must not
NO_TASK = (SpecialTaskName.TRY_AGAIN, "", Shareable())
TASK = ("train", "1", Shareable())


class Runner:
    """FLARE's server runner, as far as requests go: tasks by the name of the site that they are for."""

    def __init__(self) -> None:
        self.tasks: dict[str, tuple[str, str, Shareable]] = {}
        self.asked: list[str] = []

    def process_task_request(self, client: Client, fl_ctx: FLContext) -> tuple[str, str, Shareable]:
        self.asked.append(client.name)
        return self.tasks.get(client.name, NO_TASK)

    def process_submission(self, client: Client, task_name: str, task_id: str, result: Any, fl_ctx: FLContext) -> None:
        """Answers are not the matter here."""


class Server:
    """A runner whose requests are held, and sites that ask it, each in a thread of its own."""

    def __init__(self, pool: ThreadPoolExecutor, longest: float = LONG_S, most: int = 8) -> None:
        self.runner, self.held = Runner(), HeldRequests(longest, most)
        self.held.begin(self.runner)
        self._pool = pool

    def ask(self, site: str) -> "Future[Any]":
        """Let a site ask, and return when its request is held or answered."""
        held = self.held.held
        answer = self._pool.submit(self.runner.process_task_request, Client(site, ""), FLContext())
        while self.held.held == held and not answer.done():
            time.sleep(0.001)
        return answer

    def offer(self) -> None:
        """Say that there are the runner's tasks."""
        self.held.announce(self.runner.tasks or ())
        self.held.offer()


@pytest.fixture
def pool() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(8) as threads:
        yield threads


def test_a_task_that_is_there_is_given_at_once(pool: ThreadPoolExecutor) -> None:
    server = Server(pool)
    server.runner.tasks["photo"] = TASK
    assert server.ask("photo").result(LONG_S / 2) is TASK
    assert server.runner.asked == ["photo"]


def test_every_site_that_waits_has_its_task_as_soon_as_there_is_one(pool: ThreadPoolExecutor) -> None:
    server = Server(pool)
    answers = [server.ask(site) for site in ("photo", "sketch")]
    assert not any(answer.done() for answer in answers)
    server.runner.tasks = {"photo": TASK, "sketch": TASK}
    server.offer()
    assert [answer.result(LONG_S / 2) for answer in answers] == [TASK, TASK]
    assert len(server.runner.asked) == 4  # each looked twice: nobody asks again and again


def test_a_task_for_another_site_leaves_a_site_waiting_for_its_own(pool: ThreadPoolExecutor) -> None:
    server = Server(pool)
    photo, sketch = server.ask("photo"), server.ask("sketch")
    server.runner.tasks["sketch"] = TASK
    server.offer()
    assert sketch.result(LONG_S / 2) is TASK
    time.sleep(2 * GRACE_S)
    assert not photo.done()
    server.runner.tasks = {"photo": TASK}
    server.offer()
    assert photo.result(LONG_S / 2) is TASK


def test_a_task_that_comes_while_the_runner_looks_is_not_missed() -> None:
    runner, held = Runner(), HeldRequests(LONG_S)
    look = runner.process_task_request

    def slow_look(client: Client, fl_ctx: FLContext) -> tuple[str, str, Shareable]:
        found = look(client, fl_ctx)
        if len(runner.asked) == 1:  # it has found nothing, and now there is something
            runner.tasks["photo"] = TASK
            held.announce(["photo"])
            held.offer()
        return found

    runner.process_task_request = slow_look  # type: ignore[method-assign]
    held.begin(runner)
    started = time.monotonic()
    assert runner.process_task_request(Client("photo", ""), FLContext()) is TASK
    assert time.monotonic() - started < LONG_S / 2


def test_nobody_is_held_for_long_while_a_task_waits_for_its_site(pool: ThreadPoolExecutor) -> None:
    server = Server(pool)
    waiting = server.ask("photo")
    server.runner.tasks["sketch"] = TASK
    server.offer()  # and the sketches' site, which needs the place of the photographs', does not come
    assert waiting.result(LONG_S / 2) is NO_TASK
    assert server.ask("photo").result(LONG_S / 2) is NO_TASK
    assert server.ask("sketch").result(LONG_S / 2) is TASK
    held = server.ask("photo")
    time.sleep(2 * GRACE_S)
    assert not held.done()
    server.held.end()


def test_a_site_that_fetches_its_task_before_all_are_sent_keeps_nobody_from_waiting(pool: ThreadPoolExecutor) -> None:
    server = Server(pool)
    server.held.announce(["sketch"])
    server.runner.tasks["sketch"] = TASK
    assert server.ask("sketch").result(LONG_S / 2) is TASK
    server.held.offer()
    held = server.ask("photo")
    time.sleep(2 * GRACE_S)
    assert not held.done()
    server.held.end()


def test_tasks_that_nobody_fetched_and_that_are_over_keep_nobody_from_waiting(pool: ThreadPoolExecutor) -> None:
    server = Server(pool)
    server.held.announce(["sketch"])
    server.held.offer()
    server.held.withdraw()
    held = server.ask("photo")
    time.sleep(2 * GRACE_S)
    assert not held.done()
    server.held.end()


def test_without_a_task_a_site_is_told_so_in_the_end_and_not_before() -> None:
    runner = Runner()
    HeldRequests(longest=0.2).begin(runner)
    started = time.monotonic()
    assert runner.process_task_request(Client("photo", ""), FLContext()) is NO_TASK
    assert 0.2 <= time.monotonic() - started < LONG_S
    assert runner.asked == ["photo"]


def test_one_more_than_may_wait_is_answered_at_once_and_leaves_its_place_to_others(pool: ThreadPoolExecutor) -> None:
    server = Server(pool, most=1)
    first = server.ask("photo")
    assert server.ask("sketch").result(LONG_S / 2) is NO_TASK
    server.runner.tasks["photo"] = TASK
    server.offer()
    assert first.result(LONG_S / 2) is TASK
    later = server.ask("sketch")
    time.sleep(2 * GRACE_S)
    assert not later.done()
    server.held.end()
    assert later.result(LONG_S / 2) is NO_TASK


def test_a_request_that_fails_leaves_its_place_to_others(pool: ThreadPoolExecutor) -> None:
    server = Server(pool, most=1)
    waiting = server.ask("photo")
    server.runner.tasks = None  # type: ignore[assignment]
    server.offer()
    with pytest.raises(AttributeError):
        waiting.result(LONG_S / 2)
    server.runner.tasks = {}
    later = server.ask("photo")
    time.sleep(2 * GRACE_S)
    assert not later.done()
    server.held.end()


def test_after_the_end_nobody_waits(pool: ThreadPoolExecutor) -> None:
    server = Server(pool)
    waiting = server.ask("photo")
    server.held.end()
    assert waiting.result(LONG_S / 2) is NO_TASK
    assert server.ask("sketch").result(LONG_S / 2) is NO_TASK


@pytest.mark.parametrize("name", [SpecialTaskName.END_RUN, "train"])
def test_any_other_answer_is_passed_on_as_it_is(name: str) -> None:
    runner, answer = Runner(), (name, "", None)
    runner.tasks["photo"] = answer
    HeldRequests(LONG_S).begin(runner)
    assert runner.process_task_request(Client("photo", ""), FLContext()) is answer


class Holding(Messenger):
    """A messenger whose workflow waits until a site waits for it, and then asks that site."""

    def __init__(self, runner: Runner, pool: ThreadPoolExecutor) -> None:
        super().__init__(poll=0.001)
        self.runner, self.pool = runner, pool
        self.answers: list[object] = []

    def run(self) -> None:
        answer = self.pool.submit(self.runner.process_task_request, Client("photo", ""), FLContext())
        while not self.runner.asked:
            time.sleep(0.001)
        self.runner.tasks["photo"] = TASK
        self.ask([], 9)
        self.answers.append(answer.result(LONG_S / 2))


def test_a_workflow_holds_requests_and_lets_sites_look_when_it_has_sent_its_own(
    tmp_path: Any, pool: ThreadPoolExecutor
) -> None:
    runner = Runner()
    messenger = Holding(runner, pool)
    messenger.set_communicator(Line(lambda *_: None))
    assert isinstance(messenger.requests, HeldRequests)
    messenger.requests.longest = LONG_S
    fl_ctx = context_of(Engine(tmp_path))
    fl_ctx.set_prop(FLContextKey.RUNNER, runner, private=True, sticky=False)
    messenger.start_controller(fl_ctx)
    messenger.control_flow(Signal(), fl_ctx)
    assert messenger.answers == [TASK]
    started = time.monotonic()
    runner.tasks = {}
    assert runner.process_task_request(Client("photo", ""), FLContext()) is NO_TASK
    assert time.monotonic() - started < LONG_S / 2
