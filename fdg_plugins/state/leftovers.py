# SPDX-License-Identifier: Apache-2.0
"""Finds the folders that runs left in a participant's state folder, and those no longer in use.

These belong to interrupted runs, which might be resumed, to aborted jobs, at sites to finished ones, or to runs in
progress. A folder may be removed only if no job at the server holds it, and it has not changed for at least a day:
every task changes it. One that is named may go after an hour.
"""

import os
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from fdg_plugins.errors import DataError, SettingsError
from fdg_plugins.state.folders import FOLDER, is_run
from fdg_plugins.state.hold import is_held
from fdg_plugins.values import counted

DAY_S = 86_400
HOUR_S = 3_600
OFFLOAD_FOLDERS = "nvflare_tensor_offload_*"  # FLARE's name


class Leftover(NamedTuple):
    """One entry of a state folder: its path, its size in bytes, the time of its last change (seconds since the epoch),
    and the reason to keep it (None: it may be removed)."""

    path: Path
    num_bytes: int
    changed: float
    kept_because: str | None


def state_folders(place: Path) -> list[Path]:
    """Return the state folders of the participants at ``place``: one kit, or a folder with several participants.

    The latter can be a simulator's workspace. Raises ``DataError`` naming the place if it is neither, or naming a state
    folder that is a symbolic link, since links are not followed.
    """
    if not place.is_dir():
        raise DataError(f"folder {place} is not there, expected a participant's kit or a simulator's workspace.")
    found = _state_folders_at(place)
    if not found and not any((place / part).is_dir() for part in ("startup", "local")):
        raise DataError(
            f"folder {place} holds no {FOLDER}, and no folder right below it does: expected a participant's kit or a "
            "simulator's workspace."
        )
    return found


def _state_folders_at(place: Path) -> list[Path]:
    """Return the state folder of ``place`` itself, or those right below it; raise ``DataError`` for a link."""
    own = place / FOLDER
    found = [own] if os.path.lexists(own) else sorted(place.glob(f"*/{FOLDER}"))
    for folder in found:
        if not _is_real_folder(folder):
            raise DataError(f"{folder} is a link or not a folder, expected a participant's folder of run states.")
    return found


def leftovers(place: Path, older_than_days: float = 1.0, run: str | None = None) -> list[Leftover]:
    """Return the entries that runs left at ``place``, in order of name, each with the reason to keep it, if any.

    Args:
        place: a participant's kit, or a simulator's workspace.
        older_than_days: minimum time since a folder's last change, in days, at least 1.
        run: consider only this run, and ask for an hour instead.

    Raises ``SettingsError`` for an argument out of range, ``DataError`` if ``place`` is not a participant's folder.
    """
    _check_query(older_than_days, run)
    age_s = HOUR_S if run is not None else older_than_days * DAY_S
    found = []
    for path in (path for folder in state_folders(place) for path in sorted(folder.iterdir())):
        if run in (None, path.name):
            with suppress(FileNotFoundError):  # its run has finished meanwhile
                num_bytes, changed = _size_and_change(path)
                found.append(Leftover(path, num_bytes, changed, _why_kept(path, changed, age_s)))
    return found


def _check_query(older_than_days: float, run: str | None) -> None:
    if not older_than_days >= 1:
        raise SettingsError(f"older-than is {older_than_days:g} days, expected at least 1.")
    if run is not None and not is_run(run):
        raise SettingsError(f"run is {run!r}, expected the id of a job.")


def offload_folders(temporary: Path) -> list[Path]:
    """Return FLARE's folders of offloaded tensors: those of running jobs, and those left by killed servers."""
    return sorted(filter(_is_real_folder, temporary.glob(OFFLOAD_FOLDERS)))


def _is_real_folder(path: Path) -> bool:
    """Return whether ``path`` is a folder itself, not a symbolic link to one."""
    return path.is_dir() and not path.is_symlink()


def _why_kept(path: Path, changed: float, age_s: float) -> str | None:
    """Return the reason to keep a run's folder; None if no job holds it and it is unchanged for ``age_s`` seconds."""
    if not _is_real_folder(path) or not is_run(path.name):
        return "it is not the folder of a run"
    if is_held(path):
        return "a job holds it"
    if time.time() - changed < age_s:
        return f"it has changed within the last {'hour' if age_s == HOUR_S else counted(age_s / DAY_S, 'day')}"
    return None


def _size_and_change(path: Path) -> tuple[int, float]:
    """Return a folder's total size in bytes and the time of the last change in it; links are not followed."""
    own = path.lstat()
    if not _is_real_folder(path):
        return (0 if path.is_dir() else own.st_size), own.st_mtime
    return _size_and_change_below(path, own.st_mtime)


def _size_and_change_below(path: Path, changed: float) -> tuple[int, float]:
    """Return the total size of the entries below ``path``, and the time of their last change or ``changed``."""
    num_bytes = 0
    try:
        for size, when in _sizes_and_changes_below(path):
            num_bytes += size
            changed = max(changed, when)
    except FileNotFoundError:  # an active run replaces its files
        changed = time.time()
    return num_bytes, changed


def _sizes_and_changes_below(path: Path) -> Iterator[tuple[int, float]]:
    """Yield the size in bytes, 0 for a folder, and the time of the last change of each entry below ``path``."""
    for folder, folders, files in os.walk(path):
        yield from ((0, Path(folder, name).lstat().st_mtime) for name in folders)
        for name in files:
            found = Path(folder, name).lstat()
            yield found.st_size, found.st_mtime
