# SPDX-License-Identifier: Apache-2.0
"""Execute the runs of a plan, several at once: each is kept or reported as failed; a stop takes effect in a second."""

import signal
import time
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import NamedTuple, Protocol

from fdg_plugins.lab.sweep.plan import PlannedRun
from fdg_plugins.lab.sweep.processes import end_processes
from fdg_plugins.lab.sweep.run_process import Position, RunProcess
from fdg_plugins.lab.sweep.store import Store

POLL_S = 0.2

# Starts a run in a working folder, on the given GPU or without its own.
Start = Callable[[PlannedRun, Path, str | None], RunProcess]


class Active(NamedTuple):
    """A run in progress: its elapsed time and its position."""

    run: PlannedRun
    seconds: float
    position: Position


class Display(Protocol):
    """The interface that informs the user."""

    def started(self, run: PlannedRun) -> None:
        """A run was started."""

    def finished(self, run: PlannedRun, seconds: float) -> None:
        """A run has finished and was kept."""

    def failed(self, run: PlannedRun, reason: str) -> None:
        """A run has failed; the others continue."""

    def show(self, active: Collection[Active], waiting: Collection[PlannedRun]) -> None:
        """The current state; called several times a second."""


@dataclass
class StopOrder:
    """The signal by which the user, or the system, has asked the sweep to stop; None if none has arrived."""

    signal: int | None = None


@dataclass
class Outcome:
    """The outcome of the runs: which finished, which failed and why, and whether the sweep was stopped."""

    finished: list[str] = field(default_factory=list)
    failed: dict[str, str] = field(default_factory=dict)
    stopped: bool = False


@contextmanager
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


class Runner:
    """Executes runs in as many slots as ``gpus`` has entries, under the lock of ``store``."""

    def __init__(
        self, store: Store, start: Start, gpus: Iterable[str | None], display: Display, keep_models: bool
    ) -> None:
        self._store = store
        self._start = start
        self._free = deque(gpus)
        self._display = display
        self._keep_models = keep_models
        self._active: dict[RunProcess, str | None] = {}

    def carry_out(self, runs: Iterable[PlannedRun], order: StopOrder) -> Outcome:
        """Execute ``runs`` in order; when this returns or raises, no process of any run is left.

        A failed run is reported and does not stop the others. Raises ``DataError`` if a file cannot be written.
        """
        waiting, outcome = deque(runs), Outcome()
        self._end_all(outcome)  # of an earlier sweep in this folder that was killed
        try:
            while (waiting or self._active) and order.signal is None:
                self._begin_next(waiting)
                self._settle_ended(outcome)
                self._display.show([Active(a.run, a.seconds, a.position()) for a in self._active], waiting)
                time.sleep(POLL_S)
        finally:
            self._end_all(outcome)
        outcome.stopped = order.signal is not None
        return outcome

    def _begin_next(self, waiting: deque[PlannedRun]) -> None:
        """Start the next of the ``waiting`` runs in every free slot."""
        while waiting and self._free:
            run, gpu = waiting.popleft(), self._free.popleft()
            self._active[self._start(run, self._store.begin(run.name), gpu)] = gpu
            self._display.started(run)

    def _settle_ended(self, outcome: Outcome) -> None:
        for process in [active for active in self._active if active.has_ended()]:
            self._settle(process, outcome)

    def _settle(self, process: RunProcess, outcome: Outcome) -> None:
        seconds, run = process.seconds, process.run
        process.end()  # processes that FLARE's simulator leaves behind
        reason = process.failure()
        # A process may still be killed, or fail to end well, after the run's last record.
        if reason is None or self._has_finished(process):
            self._keep(process, seconds, outcome)
        else:
            self._store.fail(run.name, reason)
            outcome.failed[run.name] = reason
            self._display.failed(run, reason)
        self._free.append(self._active.pop(process))

    def _keep(self, process: RunProcess, seconds: float, outcome: Outcome) -> None:
        run = process.run
        whole = self._store.seconds_of_finished(run.name, process.kind.record_folder)  # of a resumed run, all its parts
        self._store.keep(run, process.kind.record_folder, max(seconds, whole or 0.0), self._keep_models)
        outcome.finished.append(run.name)
        self._display.finished(run, seconds)

    def _end_all(self, outcome: Outcome) -> None:
        """End all processes; keep the runs that have finished although their processes had not ended yet."""
        active = [(process, process.seconds) for process in self._active]
        self._active.clear()
        for process, _ in active:
            process.end()
        end_processes(self._store.running)
        for process, seconds in active:
            if self._has_finished(process):
                self._keep(process, seconds, outcome)
        self._store.clear()

    def _has_finished(self, process: RunProcess) -> bool:
        return self._store.seconds_of_finished(process.run.name, process.kind.record_folder) is not None


def pending(plan: Iterable[PlannedRun], store: Store, retry_failed: bool) -> list[PlannedRun]:
    """Return the runs of ``plan`` to execute: those neither finished nor, unless ``retry_failed``, failed."""
    return [
        run for run in plan if not store.is_finished(run.name) and (retry_failed or store.failure(run.name) is None)
    ]
