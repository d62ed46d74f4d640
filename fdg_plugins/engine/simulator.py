# SPDX-License-Identifier: Apache-2.0
"""FLARE's simulator as an engine: server and sites in processes of one machine, as in the runs of a sweep."""

from pathlib import Path

from fdg_plugins.engine.engine import CommandEngine
from fdg_plugins.sweep.jobs import FederatedRuns
from fdg_plugins.sweep.store import check_folder


class SimulatorEngine(CommandEngine):
    """Executes a job by the bare command ``nvflare simulator``."""

    title = "FLARE's simulator"
    kind = FederatedRuns
    results = kind.record_folder

    def check_folder(self, folder: Path) -> None:
        """Refuse a path that the simulator would split."""
        check_folder(folder)
