# SPDX-License-Identifier: Apache-2.0
"""Received streams wait in one thread until FLARE forgets them, as long as ever, and without their content."""

import gc
import logging
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from nvflare.fuel.f3.streaming.byte_receiver import RxTask
from nvflare.fuel.f3.streaming.stream_types import StreamError, StreamFuture

from fdg_plugins.flare import received_streams
from fdg_plugins.flare.received_streams import OneTimer, tidy_received_streams

PATIENCE_S = 10.0
FLARES_OWN = RxTask._schedule_remove_task  # at collection, before a job of this process has put another in its place


@pytest.fixture
def tasks() -> Iterator[type[RxTask]]:
    """FLARE's records of received streams: their class is as FLARE defines it, and afterwards as it was before."""
    known, timer = RxTask._schedule_remove_task, getattr(RxTask, "fdg_timer", None)
    RxTask._schedule_remove_task, RxTask.fdg_timer = FLARES_OWN, None
    yield RxTask
    RxTask._schedule_remove_task, RxTask.fdg_timer = known, timer
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
    tidy_received_streams()
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
    tidy_received_streams()
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

    with caplog.at_level(logging.ERROR, received_streams.__name__):
        timer.after(0.0, fail)
        timer.after(0.05, called.set)
        assert called.wait(PATIENCE_S)
    assert "a delayed action failed" in caplog.text


def test_a_second_call_keeps_the_timer(tasks: type[RxTask]) -> None:
    tidy_received_streams()
    first = tasks.fdg_timer
    tidy_received_streams()
    assert tasks.fdg_timer is first


def test_a_flare_without_the_internal_keeps_its_own_way(
    tasks: type[RxTask], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(received_streams, "problems_of", lambda need: ("FLARE 9: `RxTask` is gone.",))
    known = tasks._schedule_remove_task
    tidy_received_streams()
    assert tasks._schedule_remove_task is known
    assert "is gone" in caplog.text


class Content:
    """What a stream brought."""


def with_content(task: Any) -> tuple[StreamFuture, "weakref.ref[Content]"]:
    """Let a stream that is complete be read; return its reader's future, and a reference that keeps nothing."""
    future = task.stream_future = StreamFuture(task.sid, {"name": "value"})
    task._schedule_remove_task()
    content = Content()
    future.set_result(content)
    return future, weakref.ref(content)


@pytest.mark.parametrize("is_tidy", [True, False])
def test_the_content_of_a_stream_is_kept_by_its_reader_alone(tasks: type[RxTask], is_tidy: bool) -> None:
    if is_tidy:
        tidy_received_streams()
    task = received(3, 0.5)
    future, content = with_content(task)
    assert isinstance(future.result(), Content), "whoever reads the stream has it"
    assert task.stream_future.done()
    assert (task.stream_future.get_stream_id(), task.stream_future.get_headers()) == (3, {"name": "value"})
    del future
    gc.collect()
    assert (content() is None) == is_tidy, "FLARE itself keeps it until it forgets the stream"
    wait_until(lambda: ("site", 3) not in tasks.rx_task_map)


def test_a_stream_that_fails_while_it_is_read_fails_for_its_reader(tasks: type[RxTask]) -> None:
    tidy_received_streams()
    task = received(4, 0.1)
    future = task.stream_future = StreamFuture(4)
    task._schedule_remove_task()
    future.set_exception(StreamError("broken"))
    with pytest.raises(StreamError, match="broken"):
        future.result()
