# SPDX-License-Identifier: Apache-2.0
"""Detects whether a job runs in FLARE's simulator, which uses one job id for all jobs, or as one process."""

import sys
from typing import Any

from nvflare.apis.fl_context import FLContext

from fdg_plugins.flare.internals import fetch

WORKER = "nvflare.private.fed.app.simulator.simulator_worker"  # the module of a simulated site's process


def in_simulator(fl_ctx: FLContext) -> bool:
    """Return whether FLARE's simulator runs the job, or an engine of this package with its rules."""
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
