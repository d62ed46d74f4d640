# SPDX-License-Identifier: Apache-2.0
"""FLARE's simulator as an engine: server and sites in processes of one machine, as in the runs of a sweep."""

from pathlib import Path

from fdg_plugins.engine.engine import Engine, Launch
from fdg_plugins.sweep.jobs import FederatedRuns
from fdg_plugins.sweep.run_process import RunProcess
from fdg_plugins.sweep.store import check_folder


class SimulatorEngine(Engine):
    """Executes a job by the bare command ``nvflare simulator``."""

    title = "FLARE's simulator"
    results = FederatedRuns.record_folder

    def check_folder(self, folder: Path) -> None:
        """Refuse a path that the simulator would split."""
        check_folder(folder)

    def start(self, launch: Launch) -> RunProcess:
        """Start the simulator, in a session of its own."""
        kind = FederatedRuns()
        command = kind.command(launch.run, launch.at_once, launch.sites)
        return RunProcess(launch.run, kind, launch.folder, command, launch.environment)
