# SPDX-License-Identifier: Apache-2.0
"""A run's state at the server belongs to one job at a time, and to the person who started the run.

A job config may name any run to go on with. Without this, a second job would share the files of one that still runs,
and anyone who may submit jobs could end up with another person's model.
"""

import contextlib
import os
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from nvflare.apis.job_def import JobMetaKey

from fdg_plugins.errors import DataError
from fdg_plugins.state.folders import mark_in_use
from fdg_plugins.storage import has_locked, lock_folder, make_private_folder, read_json, remove_unfinished, write_json

OWNER_FILE = "owner.json"
ADMINISTRATOR = "project_admin"  # FLARE's role that may do anything with any job
PATIENCE_S = 60.0  # the process of a job outlives a server that was killed by some seconds
POLL_S = 0.2


class Submitter(NamedTuple):
    """The person who submitted a job, as FLARE authenticated them; all empty in a simulation."""

    name: str
    org: str
    role: str

    @classmethod
    def of(cls, meta: Mapping[str, Any] | None) -> "Submitter":
        """Return the submitter that is named in a job's meta."""
        keys = (JobMetaKey.SUBMITTER_NAME, JobMetaKey.SUBMITTER_ORG, JobMetaKey.SUBMITTER_ROLE)
        return cls(*(str((meta or {}).get(key.value) or "") for key in keys))


@contextmanager
def held_run(
    folder: Path, submitter: Submitter, is_aborted: Callable[[], bool], patience: float | None = None
) -> Iterator[None]:
    """Hold the state of a run for a job of ``submitter``; it is removed in the end if the run has left nothing there.

    Raises ``DataError`` if another job holds it for ``patience`` seconds (None: ``PATIENCE_S``), if another person
    started the run, and if the folder cannot be made.
    """
    handle = _lock(folder, is_aborted, time.monotonic() + (PATIENCE_S if patience is None else patience))
    try:
        remove_unfinished(folder)
        _check_owner(folder, submitter)
        mark_in_use(folder)
        yield
    finally:
        _remove_unused(folder)
        os.close(handle)


def is_held(folder: Path) -> bool:
    """Return whether a job holds the state of a run."""
    try:
        handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        return not has_locked(handle)
    finally:
        os.close(handle)


def _lock(folder: Path, is_aborted: Callable[[], bool], deadline: float) -> int:
    """Return a descriptor of the folder that holds its lock until it is closed, at the latest with this process."""
    while True:
        try:
            make_private_folder(folder)
            handle = lock_folder(folder)
        except OSError as error:
            raise DataError(f"folder {folder} of the run's state cannot be made: {error.strerror}.") from error
        if handle is not None:
            return handle
        if is_aborted() or time.monotonic() > deadline:
            raise DataError(f"run {folder.name} still goes on in another job, expected one that has ended.")
        time.sleep(POLL_S)


def _check_owner(folder: Path, submitter: Submitter) -> None:
    """Note who starts a run; raise ``DataError`` for another person, unless they administrate the project.

    Whose run an earlier version began is not known: in a federation, only an administrator goes on with it.
    """
    file, own = folder / OWNER_FILE, {"name": submitter.name, "org": submitter.org}
    if not file.exists() and (not any(folder.iterdir()) or not submitter.name):
        write_json(file, own, private=True)
    elif submitter.role != ADMINISTRATOR and (not file.exists() or read_json(file) != own):
        raise DataError(
            f"run {folder.name} was started by another person, expected its submitter or a {ADMINISTRATOR} to go on "
            "with it."
        )


def _remove_unused(folder: Path) -> None:
    with contextlib.suppress(OSError):
        if [path.name for path in folder.iterdir()] == [OWNER_FILE]:
            (folder / OWNER_FILE).unlink()
        folder.rmdir()
