# SPDX-License-Identifier: Apache-2.0
"""Whether a job runs in FLARE's simulator, which uses one job id for all."""

from nvflare.apis.fl_context import FLContext

from fdg_plugins.flare.internals import SIMULATOR, InternalsError, fetch


def in_simulator(fl_ctx: FLContext) -> bool:
    """Return whether FLARE's simulator runs the job; False if this FLARE does not say: a job then has the full care."""
    try:
        return bool(fl_ctx.get_job_id() == fetch(SIMULATOR, "SimulatorConstants.JOB_NAME"))
    except InternalsError:
        return False
