# SPDX-License-Identifier: Apache-2.0
"""Tasks in one process are done while the workflow waits: each offered one once, in order, and no other."""

import threading

import pytest

from fdg_plugins.errors import DataError
from fdg_plugins.lab.engine.local_tasks import LocalTasks


def wait_for(event: threading.Event) -> None:
    assert event.wait(300)


class Seen:
    """What happens, in order; any sleep is recorded instead."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.events: list[str] = []
        monkeypatch.setattr("time.sleep", lambda seconds: self.events.append(f"sleeps {seconds}"))
        self.tasks = LocalTasks(self.events.append, lambda: self.events.append("settled"))


def test_each_wait_lets_one_site_work_and_settles_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = Seen(monkeypatch)
    seen.tasks.wait(0.1)
    seen.tasks.offer(["photo", "sketch"])
    for _ in range(2):
        seen.tasks.wait(0.1)
    assert seen.events == ["sleeps 0.1", "settled", "photo", "settled", "sketch", "settled"]


def test_if_a_task_still_stands_when_all_had_their_turn_they_are_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = Seen(monkeypatch)
    seen.tasks.offer(["photo"])
    for _ in range(3):
        seen.tasks.wait(0.1)
    assert seen.events == ["photo", "settled", "sleeps 0.1", "settled", "photo", "settled"]


@pytest.mark.parametrize("how", ["withdraw", "end"])
def test_what_is_withdrawn_is_not_done(monkeypatch: pytest.MonkeyPatch, how: str) -> None:
    seen = Seen(monkeypatch)
    seen.tasks.offer(["photo", "sketch"])
    seen.tasks.wait(0.1)
    getattr(seen.tasks, how)()
    seen.tasks.wait(0.1)
    assert seen.events == ["photo", "settled", "sleeps 0.1", "settled"]


@pytest.mark.parametrize(("at_once", "count", "turns"), [(1, 6, 6), (1, 0, 1), (2, 6, 3), (4, 6, 2), (8, 6, 1)])
def test_sites_have_their_turns(at_once: int, count: int, turns: int) -> None:
    tasks = LocalTasks(lambda site: None, lambda: None, at_once)
    try:
        assert tasks.turns(count) == turns
    finally:
        tasks.end()


def test_several_sites_work_at_a_time_and_none_twice() -> None:
    done: list[str] = []
    meet = threading.Barrier(2, timeout=120)

    def do(site: str) -> None:
        meet.wait()  # returns only if two sites work at the same time
        done.append(site)

    tasks = LocalTasks(do, lambda: None, at_once=2)
    sites = ["art", "photo", "sketch", "web"]
    tasks.offer(sites)
    while len(done) < len(sites):
        tasks.wait(0.01)
    tasks.end()
    assert sorted(done) == sites


def test_a_wait_ends_although_a_site_still_works_and_the_end_of_the_workflow_interrupts_it() -> None:
    given_up, interrupted = threading.Event(), []

    def interrupt(site: str) -> None:
        interrupted.append(site)
        given_up.set()

    settled: list[None] = []
    tasks = LocalTasks(
        lambda site: None if site == "art" else wait_for(given_up), lambda: settled.append(None), 2, interrupt
    )
    tasks.offer(["art", "photo"])
    for _ in range(3):
        tasks.wait(0.01)
    assert (len(settled), interrupted) == (3, [])
    tasks.end()
    assert interrupted == ["photo"]


def test_what_a_site_raises_in_a_thread_reaches_the_workflow() -> None:
    def do(site: str) -> None:
        raise DataError(f"site {site} is broken.")

    tasks = LocalTasks(do, lambda: None, at_once=2)
    tasks.offer(["photo"])
    with pytest.raises(DataError, match="photo"):
        tasks.wait(0.01)
    tasks.end()
