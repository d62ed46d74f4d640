# SPDX-License-Identifier: Apache-2.0
"""The filters that a result passes at a site and at the server: the participant's own first, then the job's."""

from nvflare.apis.filter import Filter
from nvflare.apis.fl_constant import FilterKey, FLContextKey
from nvflare.apis.fl_context import FLContext
from nvflare.apis.utils.task_utils import get_filters

from fdg_plugins.flare.internals import fetch

_RESULTS = "task_result_filters"


def result_filters(fl_ctx: FLContext) -> list[Filter] | None:
    """Return the filters for the current task's result at a site, in FLARE's order; None if FLARE does not tell."""
    runner, task = fl_ctx.get_prop(FLContextKey.RUNNER), fl_ctx.get_prop(FLContextKey.TASK_NAME)
    return _chain(getattr(runner, _RESULTS, None), task, fl_ctx, FilterKey.OUT)


def server_result_filters(task: str, fl_ctx: FLContext) -> list[Filter] | None:
    """Return the filters for the results of ``task`` at the server, in FLARE's order; None if FLARE does not tell."""
    config = getattr(fl_ctx.get_prop(FLContextKey.RUNNER), "config", None)
    return _chain(getattr(config, _RESULTS, None), task, fl_ctx, FilterKey.IN)


def _chain(job_filters: object, task: object, fl_ctx: FLContext, direction: str) -> list[Filter] | None:
    if not isinstance(job_filters, dict) or not isinstance(task, str):
        return None
    return list(get_filters(_RESULTS, fl_ctx, job_filters, task, direction))


def scope_filters(fl_ctx: FLContext) -> list[Filter]:
    """Return the filters for a site's results in the active privacy scope, then those in the site's default scope.

    Raises ``InternalsError`` if this FLARE version does not tell, because a site's rules must never be guessed.
    """
    scopes = (fl_ctx.get_prop(FLContextKey.SCOPE_OBJECT), fetch("PrivacyService.get_scope")(None))
    return [one for scope in scopes if scope is not None for one in scope.task_result_filters.get(FilterKey.OUT, ())]


def class_path(component: object) -> str:
    """Return the dotted path of a component's class."""
    kind = type(component)
    return f"{kind.__module__}.{kind.__qualname__}"
