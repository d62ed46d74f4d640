# SPDX-License-Identifier: Apache-2.0
"""What runs have left in a participant's state folder, and which of it is no longer used.

A run that finished has removed its own folder. The others are of runs that broke off, and might be resumed; of jobs
that were aborted; or of runs that go on right now, which nothing in the folder says for certain. So a folder is let go
only if no process names the run, it has not changed since any job process of the participant began, and not for a day.
"""

import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import psutil

from fdg_plugins.errors import DataError, SettingsError
from fdg_plugins.state.folders import FOLDER, is_run

DAY_S = 86_400
# FLARE's modules that run one job: at the server, at a site, in the simulator.
JOB_MODULES = (
    "nvflare.private.fed.app.server.runner_process",
    "nvflare.private.fed.app.client.worker_process",
    "nvflare.private.fed.app.simulator.simulator_worker",
)
SIMULATOR = "simulator"  # nvflare simulator JOB -w WORKSPACE
OFFLOAD_FOLDERS = "nvflare_tensor_offload_*"  # FLARE's name


class Leftover(NamedTuple):
    """What lies in a state folder under the name of a run: bytes, time of the last change (seconds since the epoch),
    and why it must stay, None if it may go."""

    path: Path
    num_bytes: int
    changed: float
    kept_because: str | None


class RunningProcess(NamedTuple):
    """A process: its id, when it began (seconds since the epoch), its folder, and the words of its command line."""

    pid: int
    started: float
    folder: str
    words: tuple[str, ...]


def state_folders(place: Path) -> list[Path]:
    """Return the state folders of the participants at ``place``: a kit, or a folder of several, such as a simulator's.

    Raises ``DataError`` naming the place if it is neither, or a state folder is a link: those are not followed.
    """
    if not place.is_dir():
        raise DataError(f"folder {place} is not there, expected a participant's kit or a simulator's workspace.")
    own = place / FOLDER
    found = [own] if os.path.lexists(own) else sorted(place.glob(f"*/{FOLDER}"))
    for folder in found:
        if folder.is_symlink() or not folder.is_dir():
            raise DataError(f"{folder} is a link or no folder, expected a participant's folder of run states.")
    if not found and not ((place / "startup").is_dir() or (place / "local").is_dir()):
        raise DataError(
            f"folder {place} holds no {FOLDER}, and no folder right below it does: expected a participant's kit or a "
            "simulator's workspace."
        )
    return found


def leftovers(place: Path, older_than_days: float = 1.0, run: str | None = None) -> list[Leftover]:
    """Return what runs have left at ``place``, in order of their names, and what of it must stay.

    Args:
        place: a participant's kit, or a simulator's workspace.
        older_than_days: days, at least one, for which a folder must not have changed.
        run: look at this one only, whenever it has changed.
    """
    if not older_than_days >= 1:
        raise SettingsError(f"older-than is {older_than_days:g} days, expected at least 1.")
    if run is not None and not is_run(run):
        raise SettingsError(f"run is {run!r}, expected the id of a job.")
    processes = list(_processes())
    age_days = None if run is not None else older_than_days
    found = []
    for path in (path for folder in state_folders(place) for path in sorted(folder.iterdir())):
        if run is None or path.name == run:
            num_bytes, changed = _size_and_change(path)
            reason = _why_kept(path, place.resolve(), changed, processes, age_days)
            found.append(Leftover(path, num_bytes, changed, reason))
    return found


def offload_folders(temporary: Path) -> list[Path]:
    """Return FLARE's folders of tensors that arrived in files: of jobs that run, and of servers that were killed."""
    return sorted(path for path in temporary.glob(OFFLOAD_FOLDERS) if path.is_dir() and not path.is_symlink())


def _why_kept(
    path: Path, place: Path, changed: float, processes: list[RunningProcess], older_than_days: float | None
) -> str | None:
    """Return why the folder of a run must stay; None if it is not in use and has not changed for so many days."""
    if path.is_symlink() or not path.is_dir() or not is_run(path.name):
        return "it is not the folder of a run"
    for process in processes:
        if reason := _why_process_needs(process, path, place, changed):
            return reason
    if older_than_days is not None and time.time() - changed < older_than_days * DAY_S:
        return f"it has changed within the last {older_than_days:g} day{'' if older_than_days == 1 else 's'}"
    return None


def _why_process_needs(process: RunningProcess, path: Path, place: Path, changed: float) -> str | None:
    if any(path.name in word.replace("=", "/").split("/") for word in process.words):
        return f"process {process.pid} uses it"
    if changed >= process.started and _runs_a_job_of(process, place):
        return f"it has changed since process {process.pid} began to run a job here"
    return None


def _runs_a_job_of(process: RunningProcess, place: Path) -> bool:
    """Return whether a process runs a job of a participant at or below ``place``, by the paths that it was given."""
    if not any(word in JOB_MODULES or word == SIMULATOR for word in process.words):
        return False
    paths = (os.path.realpath(os.path.join(process.folder, word)) for word in process.words)  # noqa: PTH118 - see below
    return any(Path(path).is_relative_to(place) for path in paths)


def _processes() -> Iterator[RunningProcess]:
    """Yield the visible processes except this one and its parents, whose command lines a person typed."""
    own = {os.getpid(), *(parent.pid for parent in psutil.Process().parents())}
    for process in psutil.process_iter():
        try:
            if process.pid in own:
                continue
            words = tuple(process.cmdline())
            try:
                folder = process.cwd()
            except psutil.AccessDenied:
                folder = "/"
            yield RunningProcess(process.pid, process.create_time(), folder, words)
        except psutil.Error:  # it has ended
            continue


def _size_and_change(path: Path) -> tuple[int, float]:
    """Return the bytes in a folder and the time of the last change in it; links are not followed."""
    own = path.lstat()
    num_bytes, changed = (0 if path.is_dir() else own.st_size), own.st_mtime
    if path.is_symlink() or not path.is_dir():
        return num_bytes, changed
    for folder, folders, files in os.walk(path):
        for name in (*folders, *files):
            try:
                found = Path(folder, name).lstat()
            except FileNotFoundError:  # a run at work replaces its files
                return num_bytes, time.time()
            num_bytes += found.st_size if name in files else 0
            changed = max(changed, found.st_mtime)
    return num_bytes, changed
