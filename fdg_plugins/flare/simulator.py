# SPDX-License-Identifier: Apache-2.0
"""Detects whether a job runs in FLARE's simulator, which uses one job id for all jobs."""

from nvflare.apis.fl_context import FLContext

from fdg_plugins.flare.internals import SIMULATOR, InternalsError, fetch


def in_simulator(fl_ctx: FLContext) -> bool:
    """Return whether FLARE's simulator runs the job; False, the stricter assumption, if FLARE does not tell."""
    try:
        return bool(fl_ctx.get_job_id() == fetch(SIMULATOR, "SimulatorConstants.JOB_NAME"))
    except InternalsError:
        return False
