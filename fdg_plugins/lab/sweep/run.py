# SPDX-License-Identifier: Apache-2.0
"""One run: what its folder holds, and its processes, followed to their end; none is left then.

job/                     the job
log.txt                  the output of all processes
run.json                 what was run, and for how long
results.json             the record; beside it the models, the method's state and what trackers wrote
workspace/               the engine's; removed in the end
state/                   what server and sites need to resume the run; removed when it has finished

FLARE starts each site's process in a separate session, so they share no process group, and once a parent has died, no
process tree. Every process of a run therefore carries the run's folder in its environment. This mark identifies the
processes, even for a later command after one that was killed.
"""

import contextlib
import os
import re
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from types import FrameType
from typing import Any, NamedTuple

import psutil

from fdg_plugins.errors import DataError, SettingsError, one_line
from fdg_plugins.record.checkpoint import CHECKPOINT_FILE
from fdg_plugins.record.run_files import RESULTS_FILE, RUNS, TRACKED, gather, make_run_folder
from fdg_plugins.storage import locked, parse_json, read_json, writing

JOB, WORKSPACE, STATE = "job", "workspace", "state"
RUN_FILE = "run.json"
LOG_FILE = "log.txt"
MARK = "SWEEP_RUN_FOLDER"
DAEMON_SCRIPT = "sub_start.sh"
OF_FLARE = "nvflare.private."
PATIENCE_S = 20.0
POLL_S = 0.2
STOPPED = "the user stopped the run"
SHELL_SIGNS = "\"'\\*?[]$`&;|<>()#"  # that split a path in FLARE's start scripts
# In the log of a run: the reason with which a job stopped, else the last error, else the last line of a traceback.
REASONS = tuple(
    re.compile(pattern, re.MULTILINE)
    for pattern in (r" - ERROR - stopped: (.+)", r" - ERROR - (.+)", r"^((?:\w+\.)*\w+Error\b.*)$")
)


@dataclass
class StopOrder:
    """The signal by which the user, or the system, has asked the command to stop; None if none has arrived."""

    signal: int | None = None


@contextlib.contextmanager
def listening() -> Iterator[StopOrder]:
    """Turn Ctrl-C and the signals that terminate a process into a :class:`StopOrder`.

    No exception is raised then, so that nothing is left half done. A signal that the caller ignores stays ignored.
    """
    order = StopOrder()

    def take(number: int, _: FrameType | None) -> None:
        order.signal = number

    signals = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    heard = {number: signal.getsignal(number) for number in signals if signal.getsignal(number) != signal.SIG_IGN}
    try:
        for number in heard:
            signal.signal(number, take)
        yield order
    finally:
        for number, before in heard.items():
            signal.signal(number, before)


def processes_below(folder: Path) -> list[psutil.Process]:
    """Return the live processes of all runs and federations in ``folder`` or below it, by whatever path."""
    own, place = os.getpid(), folder.resolve()
    return [process for process in psutil.process_iter() if process.pid != own and _works_below(process, place)]


def _works_below(process: psutil.Process, folder: Path) -> bool:
    try:
        places, words = [process.environ().get(MARK)], process.cmdline()
        if any(word.startswith(OF_FLARE) for word in words) or (words[:1] == ["bash"] and DAEMON_SCRIPT in words[-1]):
            places += [word for word in words if word.startswith(os.sep)]  # a kit's start.sh, run by hand, sets no mark
        is_live = process.status() != psutil.STATUS_ZOMBIE
        return is_live and any(Path(place).resolve().is_relative_to(folder) for place in places if place)
    except (psutil.Error, OSError):  # it has just ended, or belongs to another user
        return False


def end_processes(folder: Path) -> None:
    """Kill every process of the runs whose folder is ``folder`` or below it; return when none is left."""
    deadline = time.monotonic() + PATIENCE_S
    while processes := processes_below(folder):
        for process in processes:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
        if time.monotonic() > deadline:
            raise DataError(f"processes {', '.join(str(one.pid) for one in processes)} of {folder} do not end.")
        time.sleep(0.05)


class Launch(NamedTuple):
    """How a run is executed: ``at_once`` of its sites compute at the same time.

    ``program`` names it in messages; ``words`` are the program and its arguments; ``results``, relative to the run's
    folder, receives its record. ``environment`` is that of all of its processes, which it must mark.
    """

    program: str
    words: Sequence[str]
    results: Path
    environment: Mapping[str, str]
    at_once: int = 1


class Ending(NamedTuple):
    """How a run ended: after how many seconds, and why it did not finish (None: it did)."""

    seconds: float = 0.0
    reason: str | None = None

    @property
    def status(self) -> str:
        """``finished``, ``stopped`` or ``failed``."""
        return "finished" if self.reason is None else "stopped" if self.reason == STOPPED else "failed"


def start(folder: Path, launch: Launch) -> subprocess.Popen[bytes]:
    """Start a run; the output of its process and of the children is added to ``log.txt``."""
    try:
        with (folder / LOG_FILE).open("ab") as log:
            return subprocess.Popen(
                list(launch.words),
                cwd=folder,
                env=dict(launch.environment),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,  # Ctrl-C in the terminal goes to the command, which ends its runs itself
            )
    except OSError as error:
        raise DataError(f"folder {folder}: {launch.program} cannot be started: {error.strerror}.") from error


def carry_out(launch: Launch, folder: Path, order: StopOrder, show: Callable[[Any], None] = lambda _: None) -> Ending:
    """Execute a run until it ends, or until ``order`` ends it; ``show`` receives each state of its record, parsed.

    No process of it is left then. A run that cannot be started, or whose record ``show`` refuses, has failed like any
    other; one whose record says that it has finished has done so, however its processes ended.
    """
    if order.signal is not None:
        return Ending(reason=STOPPED)
    started, log, file = time.monotonic(), folder / LOG_FILE, folder / launch.results / RESULTS_FILE
    log_begins = log.stat().st_size if log.exists() else 0  # what stopped an earlier part of the run did not stop this
    record: Any = None
    seen = 0

    def follow() -> None:
        nonlocal record, seen
        before = record
        with contextlib.suppress(OSError, DataError):  # none yet, or FLARE is clearing its folder: the last known one
            if (changed := file.stat().st_mtime_ns) != seen:
                record, seen = parse_json(file.read_bytes(), RESULTS_FILE), changed
        if record is not before:
            show(record)

    try:
        process = start(folder, launch)
        try:
            while order.signal is None and process.poll() is None:
                follow()
                time.sleep(POLL_S)
        finally:
            process.kill()  # not by its mark alone: the environment of a process that has just begun cannot be read
            process.wait()
            end_processes(folder)  # also those that FLARE's simulator leaves behind
        follow()
    except DataError as error:
        return Ending(reason=str(error))
    seconds = time.monotonic() - started
    if has_finished(record):
        return Ending(seconds)
    if order.signal is not None:
        return Ending(seconds, STOPPED)
    text = log.read_bytes()[log_begins:].decode("utf-8", errors="replace")
    return Ending(seconds, _failure(launch.program, process.returncode, record, text))


def _failure(program: str, code: int, record: Any, log: str) -> str:
    """Return why a run that has ended did not finish, in one line: what its record says, else its log."""
    because = record.get("stopped_because") if isinstance(record, dict) else None
    told = (found[-1] for pattern in REASONS if (found := pattern.findall(log)))
    ended = f"was ended by signal {-code}" if code < 0 else f"ended with exit code {code}"
    return one_line(" ".join(str(because or next(told, f"{program} {ended}.")).split()))


def has_finished(record: Any) -> bool:
    """Return whether the content of a run's record says that the run has finished, which it says last."""
    return isinstance(record, dict) and record.get("status") == "finished"


def finished_record(file: Path) -> dict[str, Any] | None:
    """Return the content of a run's record if it says that the run has finished; else None."""
    try:
        content = read_json(file)
    except DataError:
        return None
    return content if has_finished(content) else None


# --- the folder of a run ---


def check_signs(folder: Path, signs: str) -> None:
    """Raise ``SettingsError`` for a path with blanks or one of ``signs``: FLARE puts paths into commands unquoted."""
    if any(sign.isspace() or sign in signs for sign in str(folder)):
        expected = f"a path without blanks and {signs}, at which FLARE splits it"
        raise SettingsError(field="folder", value=folder, expected=expected)


def check_new(to: Path | None) -> None:
    """Raise ``DataError`` unless ``to`` is None, does not exist, or is an empty folder."""
    if to is not None:
        with writing(to):
            taken = any(to.iterdir()) if to.is_dir() else to.exists()
        if taken:
            raise DataError(f"{to} exists already, expected a new or an empty folder for the run.")


def make_folder(to: Path | None, name: str, now: datetime) -> Path:
    """Make the folder of a run, and return it: ``to``, or a new one in ``runs``, called ``name``."""
    check_new(to)
    with writing(to or RUNS):
        if to is None:
            return make_run_folder(RUNS, name, now)
        to.mkdir(parents=True, exist_ok=True)
        return to


@contextlib.contextmanager
def held(file: Path, what: str) -> Iterator[None]:
    """Hold the lock ``file`` for this process, however it ends; raise ``DataError`` if another one holds it."""
    with contextlib.ExitStack() as stack:
        with writing(file.parent):  # and not during the block, whose errors are others
            file.parent.mkdir(mode=0o700 if file.parent.name == STATE else 0o777, parents=True, exist_ok=True)
            try:
                stack.enter_context(locked(file, wait=False))
            except BlockingIOError as error:
                raise DataError(f"{what} is in use by another command, expected one that was stopped.") from error
        yield


@contextlib.contextmanager
def held_run(folder: Path) -> Iterator[None]:
    """Hold a run's folder for this process; raise ``DataError`` if another one executes the run, or it has finished."""
    with held(folder / STATE / ".lock", f"the run in {folder}"):
        if finished_record(folder / RESULTS_FILE) is not None:
            shutil.rmtree(folder / STATE, ignore_errors=True)
            raise DataError(f"the run in {folder} has finished: there is nothing to resume.")
        yield


def end_earlier(folder: Path, results: Path) -> bool:
    """End the execution of the run that a killed command has left; return whether it has finished nevertheless.

    Its results are then still in ``results``, relative to the folder, for :func:`settle`. Of others, what cannot be
    computed again from a checkpoint is kept, and the workspace removed.
    """
    end_processes(folder.absolute())
    has_finished = finished_record(folder / results / RESULTS_FILE) is not None
    if not has_finished:
        _clear(folder, results, TRACKED)
    return has_finished


def settle(folder: Path, results: Path, names: Sequence[str], *, finished: bool) -> None:
    """Leave those of ``names`` in ``folder`` that an ended run has produced, and what it needs to be resumed."""
    _clear(folder, results, names)
    if finished or not any((folder / STATE).glob(f"*/*/*/{CHECKPOINT_FILE}")):
        shutil.rmtree(folder / STATE, ignore_errors=True)


def _clear(folder: Path, results: Path, names: Sequence[str]) -> None:
    with writing(folder):
        gather(folder / results, folder, names)
    shutil.rmtree(folder / WORKSPACE, ignore_errors=True)
