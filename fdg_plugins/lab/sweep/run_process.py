# SPDX-License-Identifier: Apache-2.0
"""One run as a process in its own folder: its position, and its outcome."""

import io
import subprocess
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from fdg_plugins.errors import DataError
from fdg_plugins.lab.sweep.plan import PlannedRun
from fdg_plugins.lab.sweep.processes import end_processes
from fdg_plugins.lab.sweep.run_kind import RunKind
from fdg_plugins.lab.sweep.store import LOG_FILE
from fdg_plugins.record.run_files import RESULTS_FILE
from fdg_plugins.storage import parse_json

LONGEST_REASON = 300


class Position(NamedTuple):
    """The number of finished rounds of a run, and of all its rounds; both 0 before the first record."""

    rounds: int = 0
    of: int = 0


class RunProcess:
    """A run whose process was started; the output of the process and of its children is in ``log.txt``.

    Args:
        run: the run.
        kind: the kind of the run.
        working: its working folder, which contains the job.
        command: the program and its arguments, not interpreted by a shell.
        environment: the complete environment of the processes; it must mark them as those of ``working``.

    Raises:
        DataError: if the command cannot be started.
    """

    def __init__(
        self,
        run: PlannedRun,
        kind: RunKind,
        working: Path,
        command: Sequence[str],
        environment: Mapping[str, str],
    ) -> None:
        self.run = run
        self.kind = kind
        self._working = working
        self._record = working / kind.record_folder / RESULTS_FILE
        self._started = time.monotonic()
        self._position = Position()
        self._content: Any = None
        self._seen = 0
        with _opened(working / LOG_FILE) as log:
            self._log_begins = log.tell()  # what stopped an earlier part of the run does not stop this one
            try:
                self._process = subprocess.Popen(
                    list(command),
                    cwd=working,
                    env=dict(environment),
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,  # Ctrl-C in the terminal goes to the sweep only, which ends its runs itself
                )
            except OSError as error:
                raise DataError(f"command {command[0]} cannot be started: {error.strerror}.") from error

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
        end_processes(self._working)

    def record(self) -> Any:
        """Return the record that the run writes after every round, None before the first; unchanged, the same object.

        What is returned has been parsed, but not checked.
        """
        with suppress(OSError, DataError):  # no record yet, or FLARE is clearing its folder: the last known content
            changed = self._record.stat().st_mtime_ns
            if changed != self._seen:
                self._content = parse_json(self._record.read_bytes(), RESULTS_FILE)
                self._seen = changed
        return self._content

    def position(self) -> Position:
        """Return the position of the run, from its record; the last known one if the record does not tell."""
        content = self.record()
        with suppress(KeyError, TypeError):
            self._position = Position(len(content["rounds"]), content["protocol"]["rounds"])
        return self._position

    def failure(self) -> str | None:
        """Return why a run that has ended did not finish, in one sentence; None if it did."""
        code = self._process.returncode
        status, because = _last_record(self._record)
        if (code, status) == (0, "finished"):
            return None
        reason = because or _last_error(self._working / LOG_FILE, self._log_begins, self.kind)
        if reason:
            return shorten_line(reason)
        return f"{self.kind.program} {_ending(code, status)}."


def _ending(code: int, status: str) -> str:
    """Return in words how a process with this exit code ended, and the status of its record, empty if it has none."""
    how = f"was ended by signal {-code}" if code < 0 else f"ended with exit code {code}"
    return f"{how} and left {f'a record that says {status}' if status else 'no record'}"


def _last_record(file: Path) -> tuple[str, str]:
    """Return the status of a record and the reason for stopping, both empty if it cannot be read."""
    try:
        content = parse_json(file.read_bytes(), RESULTS_FILE)
        return str(content.get("status") or ""), str(content.get("stopped_because") or "")
    except (OSError, DataError, AttributeError):
        return "", ""


def _last_error(log: Path, begins: int, kind: RunKind) -> str:
    """Return the last reason in a log from the byte ``begins`` on, empty if there is none."""
    text = log.read_bytes()[begins:].decode("utf-8", errors="replace")
    return next((found[-1] for pattern in kind.reasons if (found := pattern.findall(text))), "")


def shorten_line(text: str) -> str:
    """Return ``text`` as one line of at most ``LONGEST_REASON`` characters."""
    line = " ".join(text.split())
    return line if len(line) <= LONGEST_REASON else f"{line[: LONGEST_REASON - 3]}..."


def _opened(log: Path) -> io.BufferedWriter:
    """Open the log of a run, with which a resumed one goes on; raise ``DataError`` if it cannot be written."""
    try:
        return log.open("ab")
    except OSError as error:
        raise DataError(f"log {log} cannot be written: {error.strerror}.") from error
