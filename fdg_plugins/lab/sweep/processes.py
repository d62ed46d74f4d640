# SPDX-License-Identifier: Apache-2.0
"""All processes of a run. FLARE starts each site's process in a separate session, so they share no process group,
and once a parent has died, no process tree.

Every process of a run therefore carries the run's folder in its environment. This mark identifies the processes, even
for a later command after one that was killed.
"""

import contextlib
import os
import re
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import psutil

from fdg_plugins.errors import DataError
from fdg_plugins.record.run_files import RESULTS_FILE
from fdg_plugins.storage import parse_json, read_json

MARK = "SWEEP_RUN_FOLDER"
LOG_FILE = "log.txt"
PATIENCE_S = 20.0
LONGEST_REASON = 300


def processes_below(folder: Path) -> list[psutil.Process]:
    """Return the live processes of all runs and federations in ``folder`` or below it, by whatever path."""
    own, place = os.getpid(), folder.resolve()
    return [process for process in psutil.process_iter() if process.pid != own and _works_below(process, place)]


def _works_below(process: psutil.Process, folder: Path) -> bool:
    try:
        marked = process.environ().get(MARK)
        is_live = marked is not None and process.status() != psutil.STATUS_ZOMBIE
        return is_live and Path(marked or "").resolve().is_relative_to(folder)
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

    ``program`` names it in messages; ``words`` are the program and its arguments, ``results`` and ``reasons`` those of
    the run's kind. ``environment`` is that of all of its processes, which it must mark.
    """

    program: str
    words: Sequence[str]
    results: Path
    reasons: tuple[re.Pattern[str], ...]
    environment: Mapping[str, str]
    at_once: int = 1


class RunProcess:
    """A run in ``folder`` whose process was started; the output of it and of its children is in ``log.txt``."""

    def __init__(self, folder: Path, launch: Launch) -> None:
        self._folder = folder
        self._launch = launch
        self._record = folder / launch.results / RESULTS_FILE
        self._started = time.monotonic()
        self._content: Any = None
        self._seen = 0
        try:
            with (folder / LOG_FILE).open("ab") as log:
                self._log_begins = log.tell()  # what stopped an earlier part of the run does not stop this one
                self._process = subprocess.Popen(
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

    @property
    def seconds(self) -> float:
        """Seconds since the start."""
        return time.monotonic() - self._started

    def has_ended(self) -> bool:
        """Return whether the started process has ended by itself."""
        return self._process.poll() is not None

    def end(self) -> None:
        """End all processes of the run, and wait until none is left."""
        self._process.kill()  # not by its mark alone: the environment of a process that has just begun cannot be read
        self._process.wait()
        end_processes(self._folder)

    def record(self) -> Any:
        """Return the record that the run writes after every round, parsed; if unchanged, the same object."""
        with contextlib.suppress(OSError, DataError):  # none yet, or FLARE is clearing its folder: the last known one
            changed = self._record.stat().st_mtime_ns
            if changed != self._seen:
                self._content = parse_json(self._record.read_bytes(), RESULTS_FILE)
                self._seen = changed
        return self._content

    def failure(self) -> str:
        """Return why a run that has ended did not finish, in one line."""
        record = self.record()
        because = record.get("stopped_because") if isinstance(record, dict) else None
        log = (self._folder / LOG_FILE).read_bytes()[self._log_begins :].decode("utf-8", errors="replace")
        told = (found[-1] for pattern in self._launch.reasons if (found := pattern.findall(log)))
        code = self._process.returncode
        ended = f"was ended by signal {-code}" if code < 0 else f"ended with exit code {code}"
        line = " ".join(str(because or next(told, f"{self._launch.program} {ended}.")).split())
        return line if len(line) <= LONGEST_REASON else f"{line[: LONGEST_REASON - 3]}..."


def finished_record(file: Path) -> dict[str, Any] | None:
    """Return the content of a run's record if it says that the run has finished, which it says last; else None."""
    try:
        content = read_json(file)
    except DataError:
        return None
    return content if isinstance(content, dict) and content.get("status") == "finished" else None
