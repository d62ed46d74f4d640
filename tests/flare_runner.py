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
from nvflare.private.fed.client.client_engine_executor_spec import TaskAssignment


class SiteWorkspace:
    """The part of FLARE's workspace that a site uses; its own configs lie in ``local``, below the folder by default."""

    def __init__(self, folder: Path, local: Path | None = None) -> None:
        self.folder = folder
        self.site_name = folder.name
        self.local = local or folder / "local"

    def get_run_dir(self, job_id: str) -> str:
        (self.folder / job_id).mkdir(exist_ok=True)
        return str(self.folder / job_id)

    def get_root_dir(self) -> str:
        return str(self.folder)

    def get_audit_root(self) -> str:
        return str(self.folder)

    def get_site_config_dir(self) -> str:
        return str(self.local)

    def get_file_path_in_site_config(self, name: str) -> str:
        return str(self.local / name)

    def get_app_custom_dir(self, job_id: str) -> str:
        return str(self.folder / "custom")

    def get_client_app_config_file_path(self, job_id: str) -> str:
        return str(self.folder / job_id / "app" / "config" / "config_fed_client.json")


def site_context(site: str, workspace: Any, job: str = "job", scope: Sequence[Filter] = ()) -> FLContext:
    """Return a new context of a job at a site, as FLARE's engine makes one; ``scope``: result filters of its scope."""
    engine = SimpleNamespace(get_workspace=lambda: workspace, fire_event=lambda event, context: None)
    context = FLContext()
    private: dict[str, Any] = {ReservedKey.ENGINE: engine}
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
