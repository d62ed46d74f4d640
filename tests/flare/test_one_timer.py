# SPDX-License-Identifier: Apache-2.0
"""Received streams wait in one thread until FLARE forgets them, each as long as FLARE's own timer would wait."""

import logging
import threading
import time
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from nvflare.fuel.f3.streaming.byte_receiver import RxTask

from fdg_plugins.flare import one_timer
from fdg_plugins.flare.one_timer import OneTimer, share_timer_of_streams

PATIENCE_S = 10.0


@pytest.fixture
def tasks() -> Iterator[type[RxTask]]:
    """FLARE's records of received streams, whose class is as FLARE defines it before and after the test."""
    known = RxTask._schedule_remove_task
    yield RxTask
    RxTask._schedule_remove_task = known
    if hasattr(RxTask, "fdg_timer"):
        del RxTask.fdg_timer
    RxTask.rx_task_map.clear()


def received(number: int, seconds: float) -> Any:
    """Return FLARE's record of a stream that has been received, and is to be forgotten after some seconds."""
    task = RxTask(number, "site", SimpleNamespace(), reliable=True)
    task.completed_task_ttl = seconds
    RxTask.rx_task_map["site", number] = task
    return task


def wait_until(is_so: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not is_so():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_many_streams_wait_in_one_thread_and_each_is_forgotten(tasks: type[RxTask]) -> None:
    share_timer_of_streams()
    before = threading.active_count()
    found = [received(number, 0.3) for number in range(200)]
    for task in found:
        task._schedule_remove_task()
        task._schedule_remove_task()  # FLARE may ask again, which changes nothing
    assert threading.active_count() <= before + 1
    assert len(tasks.rx_task_map) == 200
    wait_until(lambda: not tasks.rx_task_map)
    assert all(task.cleanup_timer is None for task in found)


def test_flares_own_way_has_a_thread_for_each(tasks: type[RxTask]) -> None:
    before = threading.active_count()
    for number in range(20):
        received(number, 0.3)._schedule_remove_task()
    assert threading.active_count() == before + 20, "if this FLARE has none, this package needs no other way"
    wait_until(lambda: threading.active_count() == before)


def test_a_stream_waits_as_long_as_it_is_told(tasks: type[RxTask]) -> None:
    share_timer_of_streams()
    slow, fast = received(1, 60.0), received(2, 60.0)
    slow._schedule_remove_task()
    fast._schedule_remove_task(0.05)
    wait_until(lambda: ("site", 2) not in tasks.rx_task_map)
    assert tasks.rx_task_map["site", 1] is slow
    slow._remove_task()  # FLARE forgets it earlier
    assert slow.cleanup_timer is None
    assert not tasks.rx_task_map


def test_actions_are_called_in_the_order_of_their_moments_and_not_once_they_are_cancelled() -> None:
    timer, called = OneTimer(), []
    timer.after(0.2, lambda: called.append("last"))
    timer.after(0.1, lambda: called.append("cancelled")).cancel()
    timer.after(0.05, lambda: called.append("first"))
    wait_until(lambda: "last" in called)
    assert called == ["first", "last"]


def test_an_action_that_fails_is_logged_and_stops_no_other(caplog: pytest.LogCaptureFixture) -> None:
    timer, called = OneTimer(), threading.Event()

    def fail() -> None:
        raise ValueError("broken")

    with caplog.at_level(logging.ERROR, one_timer.__name__):
        timer.after(0.0, fail)
        timer.after(0.05, called.set)
        assert called.wait(PATIENCE_S)
    assert "a delayed action failed" in caplog.text


def test_a_second_call_keeps_the_timer(tasks: type[RxTask]) -> None:
    share_timer_of_streams()
    first = tasks.fdg_timer
    share_timer_of_streams()
    assert tasks.fdg_timer is first


def test_a_flare_without_the_internal_keeps_its_own_way(
    tasks: type[RxTask], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(one_timer, "problems_of", lambda need: ("FLARE 9: `RxTask` is gone.",))
    known = tasks._schedule_remove_task
    share_timer_of_streams()
    assert tasks._schedule_remove_task is known
    assert "is gone" in caplog.text
