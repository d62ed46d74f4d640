# SPDX-License-Identifier: Apache-2.0
"""The one-process engine: server and sites as objects of one process, for research on one machine."""

from pathlib import Path

from fdg_plugins.engine.engine import Engine, Launch
from fdg_plugins.sweep.one_process import OneProcessRuns
from fdg_plugins.sweep.run_process import RunProcess


class ProcessEngine(Engine):
    """Executes a job by :mod:`fdg_plugins.engine.one_process`, in a process that it starts, with workers if asked."""

    title = "one process"
    results = OneProcessRuns.record_folder
    processes = 1

    def check_folder(self, folder: Path) -> None:
        """Accept any path."""

    def start(self, launch: Launch) -> RunProcess:
        """Start the process, in a session of its own."""
        kind = OneProcessRuns()
        command = kind.command(launch.run, launch.at_once, launch.sites)
        return RunProcess(launch.run, kind, launch.folder, command, launch.environment)
