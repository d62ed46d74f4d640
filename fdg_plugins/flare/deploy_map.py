# SPDX-License-Identifier: Apache-2.0
"""The sites that a job's ``deploy_map`` names."""

from collections.abc import Iterator, Mapping
from itertools import chain
from typing import Any

from nvflare.apis.fl_constant import FLContextKey
from nvflare.apis.fl_context import FLContext
from nvflare.apis.job_def import ALL_SITES, SERVER_SITE_NAME

from fdg_plugins.flare.simulator import in_simulator


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
