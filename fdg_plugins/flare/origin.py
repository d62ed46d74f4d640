# SPDX-License-Identifier: Apache-2.0
"""Verifies the origin of a task: the executor answers only tasks that FLARE's own loop fetched from the server.

That loop runs the filters, and audit then sees the answer. There are two other ways to the executor: a component of the
job can call it and send the result to another site (``nvflare.app_common.ccwf``), and any participant of the job can
send FLARE's runner a task in a message (topic ``__do_task__``). Neither is a task of the workflow.

A fetched task is recognised as follows. FLARE fires ``AFTER_PULL_TASK`` in the same context in which its loop then does
the task, and the runner holds the task under its id meanwhile. Every other call has its own context.
"""

from typing import Any
from weakref import WeakSet

from nvflare.apis.event_type import EventType
from nvflare.apis.executor import Executor
from nvflare.apis.fl_constant import FLContextKey
from nvflare.apis.fl_context import FLContext
from nvflare.apis.shareable import Shareable


class FetchedTasks:
    """Tracks the contexts in which FLARE's loop fetched a task that has not been done yet; each task counts once."""

    def __init__(self) -> None:
        # A set, because a remote participant can send events of this name, each with its own context.
        self._contexts: WeakSet[FLContext] = WeakSet()

    def observe(self, event_type: str, fl_ctx: FLContext) -> None:
        """Track the loop's events; call this with every event that the executor receives."""
        if event_type == EventType.AFTER_PULL_TASK:
            self._contexts.add(fl_ctx)
        elif event_type == EventType.BEFORE_PULL_TASK:
            self._contexts.discard(fl_ctx)

    def take(self, executor: Executor, task_name: str, shareable: Shareable, fl_ctx: FLContext) -> bool:
        """Return whether this is the first call of ``executor`` for the task that was fetched in ``fl_ctx``."""
        fetched = fl_ctx in self._contexts and _is_current(executor, task_name, shareable, fl_ctx)
        if fetched:
            self._contexts.discard(fl_ctx)
        return fetched


def _is_current(executor: Executor, task_name: str, shareable: Shareable, fl_ctx: FLContext) -> bool:
    runner = fl_ctx.get_prop(FLContextKey.RUNNER)
    assignment: Any = getattr(runner, "running_tasks", {}).get(fl_ctx.get_prop(FLContextKey.TASK_ID))
    return (
        assignment is not None
        and assignment.name == task_name
        and assignment.data is shareable
        and runner.find_executor(task_name) is executor
    )
