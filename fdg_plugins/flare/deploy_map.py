# SPDX-License-Identifier: Apache-2.0
"""The sites that a running job's ``deploy_map`` names."""

from nvflare.apis.fl_constant import FLContextKey
from nvflare.apis.fl_context import FLContext
from nvflare.apis.job_def import ALL_SITES, SERVER_SITE_NAME

from fdg_plugins.flare.simulator import in_simulator


def named_sites(fl_ctx: FLContext) -> frozenset[str]:
    """Return the sites that the job is for, by name; empty if it is for all, or simulated for those that a user names.

    FLARE starts a job as soon as ``min_clients`` of them are connected, and deploys it to no site later.
    """
    meta = fl_ctx.get_prop(FLContextKey.JOB_META)
    apps = meta.get("deploy_map") if isinstance(meta, dict) and not in_simulator(fl_ctx) else None
    lists = [sites for sites in apps.values() if isinstance(sites, list)] if isinstance(apps, dict) else []
    return frozenset(site for sites in lists for site in sites if isinstance(site, str)) - {SERVER_SITE_NAME, ALL_SITES}
