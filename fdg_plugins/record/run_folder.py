# SPDX-License-Identifier: Apache-2.0
"""A new folder for each run, which no other run has."""

import itertools
from datetime import datetime
from pathlib import Path

RUNS = Path("runs")  # below the folder where a run is started
LAYOUT = "%Y%m%d-%H%M%S"


def make_run_folder(parent: Path, run: str, now: datetime) -> Path:
    """Make a folder below ``parent`` that is called after the run and the time, and return it.

    Another run that has begun in the same second keeps its folder: this one gets a number. Raises ``OSError`` if no
    folder can be made.
    """
    stem = parent / f"{run}-{now:{LAYOUT}}"
    numbered = (stem.with_name(f"{stem.name}-{number}") for number in itertools.count(2))
    parent.mkdir(parents=True, exist_ok=True)
    return next(folder for folder in itertools.chain([stem], numbered) if _is_made(folder))


def _is_made(folder: Path) -> bool:
    """Make a folder, and return whether there was none."""
    try:
        folder.mkdir()
    except FileExistsError:
        return False
    return True
