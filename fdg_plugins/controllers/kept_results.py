# SPDX-License-Identifier: Apache-2.0
"""Keeps the results of a simulation, whose workspace FLARE erases when it simulates again in the same place."""

import os
import shutil
from datetime import datetime
from pathlib import Path

from fdg_plugins.controllers.channel import TENSORS_FILE
from fdg_plugins.controllers.run_files import STATE_FILE
from fdg_plugins.flare.trackers import MLFLOW_FILE, WANDB_FOLDER
from fdg_plugins.record.run_files import (
    EVENTS_FOLDER,
    LAST_FILE,
    LOCAL_FOLDER,
    RESULTS_FILE,
    RUNS,
    SELECTED_FILE,
    make_run_folder,
)
from fdg_plugins.storage import writing

MODELS = (LAST_FILE, SELECTED_FILE, LOCAL_FOLDER)
KEPT = (*MODELS, STATE_FILE, TENSORS_FILE, EVENTS_FOLDER, MLFLOW_FILE, WANDB_FOLDER, RESULTS_FILE)
"""What a run leaves in the folder of its job on the server, whoever keeps it. The record, which may say that the run
has finished, comes last, so that all else is there by then."""


def keep_results(results: Path, workspace: Path, run: str) -> Path:
    """Link what a finished simulation has left in ``results`` into a new folder beside ``workspace``, and return that.

    It is that of ``fdg run``, if the simulator is called where that is. ``run``: the name of the run, to which the time
    is added. The links need no space of their own; on a file system without links, the files are copied. Raises
    ``DataError`` if the folder cannot be written.
    """
    runs = workspace.parent / RUNS
    with writing(runs):
        folder = make_run_folder(runs, run, datetime.now())
        for kept in filter(Path.exists, (results / name for name in KEPT)):
            _link_all(kept, folder / kept.name)
    return folder


def _link_all(source: Path, target: Path) -> None:
    if source.is_dir():
        shutil.copytree(source, target, copy_function=_link)
    else:
        _link(str(source), str(target))


def _link(source: str, target: str) -> None:
    try:
        os.link(source, target)
    except OSError:  # a file system without links
        shutil.copy2(source, target)
