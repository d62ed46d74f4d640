# SPDX-License-Identifier: Apache-2.0
"""Finds the folders that runs left in a participant's state folder, and those no longer in use.

These belong to interrupted runs, which might be resumed, to aborted jobs, at sites to finished ones, or to runs in
progress. A folder may be removed only if it has not changed for at least a day: every task changes it. One that is
named may go after an hour.
"""

import os
import stat
import time
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from fdg_plugins.errors import DataError, SettingsError
from fdg_plugins.state.folders import FOLDER, is_run

DAY_S, HOUR_S = 86_400, 3_600


class Leftover(NamedTuple):
    """One entry of a state folder: its path, its size in bytes, the time of its last change (seconds since the epoch),
    and the reason to keep it (None: it may be removed)."""

    path: Path
    num_bytes: int
    changed: float
    kept_because: str | None


def leftovers(place: Path, run: str | None = None) -> list[Leftover]:
    """Return the entries that runs left at ``place``, in order of name, each with the reason to keep it, if any.

    ``place``: a participant's kit, or a simulator's workspace, which has several participants. ``run``: consider only
    this run, and ask for an hour instead of a day. Raises ``SettingsError`` if ``run`` is not a job's id, ``DataError``
    if ``place`` is not a participant's folder, or for a state folder that is a link: links are not followed.
    """
    if run is not None and not is_run(run):
        raise SettingsError(field="run", value=run, expected="the id of a job")
    own = place / FOLDER
    folders = [own] if os.path.lexists(own) else sorted(place.glob(f"*/{FOLDER}"))
    if not folders and not any((place / part).is_dir() for part in ("startup", "local")):
        raise DataError(field="folder", value=place, expected="a participant's kit or a simulator's workspace")
    if links := [folder for folder in folders if not _is_real_folder(folder)]:
        raise DataError(field="folder", value=links[0], expected="a folder of run states, not a link")
    found = []
    for path in (path for folder in folders for path in sorted(folder.iterdir()) if run in (None, path.name)):
        with suppress(FileNotFoundError):  # its run has finished meanwhile
            found.append(_leftover(path, DAY_S if run is None else HOUR_S))
    return found


def _is_real_folder(path: Path) -> bool:
    return path.is_dir() and not path.is_symlink()


def _leftover(path: Path, age_s: float) -> Leftover:
    inside = [Path(root, name) for root, folders, files in os.walk(path) for name in (*folders, *files)]
    found = [one.lstat() for one in (path, *([] if path.is_symlink() else inside))]
    changed, why = max(one.st_mtime for one in found), None
    if not _is_real_folder(path) or not is_run(path.name):
        why = "it is not the folder of a run"
    elif time.time() - changed < age_s:
        why = f"it has changed within the last {'hour' if age_s == HOUR_S else '1 day'}"
    return Leftover(path, sum(one.st_size for one in found if not stat.S_ISDIR(one.st_mode)), changed, why)
