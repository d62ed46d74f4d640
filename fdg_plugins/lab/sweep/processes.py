# SPDX-License-Identifier: Apache-2.0
"""All processes of a run. FLARE starts each site's process in a session of its own, so they share no process group,
and once a parent has died, no process tree.

Every process of a run therefore carries the run's working folder in its environment. This mark identifies the
processes, even for a later sweep after one that was killed.
"""

import contextlib
import os
import time
from pathlib import Path

import psutil

from fdg_plugins.errors import DataError

MARK = "SWEEP_RUN_FOLDER"
PATIENCE_S = 20.0
PAUSE_S = 0.05


def processes_below(folder: Path) -> list[psutil.Process]:
    """Return the live processes of all runs whose working folder is ``folder`` or below it, by whatever path."""
    own, place = os.getpid(), folder.resolve()
    return [process for process in psutil.process_iter() if process.pid != own and _works_below(process, place)]


def end_processes(folder: Path) -> None:
    """Kill every process of the runs whose working folder is ``folder`` or below it; return when none is left.

    They are killed at once, because nothing of such a run is needed. Raises ``DataError`` if one does not end.
    """
    deadline = time.monotonic() + PATIENCE_S
    while processes := processes_below(folder):
        for process in processes:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
        if time.monotonic() > deadline:
            ids = ", ".join(str(process.pid) for process in processes)
            raise DataError(f"processes {ids} of the runs in {folder} do not end.")
        time.sleep(PAUSE_S)


def _works_below(process: psutil.Process, folder: Path) -> bool:
    try:
        mark = process.environ().get(MARK)
        if mark is None or process.status() == psutil.STATUS_ZOMBIE:
            return False
        return Path(mark).resolve().is_relative_to(folder)
    except (psutil.Error, OSError):  # it has just ended, or belongs to another user
        return False
