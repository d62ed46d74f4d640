# SPDX-License-Identifier: Apache-2.0
"""Federated runs in one process each: the same jobs as for FLARE's simulator, with the same bits."""

import sys
from collections.abc import Sequence
from pathlib import Path

from fdg_plugins.lab.sweep.jobs import FederatedRuns
from fdg_plugins.lab.sweep.plan import PlannedRun
from fdg_plugins.lab.sweep.request import DataFound
from fdg_plugins.lab.sweep.run_kind import Written
from fdg_plugins.lab.sweep.store import JOB, WORKSPACE

# A module that is higher in the order of imports; it is run, not imported.
PROGRAM = (sys.executable, "-P", "-m", "fdg_plugins.lab.engine.one_process")


class OneProcessRuns(FederatedRuns):
    """Server and sites of a federation as one process, in which one site computes at a time; with workers, several."""

    program = "the one-process engine"

    def write_job(self, run: PlannedRun, data: DataFound, working: Path) -> Written:
        """Write the job; its single process uses all cores of the run."""
        return super().write_job(run, data, working)._replace(processes=1)

    def command(self, run: PlannedRun, threads: int, sites: int) -> Sequence[str]:
        """Return the command that runs the job in one process; its sites compute in ``threads`` workers if several."""
        return (*PROGRAM, JOB, WORKSPACE, *([str(threads)] if threads > 1 else []))
