# SPDX-License-Identifier: Apache-2.0
"""Which filters a result passes, out of a site and into the server: the participant's own first, then the job's."""

from nvflare.apis.filter import Filter
from nvflare.apis.fl_constant import FilterKey, FLContextKey
from nvflare.apis.fl_context import FLContext
from nvflare.apis.utils.task_utils import get_filters


def result_filters(fl_ctx: FLContext) -> list[Filter] | None:
    """Return the filters of the task's result at a site, as FLARE's client applies them; None if it does not say."""
    runner, task = fl_ctx.get_prop(FLContextKey.RUNNER), fl_ctx.get_prop(FLContextKey.TASK_NAME)
    job_filters = getattr(runner, "task_result_filters", None)
    if not isinstance(job_filters, dict) or not isinstance(task, str):
        return None
    return list(get_filters("task_result_filters", fl_ctx, job_filters, task, FilterKey.OUT))


def server_result_filters(task: str, fl_ctx: FLContext) -> list[Filter] | None:
    """Return the filters of the results of ``task`` at the server, as FLARE applies them; None if it does not say."""
    config = getattr(fl_ctx.get_prop(FLContextKey.RUNNER), "config", None)
    job_filters = getattr(config, "task_result_filters", None)
    if not isinstance(job_filters, dict):
        return None
    return list(get_filters("task_result_filters", fl_ctx, job_filters, task, FilterKey.IN))


def class_path(component: object) -> str:
    """Return the dotted path of a component's class."""
    kind = type(component)
    return f"{kind.__module__}.{kind.__qualname__}"
