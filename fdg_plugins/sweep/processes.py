# SPDX-License-Identifier: Apache-2.0
"""The processes of a run, from the first to the last: FLARE starts each site's in a session of its own, so that
neither the process group nor, once a parent has died, the tree of the simulator holds them all.

Every process of a run therefore carries the run's working folder in its environment, and is found by it, also by a
later sweep after one that was killed.
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
    """Return the live processes of all runs that work in ``folder`` or below it."""
    own = os.getpid()
    return [process for process in psutil.process_iter() if process.pid != own and _works_below(process, folder)]


def end_processes(folder: Path) -> None:
    """End every process of the runs that work in ``folder`` or below it, and return when there is none.

    Nothing of such a run is of use any more, so they are not asked. Raises ``DataError`` if one does not end.
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
        return mark is not None and process.status() != psutil.STATUS_ZOMBIE and Path(mark).is_relative_to(folder)
    except (psutil.Error, OSError):  # it ended just now, or belongs to somebody else
        return False
