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
from fdg_plugins.record.run_files import RESULTS_FILE, RUNS, TRACKED, gather, make_run_folder
from fdg_plugins.storage import locked, writing

JOB = "job"
WORKSPACE = "workspace"
RUN_FILE = "run.json"
SHELL_SIGNS = "\"'\\*?[]$`&;|<>()#"  # that split a path in FLARE's start scripts


def check_signs(folder: Path, signs: str) -> None:
    """Raise ``SettingsError`` for a path with blanks or one of ``signs``: FLARE puts paths into commands unquoted."""
    if any(sign.isspace() or sign in signs for sign in str(folder)):
        expected = f"a path without blanks and {signs}, at which FLARE splits it"
        raise SettingsError(field="folder", value=folder, expected=expected)


def check_new(to: Path | None) -> None:
    """Raise ``DataError`` unless ``to`` is None, does not exist, or is an empty folder."""
    if to is not None:
        with writing(to):
            taken = any(to.iterdir()) if to.is_dir() else to.exists()
        if taken:
            raise DataError(f"{to} exists already, expected a new or an empty folder for the run.")


def make_folder(to: Path | None, name: str, now: datetime) -> Path:
    """Make the folder of a run, and return it: ``to``, or a new one in ``runs``, called ``name``."""
    check_new(to)
    with writing(to or RUNS):
        if to is None:
            return make_run_folder(RUNS, name, now)
        to.mkdir(parents=True, exist_ok=True)
        return to


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
    with held(folder / STATE / ".lock", f"the run in {folder}"):
        if finished_record(folder / RESULTS_FILE) is not None:
            shutil.rmtree(folder / STATE, ignore_errors=True)
            raise DataError(f"the run in {folder} has finished: there is nothing to resume.")
        yield


def end_earlier(folder: Path, results: Path) -> bool:
    """End the execution of the run that a killed command has left; return whether it has finished nevertheless.

    Its results are then still in ``results``, relative to the folder, for :func:`settle`. Of others, what cannot be
    computed again from a checkpoint is kept, and the workspace removed.
    """
    end_processes(folder.absolute())
    has_finished = finished_record(folder / results / RESULTS_FILE) is not None
    if not has_finished:
        _clear(folder, results, TRACKED)
    return has_finished


def settle(folder: Path, results: Path, names: Sequence[str], *, finished: bool) -> None:
    """Leave those of ``names`` in ``folder`` that an ended run has produced, and what it needs to be resumed."""
    _clear(folder, results, names)
    if finished or not any((folder / STATE).glob(f"*/*/*/{CHECKPOINT_FILE}")):
        shutil.rmtree(folder / STATE, ignore_errors=True)


def _clear(folder: Path, results: Path, names: Sequence[str]) -> None:
    with writing(folder):
        gather(folder / results, folder, names)
    shutil.rmtree(folder / WORKSPACE, ignore_errors=True)
