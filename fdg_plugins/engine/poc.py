# SPDX-License-Identifier: Apache-2.0
"""A federation of its own as an engine: provisioned for one run, separate processes that authenticate each other."""

import sys
from collections.abc import Sequence
from pathlib import Path

from fdg_plugins.engine.engine import CommandEngine
from fdg_plugins.poc.kits import check_folder
from fdg_plugins.sweep.jobs import FederatedRuns
from fdg_plugins.sweep.plan import PlannedRun
from fdg_plugins.sweep.store import JOB, STATE, WORKSPACE

# A module that is higher in the order of imports; it is run, not imported.
PROGRAM = (sys.executable, "-P", "-m", "fdg_plugins.cli.one_federation")
RESULTS = "results"


class ProvisionedRuns(FederatedRuns):
    """Runs in a federation that is provisioned, started and ended for each."""

    program = "the federation"
    record_folder = Path(WORKSPACE, RESULTS)

    def command(self, run: PlannedRun, threads: int, sites: int) -> Sequence[str]:
        """Return the command that executes the job; every site computes when it has a task, whatever ``threads``."""
        return (*PROGRAM, JOB, WORKSPACE, STATE)


class PocEngine(CommandEngine):
    """Executes a job by :mod:`fdg_plugins.cli.one_federation`, in processes of which it starts the first."""

    title = "a federation of its own"
    kind = ProvisionedRuns
    results = kind.record_folder

    def check_folder(self, folder: Path) -> None:
        """Refuse a path that FLARE's start scripts would split."""
        check_folder(folder.absolute())
