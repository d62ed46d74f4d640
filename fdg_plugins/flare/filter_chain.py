# SPDX-License-Identifier: Apache-2.0
"""Which filters a result passes, out of a site and into the server: the participant's own first, then the job's."""

from nvflare.apis.filter import Filter
from nvflare.apis.fl_constant import FilterKey, FLContextKey
from nvflare.apis.fl_context import FLContext

from fdg_plugins.flare.internals import FILTERS, SCOPES, InternalsError, fetch, require

_RESULTS = "task_result_filters"


def result_filters(fl_ctx: FLContext) -> list[Filter] | None:
    """Return the filters of the task's result at a site, as FLARE's client applies them; None if it does not say."""
    runner, task = fl_ctx.get_prop(FLContextKey.RUNNER), fl_ctx.get_prop(FLContextKey.TASK_NAME)
    return _chain(getattr(runner, _RESULTS, None), task, fl_ctx, FilterKey.OUT)


def server_result_filters(task: str, fl_ctx: FLContext) -> list[Filter] | None:
    """Return the filters of the results of ``task`` at the server, as FLARE applies them; None if it does not say."""
    config = getattr(fl_ctx.get_prop(FLContextKey.RUNNER), "config", None)
    return _chain(getattr(config, _RESULTS, None), task, fl_ctx, FilterKey.IN)


def _chain(job_filters: object, task: object, fl_ctx: FLContext, direction: str) -> list[Filter] | None:
    if not isinstance(job_filters, dict) or not isinstance(task, str):
        return None
    try:
        get_filters = fetch(FILTERS, "get_filters")
    except InternalsError:
        return None
    return list(get_filters(_RESULTS, fl_ctx, job_filters, task, direction))


def scope_filters(fl_ctx: FLContext) -> list[Filter]:
    """Return the filters for a site's results in the privacy scope in force, then those in the site's default scope.

    Raises ``InternalsError`` if this FLARE does not say: what a site demands is never guessed.
    """
    require(SCOPES)
    scopes = (fl_ctx.get_prop(FLContextKey.SCOPE_OBJECT), fetch(SCOPES, "PrivacyService.get_scope")(None))
    return [one for scope in scopes if scope is not None for one in scope.task_result_filters.get(FilterKey.OUT, ())]


def class_path(component: object) -> str:
    """Return the dotted path of a component's class."""
    kind = type(component)
    return f"{kind.__module__}.{kind.__qualname__}"
