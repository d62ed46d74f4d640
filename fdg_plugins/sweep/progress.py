# SPDX-License-Identifier: Apache-2.0
"""The progress display of a sweep: a bar in a terminal, one line per event if the output is redirected."""

import time
from collections.abc import Callable, Collection
from contextlib import AbstractContextManager
from types import TracebackType

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn
from rich.text import Text

from fdg_plugins.record.text import duration
from fdg_plugins.sweep.estimate import Forecast
from fdg_plugins.sweep.execute import Active
from fdg_plugins.sweep.plan import PlannedRun

Say = Callable[[str], None]

REFRESH_S = 1.0


class Lines(AbstractContextManager["Lines"]):
    """One plain line per event (started, finished, failed), with the number of finished runs and the time left.

    Args:
        total: number of runs in the plan.
        done: number of runs that had finished before.
        parallel: number of concurrent runs.
        forecast: estimates durations; it learns from the runs that finish.
        say: prints one line.
    """

    def __init__(self, total: int, done: int, parallel: int, forecast: Forecast, say: Say) -> None:
        self._total = total
        self._done = done
        self._parallel = parallel
        self._forecast = forecast
        self._say = say
        self._failed = 0
        self._going_on: tuple[Collection[Active], Collection[PlannedRun]] = ((), ())

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        return None

    def started(self, run: PlannedRun) -> None:
        """Report that a run was started."""
        self._say(f"{self._count()} {run.name} started")

    def finished(self, run: PlannedRun, seconds: float) -> None:
        """Report that a run has finished, and add its duration to the forecast."""
        self._done += 1
        self._forecast.learn(run.name, seconds)
        self._say(f"{self._count()} {run.name} finished after {duration(seconds)}")

    def failed(self, run: PlannedRun, reason: str) -> None:
        """Report that a run has failed, and why."""
        self._failed += 1
        self._say(f"{self._count()} {run.name} FAILED: {reason}")

    def show(self, active: Collection[Active], waiting: Collection[PlannedRun]) -> None:
        """Store the current state, for the time left in the next line."""
        self._going_on = (active, waiting)

    def _left(self) -> float | None:
        """Return the seconds until the last run ends; None if unknown."""
        return self._forecast.remaining(*self._going_on, self._parallel)

    def _count(self) -> str:
        left = self._left()
        about = f", about {duration(left)} left" if left else ""
        return f"[{self._done}/{self._total}{self._failures()}{about}]"

    def _failures(self) -> str:
        return f", {self._failed} failed" if self._failed else ""


class Bar(Lines):
    """A bar at the bottom of the terminal, with the rounds of the active runs; failures are printed above it."""

    def __init__(self, total: int, done: int, parallel: int, forecast: Forecast, console: Console) -> None:
        super().__init__(total, done, parallel, forecast, self._print)
        self._console = console
        self._bar = Progress(
            TextColumn("runs"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.fields[failed]}", style="red"),
            TextColumn("{task.fields[left]}"),
            TextColumn("{task.fields[running]}", style="dim"),
            console=console,
            refresh_per_second=1 / REFRESH_S,
        )
        self._task: TaskID = self._bar.add_task("runs", total=total, completed=done, failed="", left="", running="")
        self._shown = 0.0

    def __enter__(self) -> "Bar":
        self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._bar.stop()

    def started(self, run: PlannedRun) -> None:
        """Do nothing: the bar shows the active runs."""

    def show(self, active: Collection[Active], waiting: Collection[PlannedRun]) -> None:
        """Update the bar, at most once a second."""
        if (now := time.monotonic()) - self._shown < REFRESH_S:
            return
        self._shown = now
        super().show(active, waiting)
        left = self._left()
        self._bar.update(
            self._task,
            completed=self._done,
            failed=self._failures().strip(", "),
            left="ETA ?" if left is None else f"ETA {duration(left)}",
            running=", ".join(_place(run) for run in active),
        )

    def _print(self, line: str) -> None:
        self._console.print(Text(line), soft_wrap=True)


def make_display(total: int, done: int, parallel: int, forecast: Forecast, console: Console) -> Lines:
    """Return the bar if ``console`` is a terminal, else the lines."""
    if console.is_terminal:
        return Bar(total, done, parallel, forecast, console)
    return Lines(total, done, parallel, forecast, lambda line: console.print(Text(line), soft_wrap=True))


def _place(active: Active) -> str:
    rounds, of = active.position
    return f"{active.run.name} {f'round {rounds}/{of}' if of else 'starting'}"
