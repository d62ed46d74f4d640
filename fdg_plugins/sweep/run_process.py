# SPDX-License-Identifier: Apache-2.0
"""One run as a process in a folder of its own: how far it is, and how it ended."""

import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from fdg_plugins.errors import DataError
from fdg_plugins.record.run_files import RESULTS_FILE
from fdg_plugins.storage import parse_json
from fdg_plugins.sweep.plan import PlannedRun
from fdg_plugins.sweep.processes import end_processes
from fdg_plugins.sweep.run_kind import RunKind
from fdg_plugins.sweep.store import LOG_FILE

LONGEST_REASON = 300


class Position(NamedTuple):
    """How many rounds a run has finished, of how many; nothing of nothing before the first."""

    rounds: int = 0
    of: int = 0


class RunProcess:
    """A run whose process was started; all that it, and those that it starts, print is in ``log.txt``.

    Args:
        run: the run.
        kind: which kind of run it is.
        working: its working folder, which holds the job.
        command: the program and its arguments; no shell reads them.
        environment: all that the processes have in theirs; it must mark them as those of ``working``.
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
        self._seen = 0.0
        with (working / LOG_FILE).open("wb") as log:
            try:
                self._process = subprocess.Popen(
                    list(command),
                    cwd=working,
                    env=dict(environment),
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,  # a Ctrl-C at the terminal is for the sweep, which ends its runs itself
                )
            except OSError as error:
                raise DataError(f"command {command[0]} cannot be started: {error.strerror}.") from error

    @property
    def seconds(self) -> float:
        """Seconds since the start."""
        return time.monotonic() - self._started

    def has_ended(self) -> bool:
        """Return whether the process that was started has ended by itself."""
        return self._process.poll() is not None

    def end(self) -> None:
        """End all processes of the run, and wait until there is none."""
        end_processes(self._working)
        self._process.wait()

    def position(self) -> Position:
        """Return how far the run is, from the record that it writes after every round."""
        try:
            changed = self._record.stat().st_mtime
            if changed != self._seen:
                content = parse_json(self._record.read_bytes(), RESULTS_FILE)
                self._position = Position(len(content["rounds"]), content["protocol"]["rounds"])
                self._seen = changed
        except (OSError, DataError, KeyError, TypeError):
            pass  # there is none yet, or FLARE is clearing its folder: what was known last is shown
        return self._position

    def failure(self) -> str | None:
        """Return why a run that has ended did not finish, in one sentence; None if it did."""
        code = self._process.returncode
        status, because = _last_record(self._record)
        if code == 0 and status == "finished":
            return None
        reason = because or _last_error(self._working / LOG_FILE, self.kind)
        if reason:
            return shorten_line(reason)
        how = f"was ended by signal {-code}" if code < 0 else f"ended with exit code {code}"
        return f"{self.kind.program} {how} and left {f'a record that says {status}' if status else 'no record'}."


def _last_record(file: Path) -> tuple[str, str]:
    """Return the status of a record and why it stopped, empty where there is nothing to be read."""
    try:
        content = parse_json(file.read_bytes(), RESULTS_FILE)
        return str(content.get("status") or ""), str(content.get("stopped_because") or "")
    except (OSError, DataError, AttributeError):
        return "", ""


def _last_error(log: Path, kind: RunKind) -> str:
    """Return the last reason in a log, empty if it gives none."""
    text = log.read_text(encoding="utf-8", errors="replace")
    return next((found[-1] for pattern in kind.reasons if (found := pattern.findall(text))), "")


def shorten_line(text: str) -> str:
    """Return ``text`` as one line of readable length."""
    line = " ".join(text.split())
    return line if len(line) <= LONGEST_REASON else f"{line[: LONGEST_REASON - 3]}..."
