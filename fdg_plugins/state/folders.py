# SPDX-License-Identifier: Apache-2.0
"""The folder of a run's state, at the server and at every site, next to FLARE's job folders.

A run can outlive its job and be resumed by another job; its name is the id of the job that started it. Its state is
derived from data, so only the owner can enter the folder. The server's is removed when the run has finished, a site's
when no task has used it for a month, either by ``fdg kit clean``.

FLARE's simulator erases its whole workspace when it starts. ``FDG_STATE`` therefore names another place for the state
of the run of one simulation, as ``fdg run`` and ``fdg sweep`` do; a run that finds its own state there is resumed.
"""

import contextlib
import os
import re
import shutil
import stat
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from nvflare.apis.job_def import JobMetaKey
from nvflare.apis.workspace import Workspace

from fdg_plugins.errors import DataError, SettingsError
from fdg_plugins.storage import locked, make_private_folder, read_json, user_path, write_json, writing

FOLDER = "fdg_state"
VARIABLE = "FDG_STATE"
DAY_S, HOUR_S = 86_400, 3_600
EXPIRY_S = 30 * DAY_S
OWNER_FILE = "owner.json"
ADMINISTRATOR = "project_admin"  # FLARE's role that may do anything with any job
PATIENCE_S = 60.0  # the process of a job outlives a server that was killed by some seconds
POLL_S = 0.2

_RUN = re.compile(r"[A-Za-z0-9_-]{1,64}")


def state_folder(workspace: Workspace, run: str) -> Path:
    """Return a run's folder in a participant's workspace, or in the place that ``FDG_STATE`` names.

    In that place, each participant has a folder by its name: in containers, all have a workspace of one path. Raises
    ``SettingsError`` if ``run`` is not a valid job id.
    """
    if not is_run(run):
        raise SettingsError(field="run", value=run, expected="the id of a job", public=True)
    return _place(workspace) / run


def _place(workspace: Workspace) -> Path:
    root, elsewhere = Path(workspace.get_root_dir()), os.environ.get(VARIABLE, "").strip()
    if elsewhere:
        root = user_path(elsewhere, os.environ) / Path(workspace.site_name or root).name
    return root / FOLDER


def is_run(name: object) -> bool:
    """Return whether ``name`` is a valid job id: 1 to 64 letters, digits, hyphens and underscores."""
    return isinstance(name, str) and _RUN.fullmatch(name) is not None


def mark_in_use(folder: Path) -> None:
    """Update the folder's modification time, so that ``fdg kit clean`` sees an active run even if no file changes."""
    with contextlib.suppress(OSError):
        os.utime(folder)


def remove_expired(workspace: Workspace) -> None:
    """Remove the folders of runs that no task has used for ``EXPIRY_S``, as far as possible."""
    for folder in _place(workspace).glob("*"):
        if is_run(folder.name) and time.time() - folder.lstat().st_mtime > EXPIRY_S:
            shutil.rmtree(folder, ignore_errors=True)


def remove_state(folder: Path) -> None:
    """Remove the folder of a finished run if it exists; a symbolic link in its place is not followed."""
    with contextlib.suppress(FileNotFoundError):
        shutil.rmtree(folder)


@contextlib.contextmanager
def held_run(folder: Path, meta: Mapping[str, Any], is_aborted: Callable[[], bool]) -> Iterator[None]:
    """Hold a run's state at the server for one job; it is removed in the end if the run has left nothing there.

    A job config may name any run to resume. Without this, a second job would share the files of one that still
    runs, and anyone who may submit jobs could end up with another person's model. Raises ``DataError`` if another job
    holds the folder for ``PATIENCE_S`` seconds, and if another person started the run.

    ``meta``: that of the job, with the submitter whom FLARE authenticated; without one in a simulation.
    """
    with contextlib.ExitStack() as stack:
        with writing(folder):
            stack.enter_context(_lock(folder, is_aborted))
        _check_owner(folder, meta)
        mark_in_use(folder)
        try:
            yield
        finally:
            if folder.is_dir() and {path.name for path in folder.iterdir()} <= {OWNER_FILE}:
                shutil.rmtree(folder, ignore_errors=True)


def _lock(folder: Path, is_aborted: Callable[[], bool]) -> contextlib.ExitStack:
    deadline, stack = time.monotonic() + PATIENCE_S, contextlib.ExitStack()
    while True:
        make_private_folder(folder)
        with contextlib.suppress(BlockingIOError):
            stack.enter_context(locked(folder, wait=False))
            return stack
        if is_aborted() or time.monotonic() > deadline:
            raise DataError(f"run {folder.name} still goes on in another job, expected one that has ended.")
        time.sleep(POLL_S)


def _check_owner(folder: Path, meta: Mapping[str, Any]) -> None:
    """Note who starts a run; raise ``DataError`` for another person, unless they administrate the project."""
    name, org, role = (
        str(meta.get(key.value) or "")
        for key in (JobMetaKey.SUBMITTER_NAME, JobMetaKey.SUBMITTER_ORG, JobMetaKey.SUBMITTER_ROLE)
    )
    file, own = folder / OWNER_FILE, {"name": name, "org": org}
    if not file.exists():
        write_json(file, own, private=True)
    elif role != ADMINISTRATOR and read_json(file) != own:
        expected = f"its submitter or a {ADMINISTRATOR} to resume it"
        raise DataError(f"run {folder.name} was started by another person, expected {expected}.")


# --- what runs have left ---


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
        with contextlib.suppress(FileNotFoundError):  # its run has finished meanwhile
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
