# SPDX-License-Identifier: Apache-2.0
"""The engines by name: FLARE's simulator, one process, and a federation that is provisioned for the run."""

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType

from fdg_plugins.lab.engine.names import EngineName
from fdg_plugins.lab.poc.kits import check_folder
from fdg_plugins.lab.sweep.folder import JOB, WORKSPACE
from fdg_plugins.lab.sweep.kinds import FEDERATED, IN_ONE_PROCESS, FederatedRuns
from fdg_plugins.lab.sweep.machine import STATE
from fdg_plugins.lab.sweep.plan import PlannedRun

# A module that is higher in the order of imports; it is run, not imported.
FEDERATION = (sys.executable, "-P", "-m", "fdg_plugins.cli.one_federation")
RESULTS = "results"


class ProvisionedRuns(FederatedRuns):
    """Runs in a federation that is provisioned, started and ended for each: participants authenticate each other."""

    title = "a federation of its own"
    results = Path(WORKSPACE, RESULTS)

    def words(self, run: PlannedRun, at_once: int, sites: int) -> Sequence[str]:
        """Return the command that executes the job; every site computes when it has a task, whatever ``at_once``."""
        return (*FEDERATION, JOB, WORKSPACE, STATE)

    def check_path(self, folder: Path) -> None:
        """Refuse a path that FLARE's start scripts would split."""
        check_folder(folder.absolute())


ENGINES: Mapping[EngineName, FederatedRuns] = MappingProxyType(
    {EngineName.SIMULATOR: FEDERATED, EngineName.PROCESS: IN_ONE_PROCESS, EngineName.POC: ProvisionedRuns()}
)
