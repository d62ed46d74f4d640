# SPDX-License-Identifier: Apache-2.0
"""The folder of a run: what it holds while the run goes on, and in the end, whatever the end was.

job/                     the job
log.txt                  the output of all processes
run.json                 what was run, and for how long
results.json             the record; beside it the models, the method's state and what trackers wrote
workspace/               the engine's; removed in the end
state/                   what server and sites need to resume the run; removed when it has finished
"""

import shutil
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from datetime import datetime
from pathlib import Path

from fdg_plugins.errors import DataError, SettingsError
from fdg_plugins.lab.sweep.machine import STATE
from fdg_plugins.lab.sweep.processes import end_processes, finished_record
from fdg_plugins.record.checkpoint import CHECKPOINT_FILE
from fdg_plugins.record.left_files import TRACKED, gather
from fdg_plugins.record.run_files import RESULTS_FILE, RUNS, make_run_folder
from fdg_plugins.storage import locked, writing

JOB = "job"
WORKSPACE = "workspace"
RUN_FILE = "run.json"
_LOCK_FILE = ".lock"


def check_new(to: Path | None) -> None:
    """Raise ``DataError`` unless ``to`` is None, does not exist, or is an empty folder."""
    if to is not None:
        with writing(to):
            taken = any(to.iterdir()) if to.is_dir() else to.exists()
        if taken:
            raise DataError(f"{to} exists already, expected a new or an empty folder for the run.")


def make_folder(to: Path | None, name: str, now: datetime) -> Path:
    """Make the folder of a run, and return it as it was named: ``to``, or a new one in ``runs``, called ``name``.

    Raises ``DataError`` if ``to`` exists and is not empty, or if no folder can be made.
    """
    check_new(to)
    with writing(to or RUNS):
        if to is None:
            return make_run_folder(RUNS, name, now)
        to.mkdir(parents=True, exist_ok=True)
        return to


def check_path(folder: Path) -> None:
    """Reject a path that FLARE's simulator would split: it inserts the path into a command line without quotes."""
    if any(sign.isspace() or sign in "\"'\\#" for sign in str(folder.absolute())):
        expected = "a path without spaces, quotes, \\ and #, which FLARE's simulator cannot take"
        raise SettingsError(field="folder", value=str(folder.absolute()), expected=expected)


@contextmanager
def held(file: Path, what: str) -> Iterator[None]:
    """Hold the lock ``file`` for this process, however it ends; raise ``DataError`` if another one holds it."""
    with ExitStack() as stack:
        with writing(file.parent):  # and not during the block, whose errors are others
            file.parent.mkdir(mode=0o700 if file.parent.name == STATE else 0o777, parents=True, exist_ok=True)
            try:
                stack.enter_context(locked(file, wait=False))
            except BlockingIOError as error:
                raise DataError(f"{what} is in use by another command, expected one that was stopped.") from error
        yield


@contextmanager
def held_run(folder: Path) -> Iterator[None]:
    """Hold a run's folder for this process; raise ``DataError`` if another one executes the run, or it has finished."""
    with held(folder / STATE / _LOCK_FILE, f"the run in {folder}"):
        if finished_record(folder / RESULTS_FILE) is not None:
            shutil.rmtree(folder / STATE, ignore_errors=True)
            raise DataError(f"the run in {folder} has finished: there is nothing to go on with.")
        yield


def end_earlier(folder: Path, results: Path) -> bool:
    """End the execution of the run that a killed command has left; return whether it has finished nevertheless.

    Its results are then still in ``results``, relative to the folder, for :func:`settle`. Of others, what cannot be
    computed again from a checkpoint is kept, and the workspace removed.
    """
    end_processes(folder.absolute())
    if finished_record(folder / results / RESULTS_FILE) is not None:
        return True
    with writing(folder):
        gather(folder / results, folder, TRACKED)
    shutil.rmtree(folder / WORKSPACE, ignore_errors=True)
    return False


def settle(folder: Path, results: Path, names: Sequence[str], *, finished: bool) -> None:
    """Leave those of ``names`` in ``folder`` that an ended run has produced, and what it needs to be resumed.

    None of its processes may be left. Raises ``DataError`` if a file cannot be moved.
    """
    with writing(folder):
        gather(folder / results, folder, names)
    shutil.rmtree(folder / WORKSPACE, ignore_errors=True)
    if finished or not any((folder / STATE).glob(f"*/*/*/{CHECKPOINT_FILE}")):
        shutil.rmtree(folder / STATE, ignore_errors=True)
