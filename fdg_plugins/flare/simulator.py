# SPDX-License-Identifier: Apache-2.0
"""Detects whether a job runs in FLARE's simulator, which uses one job id for all jobs."""

import sys

from nvflare.apis.fl_context import FLContext

from fdg_plugins.flare.internals import SIMULATOR, InternalsError, fetch
from fdg_plugins.flare.local_parties import in_one_process

WORKER = "nvflare.private.fed.app.simulator.simulator_worker"  # the module of a simulated site's process


def in_simulator(fl_ctx: FLContext) -> bool:
    """Return whether FLARE's simulator runs the job; False, the stricter assumption, if FLARE does not tell."""
    try:
        return bool(fl_ctx.get_job_id() == fetch(SIMULATOR, "SimulatorConstants.JOB_NAME"))
    except InternalsError:
        return False


def is_simulated_site(fl_ctx: FLContext) -> bool:
    """Return whether this site's process is part of a simulation, whose server and sites are one person's.

    How the process was started decides; a server could give any job the simulator's id.
    """
    started = getattr(sys.modules["__main__"], "__spec__", None)
    return in_one_process(fl_ctx) or (started is not None and started.name == WORKER)
