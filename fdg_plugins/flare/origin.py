# SPDX-License-Identifier: Apache-2.0
"""Where a task comes from: the executor answers what FLARE's own loop fetched from the server, and nobody else.

FLARE's runner finds an executor for whoever asks. Its loop fetches a task from the server, runs its filters and calls
the executor, and its filters and audit see the answer. But components of a job may find the executor as well and call
it with data of another site, to which they then send the result (``nvflare.app_common.ccwf``: cyclic, swarm, cross-site
evaluation), and any participant of a job may send the runner a task in a message (the topic ``__do_task__``), to whom
the answer then goes. Neither is a task of the workflow that this executor serves.

The sign of a fetched task: FLARE fires ``AFTER_PULL_TASK`` in the very context in which its loop then does that task,
and the runner holds the task under its id while it is done. Every other call has a context of its own, in which nothing
was fetched, or another task. The answer to a fetch comes from the cell that was asked, the server's or that of a relay
below it, so no sender needs to be compared.
"""

from typing import Any
from weakref import WeakSet

from nvflare.apis.event_type import EventType
from nvflare.apis.executor import Executor
from nvflare.apis.fl_constant import FLContextKey
from nvflare.apis.fl_context import FLContext
from nvflare.apis.shareable import Shareable

from fdg_plugins.flare.internals import ORIGIN, require


class FetchedTasks:
    """Knows the contexts in which FLARE's loop fetched a task that was not done yet; each task counts once."""

    def __init__(self) -> None:
        # A set, for an event of that name can be sent from afar, each with a context of its own.
        self._contexts: WeakSet[FLContext] = WeakSet()

    def observe(self, event_type: str, fl_ctx: FLContext) -> None:
        """Take note of the loop's events; to be called with every event that the executor receives."""
        if event_type == EventType.AFTER_PULL_TASK:
            self._contexts.add(fl_ctx)
        elif event_type == EventType.BEFORE_PULL_TASK:
            self._contexts.discard(fl_ctx)

    def take(self, executor: Executor, task_name: str, shareable: Shareable, fl_ctx: FLContext) -> bool:
        """Return whether this call of ``executor`` does the task that was fetched in ``fl_ctx``, the first time.

        Raises ``InternalsError`` if this FLARE does not say: no task is done then.
        """
        require(ORIGIN)
        runner = fl_ctx.get_prop(FLContextKey.RUNNER)
        assignment: Any = getattr(runner, "running_tasks", {}).get(fl_ctx.get_prop(FLContextKey.TASK_ID))
        fetched = (
            fl_ctx in self._contexts
            and assignment is not None
            and assignment.name == task_name
            and assignment.data is shareable
            and runner.find_executor(task_name) is executor
        )
        if fetched:
            self._contexts.discard(fl_ctx)
        return fetched
