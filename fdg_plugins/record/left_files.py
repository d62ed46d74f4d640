# SPDX-License-Identifier: Apache-2.0
"""Moves what a part of a run has left to what its earlier parts have left: a run that is resumed has several."""

import itertools
from collections.abc import Iterable
from pathlib import Path

from fdg_plugins.flare.trackers import MLFLOW_FILE, WANDB_FOLDER
from fdg_plugins.record.run_files import EVENTS_FOLDER

TRACKED = (EVENTS_FOLDER, MLFLOW_FILE, WANDB_FOLDER)
"""What cannot be computed again from a checkpoint: the metrics of the rounds before it."""


def gather(left: Path, folder: Path, names: Iterable[str]) -> None:
    """Move those of ``names`` that exist in ``left`` to ``folder``; raise ``OSError`` if one cannot be moved.

    A file replaces the earlier one, and the content of a folder is added to that of the earlier one. MLflow's database
    gets a number (``mlflow-2.db``) beside earlier ones, since each has the rounds of its part only.
    """
    for name in names:
        target = folder / name
        if name == MLFLOW_FILE:
            numbered = (target.with_stem(f"{target.stem}-{number}") for number in itertools.count(2))
            target = next(path for path in itertools.chain([target], numbered) if not path.exists())
        for end in ("", "-journal"):  # from which SQLite mends a database whose process was killed
            if (source := left / f"{name}{end}").exists():
                _move(source, target.with_name(target.name + end))


def _move(source: Path, target: Path) -> None:
    """Move a file or a link, replacing the target, or the content of a folder into the target."""
    if source.is_symlink() or not (source.is_dir() and target.is_dir()):
        source.rename(target)
        return
    for path in source.iterdir():
        _move(path, target / path.name)
