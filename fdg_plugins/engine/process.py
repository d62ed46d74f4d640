# SPDX-License-Identifier: Apache-2.0
"""The one-process engine: server and sites as objects of one process, for research on one machine."""

from pathlib import Path

from fdg_plugins.engine.engine import CommandEngine
from fdg_plugins.sweep.one_process import OneProcessRuns


class ProcessEngine(CommandEngine):
    """Executes a job by :mod:`fdg_plugins.engine.one_process`, in a process that it starts, with workers if asked."""

    title = "one process"
    kind = OneProcessRuns
    results = kind.record_folder
    processes = 1

    def check_folder(self, folder: Path) -> None:
        """Accept any path."""
