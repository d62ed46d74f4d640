# SPDX-License-Identifier: Apache-2.0
"""The folder of a run: a new one for each, and what it holds in the end, whatever the end was.

job/                     the job
log.txt                  the output of all processes
run.json                 what was run, and for how long
results.json             the record; beside it the models, the method's state and the TensorBoard events
workspace/               the engine's; removed in the end
"""

import itertools
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any

from fdg_plugins.controllers.channel import TENSORS_FILE
from fdg_plugins.controllers.rounds import STATE_FILE
from fdg_plugins.errors import DataError
from fdg_plugins.record.run_files import EVENTS_FOLDER, LAST_FILE, LOCAL_FOLDER, RESULTS_FILE, SELECTED_FILE
from fdg_plugins.storage import read_json, write_json
from fdg_plugins.sweep.store import RUN_FILE, WORKSPACE

RUNS = Path("runs")
KEPT = (RESULTS_FILE, LAST_FILE, SELECTED_FILE, LOCAL_FOLDER, STATE_FILE, TENSORS_FILE, EVENTS_FOLDER)


def check_new(to: Path | None) -> None:
    """Raise ``DataError`` unless ``to`` is None, does not exist, or is an empty folder."""
    if to is not None and not _is_free(to):
        raise DataError(f"{to} exists already, expected a new or an empty folder for the run.")


def _is_free(to: Path) -> bool:
    with _writing(to):
        return not (any(to.iterdir()) if to.is_dir() else to.exists())


def make_folder(to: Path | None, name: str, now: datetime) -> Path:
    """Make the folder of a run, and return it as it was named: ``to``, or a new one in ``runs``, called ``name``.

    Raises ``DataError`` if ``to`` exists and is not empty, or if no folder can be made.
    """
    check_new(to)
    if to is not None:
        with _writing(to):
            to.mkdir(parents=True, exist_ok=True)
        return to
    stem = RUNS / f"{name}-{now:%Y%m%d-%H%M%S}"
    numbered = (stem.with_name(f"{stem.name}-{number}") for number in itertools.count(2))
    with _writing(stem):
        return next(folder for folder in itertools.chain([stem], numbered) if _is_made(folder))


def _is_made(folder: Path) -> bool:
    """Make a folder and return whether it is new; another run that begins now may have made it first."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    try:
        folder.mkdir()
    except FileExistsError:
        return False
    return True


def settle(folder: Path, results: Path, content: dict[str, Any], reason: str | None) -> None:
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
    with _writing(folder):
        for name in filter(lambda name: (left / name).exists(), KEPT):
            (left / name).rename(folder / name)
        shutil.rmtree(folder / WORKSPACE, ignore_errors=True)
    write_json(folder / RUN_FILE, content)
    if reason is not None and (folder / RESULTS_FILE).exists():
        _mark_stopped(folder / RESULTS_FILE, reason)


def _mark_stopped(file: Path, reason: str) -> None:
    """Say in a record why its run was ended, if it says that it is running: whoever was killed could not say so."""
    record = read_json(file)
    if isinstance(record, dict) and record.get("status") == "running":
        write_json(file, {**record, "status": "stopped", "stopped_because": reason})


@contextmanager
def _writing(folder: Path) -> Iterator[None]:
    """Turn a file system error into a ``DataError`` that names the folder."""
    try:
        yield
    except OSError as error:
        raise DataError(f"folder {folder} cannot be written: {error.strerror}.") from error
