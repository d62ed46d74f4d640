# SPDX-License-Identifier: Apache-2.0
"""FLARE's client runner around an executor, as far as the executor can tell: contexts, a workspace, a fetched task."""

import uuid
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from nvflare.apis.event_type import EventType
from nvflare.apis.executor import Executor
from nvflare.apis.filter import Filter
from nvflare.apis.fl_constant import FLContextKey, ReservedKey
from nvflare.apis.fl_context import FLContext
from nvflare.apis.shareable import Shareable
from nvflare.apis.signal import Signal
from nvflare.apis.workspace import Workspace
from nvflare.private.fed.client.client_engine_executor_spec import TaskAssignment


def workspace_of(folder: Path, site: str = "") -> Workspace:
    """Return FLARE's workspace in ``folder``; a participant's own configs lie in its folder ``local``."""
    for name in ("startup", "local"):
        (folder / name).mkdir(parents=True, exist_ok=True)
    return Workspace(str(folder), site)


def site_context(
    site: str,
    folder: Path,
    job: str = "job",
    scope: Sequence[Filter] = (),
    task: str | None = None,
    filters: Sequence[Filter] = (),
) -> FLContext:
    """Return a new context of a job at the site that works in ``folder``.

    ``scope``: result filters of its scope; ``task``: the one whose result passes them, and then the job's ``filters``.
    """
    workspace = workspace_of(folder, site)
    engine = SimpleNamespace(get_workspace=lambda: workspace, fire_event=lambda event, context: None)
    context = FLContext()
    private: dict[str, Any] = {ReservedKey.ENGINE: engine}
    if task is not None:
        private[FLContextKey.TASK_NAME] = task
        private[FLContextKey.RUNNER] = SimpleNamespace(task_result_filters={f"{task}/out": list(filters)})
    if scope:
        private[FLContextKey.SCOPE_OBJECT] = SimpleNamespace(task_result_filters={"out": list(scope), "in": []})
    for key, value in private.items():
        context.set_prop(key, value, private=True, sticky=False)
    for key, name in {ReservedKey.IDENTITY_NAME: site, ReservedKey.RUN_NUM: job}.items():
        context.set_prop(key, name, private=False, sticky=False)
    return context


def fetch(
    executor: Executor, task: str, shareable: Shareable, context: FLContext, filters: Sequence[Filter] = ()
) -> None:
    """Let the runner fetch a task in ``context``, as FLARE does until it calls the executor; ``filters``: the job's."""
    task_id = str(uuid.uuid4())
    runner = SimpleNamespace(
        running_tasks={task_id: TaskAssignment(task, task_id, shareable)},
        find_executor=lambda name: executor,
        task_result_filters={f"{task}/out": list(filters)},
    )
    executor.handle_event(EventType.BEFORE_PULL_TASK, context)
    executor.handle_event(EventType.AFTER_PULL_TASK, context)
    for key, value in {
        FLContextKey.RUNNER: runner,
        FLContextKey.TASK_NAME: task,
        FLContextKey.TASK_ID: task_id,
    }.items():
        context.set_prop(key, value, private=True, sticky=False)


def run_task(
    executor: Executor,
    task: str,
    shareable: Shareable,
    context: FLContext,
    signal: Signal | None = None,
    filters: Sequence[Filter] = (),
) -> Shareable:
    """Return what ``executor`` returns to FLARE's runner for a task that was fetched from the server."""
    fetch(executor, task, shareable, context, filters)
    return executor.execute(task, shareable, context, signal or Signal())


def send(reply: Shareable, executor: Executor, task: str, context: FLContext, filters: Sequence[Filter] = ()) -> Any:
    """Return what FLARE's runner sends of a reply, after the scope's and the job's filters and the executor's audit."""
    scope = context.get_prop(FLContextKey.SCOPE_OBJECT)
    for filter_ in (*(scope.task_result_filters["out"] if scope else ()), *filters):
        reply = filter_.process(reply, context)
    context.set_prop(FLContextKey.TASK_RESULT, reply, private=True, sticky=False)
    executor.handle_event(EventType.AFTER_TASK_RESULT_FILTER, context)
    return reply
