# SPDX-License-Identifier: Apache-2.0
"""The engines by name: FLARE's simulator, one process, and a federation that is provisioned for the run."""

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType

from fdg_plugins.lab.engine.engine import Engine
from fdg_plugins.lab.engine.names import EngineName
from fdg_plugins.lab.poc import kits
from fdg_plugins.lab.sweep import store
from fdg_plugins.lab.sweep.jobs import FederatedRuns
from fdg_plugins.lab.sweep.one_process import OneProcessRuns
from fdg_plugins.lab.sweep.plan import PlannedRun

# A module that is higher in the order of imports; it is run, not imported.
FEDERATION = (sys.executable, "-P", "-m", "fdg_plugins.cli.one_federation")
RESULTS = "results"


class SimulatorEngine(Engine):
    """Executes a job by the bare command ``nvflare simulator``: server and sites in processes of their own."""

    title = "FLARE's simulator"
    kind = FederatedRuns

    def check_folder(self, folder: Path) -> None:
        """Refuse a path that the simulator would split."""
        store.check_folder(folder)


class ProcessEngine(Engine):
    """Executes a job by :mod:`fdg_plugins.lab.engine.one_process`, in a process that it starts, with workers if asked.

    Server and sites are objects of one process, for research on one machine.
    """

    title = "one process"
    kind = OneProcessRuns
    processes = 1

    def check_folder(self, folder: Path) -> None:
        """Accept any path."""


class ProvisionedRuns(FederatedRuns):
    """Runs in a federation that is provisioned, started and ended for each."""

    program = "the federation"
    record_folder = Path(store.WORKSPACE, RESULTS)

    def command(self, run: PlannedRun, threads: int, sites: int) -> Sequence[str]:
        """Return the command that executes the job; every site computes when it has a task, whatever ``threads``."""
        return (*FEDERATION, store.JOB, store.WORKSPACE, store.STATE)


class PocEngine(Engine):
    """Executes a job by :mod:`fdg_plugins.cli.one_federation`, in processes of which it starts the first.

    They are separate, and authenticate each other.
    """

    title = "a federation of its own"
    kind = ProvisionedRuns

    def check_folder(self, folder: Path) -> None:
        """Refuse a path that FLARE's start scripts would split."""
        kits.check_folder(folder.absolute())


ENGINES: Mapping[EngineName, Engine] = MappingProxyType(
    {EngineName.SIMULATOR: SimulatorEngine(), EngineName.PROCESS: ProcessEngine(), EngineName.POC: PocEngine()}
)
