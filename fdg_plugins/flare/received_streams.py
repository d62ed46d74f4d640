# SPDX-License-Identifier: Apache-2.0
"""What FLARE keeps of the streams that a process has received: no thread for each of them, and not their content.

FLARE 2.9 remembers every reliable stream for 65 s after its end, in case its sender repeats a part of it. Meanwhile it
keeps all that the stream brought, although it only needs to know that it is complete, and a thread that waits. A job
thus has in memory what it has received in the last minute, and hundreds of threads if its rounds are short. Here all
streams of a process wait in one thread, as long as before, and their content is kept by whoever reads it.
"""

import heapq
import itertools
import logging
import threading
import time
from collections.abc import Callable
from typing import Any

from fdg_plugins.flare.internals import STREAMS, fetch, problems_of

_logger = logging.getLogger(__name__)


class Wait:
    """An action that is due at a moment of ``time.monotonic``; :meth:`cancel` as of ``threading.Timer``."""

    def __init__(self, due: float, action: Callable[[], None]) -> None:
        self.due = due
        self.action: Callable[[], None] | None = action

    def cancel(self) -> None:
        """Forget the action, unless it has begun."""
        self.action = None


class OneTimer:
    """Calls many actions, each after its own delay, in one daemon thread, which begins with the first."""

    def __init__(self) -> None:
        self._order = itertools.count()  # of equal moments
        self._waits: list[tuple[float, int, Wait]] = []
        self._change = threading.Condition()
        self._thread: threading.Thread | None = None

    def after(self, seconds: float, action: Callable[[], None]) -> Wait:
        """Call ``action`` after a delay; an error that it raises is logged."""
        wait = Wait(time.monotonic() + seconds, action)
        with self._change:
            heapq.heappush(self._waits, (wait.due, next(self._order), wait))
            if self._thread is None or not self._thread.is_alive():  # a forked process has none
                self._thread = threading.Thread(target=self._work, name="fdg_one_timer", daemon=True)
                self._thread.start()
            self._change.notify()
        return wait

    def _work(self) -> None:
        while True:
            _call(self._next())

    def _next(self) -> Wait:
        """Return the next action when it is due."""
        with self._change:
            while not self._waits or self._waits[0][0] > time.monotonic():
                self._change.wait(self._waits[0][0] - time.monotonic() if self._waits else None)
            return heapq.heappop(self._waits)[2]


def _call(wait: Wait) -> None:
    try:
        if (action := wait.action) is not None:
            action()
    except Exception:
        _logger.exception("a delayed action failed")


def tidy_received_streams() -> None:
    """Let the streams that this process receives wait in one thread, without their content; may be called again.

    If this FLARE version lacks a required internal, the function logs a warning, and FLARE keeps all it used to.
    """
    if problems := problems_of(STREAMS):
        _logger.warning(problems[0])
        return
    task_class = fetch(STREAMS, "RxTask")
    if not isinstance(getattr(task_class, "fdg_timer", None), OneTimer):
        task_class.fdg_timer = OneTimer()
        task_class._schedule_remove_task = _schedule


def _schedule(task: Any, ttl: float | None = None) -> None:
    """Have ``task``, FLARE's record of a stream, forgotten after ``ttl`` seconds; None: after its own time.

    Its content is forgotten as soon as it has been read.
    """
    with task.stop_lock:
        if not task.cleanup_timer:
            seconds = task.completed_task_ttl if ttl is None else ttl
            task.cleanup_timer = task.fdg_timer.after(seconds, task._remove_task)
            if (future := task.stream_future) is not None:
                future.add_done_callback(_forget_content, task)


def _forget_content(task: Any) -> None:
    """Replace the future of a stream that has been read; its reader has the one with the content."""
    known = task.stream_future
    empty = type(known)(known.get_stream_id(), known.get_headers())
    empty.set_result(None)
    task.stream_future = empty
