# SPDX-License-Identifier: Apache-2.0
"""What FLARE's context tells of a job: its engine, its sites, its filters, and the config of this participant."""

import os
import sys
from collections.abc import Iterator, Mapping
from itertools import chain
from pathlib import Path
from typing import Any

from nvflare.apis.filter import Filter
from nvflare.apis.fl_constant import FilterKey, FLContextKey
from nvflare.apis.fl_context import FLContext
from nvflare.apis.job_def import ALL_SITES, SERVER_SITE_NAME
from nvflare.apis.utils.task_utils import get_filters

from fdg_plugins.flare.components import SERVER
from fdg_plugins.flare.internals import fetch
from fdg_plugins.plugins.files import Allowed
from fdg_plugins.settings.site_config import FILE_NAME, SiteConfig, read_site_config

WORKER = "nvflare.private.fed.app.simulator.simulator_worker"  # the module of a simulated site's process
_RESULTS = "task_result_filters"


# --- the engine ---


def in_simulator(fl_ctx: FLContext) -> bool:
    """Return whether FLARE's simulator, which uses one job id for all jobs, or an engine of this package runs the job.

    That engine has the simulator's rules.
    """
    return bool(fl_ctx.get_job_id() == fetch("SimulatorConstants.JOB_NAME"))


def in_one_process(fl_ctx: FLContext) -> bool:
    """Return whether server and sites are in one process, so that nothing leaves it."""
    return getattr(fl_ctx.get_engine(), "is_local", False) is True


def is_simulated_site(fl_ctx: FLContext) -> bool:
    """Return whether this site's process is part of a simulation, whose server and sites are one person's.

    How the process was started decides; a server could give any job the simulator's id.
    """
    started = getattr(sys.modules["__main__"], "__spec__", None)
    return in_one_process(fl_ctx) or (started is not None and started.name == WORKER)


def shared_work(fl_ctx: FLContext) -> Any:
    """Return what does the tasks of all sites of this process; None unless they are in one process."""
    return getattr(fl_ctx.get_engine(), "shared_work", None)


# --- the sites ---


def named_sites(fl_ctx: FLContext) -> frozenset[str]:
    """Return the sites that the job is for, by name; empty if it is for all, or simulated for those that a user names.

    FLARE starts a job as soon as ``min_clients`` of them are connected, and deploys it to no site later.
    """
    meta = fl_ctx.get_prop(FLContextKey.JOB_META)
    return frozenset() if not meta or in_simulator(fl_ctx) else sites_in(meta.get("deploy_map") or {})


def sites_in(apps: Mapping[str, Any]) -> frozenset[str]:
    """Return the sites in a ``deploy_map``; neither the server nor FLARE's name for all participants counts."""
    names = chain.from_iterable(map(names_in, apps.values()))
    return frozenset(name for name in names if name != SERVER_SITE_NAME and name.casefold() != ALL_SITES.casefold())


def names_in(participants: Any) -> Iterator[str]:
    """Yield the names in a name, a list of names, or an object with such a list; nothing for what FLARE refuses."""
    if isinstance(participants, str):
        yield participants
    elif isinstance(participants, Mapping):
        yield from names_in(participants.get("targets", participants.get("sites", ())))
    elif isinstance(participants, list | tuple):
        yield from chain.from_iterable(map(names_in, participants))


# --- the filters that a result passes at a site and at the server: the participant's own first, then the job's ---


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


# --- the participant's own config, from its workspace ---


def site_config_of(site: str, fl_ctx: FLContext) -> SiteConfig:
    """Return the config of ``site`` from its workspace and the environment of its process.

    Raises ``SettingsError`` and ``DataError`` as :func:`~fdg_plugins.settings.site_config.read_site_config`; only the
    sites of a simulator share one file.
    """
    path = Path(fl_ctx.get_engine().get_workspace().get_file_path_in_site_config(FILE_NAME))
    return read_site_config(site, path, os.environ, shared=in_simulator(fl_ctx))


def allowed_at_server(fl_ctx: FLContext) -> Allowed:
    """Return the list of plug-ins that the server's operator allows, from its workspace; None if there is no list.

    Raises as :func:`~fdg_plugins.settings.site_config.read_site_config`.
    """
    path = Path(fl_ctx.get_engine().get_workspace().get_root_dir(), "local", FILE_NAME)
    return read_site_config(SERVER, path, {}, shared=in_simulator(fl_ctx)).allowed_plugins
