# SPDX-License-Identifier: Apache-2.0
"""The folder of a run: a new one for each, and what it holds in the end, whatever the end was.

job/                     the job
log.txt                  the output of all processes
run.json                 what was run, and for how long
results.json             the record; beside it the models, the method's state and the TensorBoard events
workspace/               the engine's; removed in the end
state/                   what server and sites need to resume the run; removed when it has finished
"""

import shutil
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any

from fdg_plugins.controllers.kept_results import KEPT
from fdg_plugins.errors import DataError
from fdg_plugins.lab.sweep.processes import end_processes
from fdg_plugins.lab.sweep.store import RUN_FILE, STATE, WORKSPACE, can_resume, finished_record
from fdg_plugins.record.left_files import TRACKED, gather
from fdg_plugins.record.run_files import RESULTS_FILE
from fdg_plugins.record.run_folder import RUNS, make_run_folder
from fdg_plugins.storage import locked, read_json, write_json, writing

_LOCK_FILE = ".lock"


def check_new(to: Path | None) -> None:
    """Raise ``DataError`` unless ``to`` is None, does not exist, or is an empty folder."""
    if to is not None and not _is_free(to):
        raise DataError(f"{to} exists already, expected a new or an empty folder for the run.")


def _is_free(to: Path) -> bool:
    with writing(to):
        return not (any(to.iterdir()) if to.is_dir() else to.exists())


def make_folder(to: Path | None, name: str, now: datetime) -> Path:
    """Make the folder of a run, and return it as it was named: ``to``, or a new one in ``runs``, called ``name``.

    Raises ``DataError`` if ``to`` exists and is not empty, or if no folder can be made.
    """
    check_new(to)
    if to is not None:
        with writing(to):
            to.mkdir(parents=True, exist_ok=True)
        return to
    with writing(RUNS):
        return make_run_folder(RUNS, name, now)


@contextmanager
def held(folder: Path, results: Path) -> Iterator[dict[str, Any] | None]:
    """Hold a run's folder for this process, without the workspace that a killed execution of the run has left.

    What that execution has tracked stays. Yields None; or the record, unchecked, if it has finished nevertheless, since
    its processes went on: its results are then still in ``results``, relative to the folder, for :func:`settle`. Raises
    ``DataError`` if another process executes the run.
    """
    with ExitStack() as stack:
        with writing(folder):  # and not during the run, whose errors are others
            (folder / STATE).mkdir(mode=0o700, exist_ok=True)
            try:
                stack.enter_context(locked(folder / STATE / _LOCK_FILE, wait=False))
            except BlockingIOError as error:
                raise DataError(f"the run in {folder} is still going on, expected one that was stopped.") from error
        end_processes(folder.absolute())
        if finished_record(folder / RESULTS_FILE) is not None:  # since it was last looked at
            shutil.rmtree(folder / STATE, ignore_errors=True)
            raise DataError(f"the run in {folder} has finished: there is nothing to go on with.")
        found = finished_record(folder / results / RESULTS_FILE)
        if found is None:
            with writing(folder):
                gather(folder / results, folder, TRACKED)
            shutil.rmtree(folder / WORKSPACE, ignore_errors=True)
        yield found


def settle(folder: Path, results: Path, content: Mapping[str, Any], reason: str | None) -> None:
    """Leave in ``folder`` what an ended run has produced, and nothing else.

    Args:
        folder: the run's folder; none of its processes may be left.
        results: the folder in which the run has left its results, relative to it.
        content: what ``run.json`` is to contain.
        reason: why the run did not finish; None: it did. A record that does not say so yet then does.

    Raises:
        DataError: if a file cannot be moved or written.
    """
    left = folder / results
    with writing(folder):
        gather(left, folder, KEPT)
        shutil.rmtree(folder / WORKSPACE, ignore_errors=True)
        if reason is None or not can_resume(folder):
            shutil.rmtree(folder / STATE, ignore_errors=True)
    write_json(folder / RUN_FILE, dict(content))
    if reason is not None and (folder / RESULTS_FILE).exists():
        _mark_stopped(folder / RESULTS_FILE, reason)


def _mark_stopped(file: Path, reason: str) -> None:
    """Say in a record why its run was ended, if it says that it is running: whoever was killed could not say so."""
    try:
        record = read_json(file)
    except DataError:  # a damaged file, which the run would have replaced from its state
        return
    if isinstance(record, dict) and record.get("status") == "running":
        write_json(file, {**record, "status": "stopped", "stopped_because": reason})
