# SPDX-License-Identifier: Apache-2.0
"""What a person sees while a sweep runs: a bar at a terminal, one line per event where the output is kept."""

import time
from collections.abc import Collection

from rich.console import Console
from rich.progress import TextColumn

from fdg_plugins.lab.sweep.estimate import Forecast
from fdg_plugins.lab.sweep.execute import Active
from fdg_plugins.lab.sweep.plan import PlannedRun
from fdg_plugins.record.display import Display
from fdg_plugins.record.text import duration

REFRESH_S = 1.0
COLUMNS = {"failed": "red", "left": "none", "running": "dim"}  # beside the bar, in these styles


class SweepDisplay(Display):
    """Lines of what has started, finished, failed, with the number of runs done, and how long is left.

    At a terminal a bar names the runs that go on, with their rounds; lines above it say what has finished and failed.

    Args:
        total: how many runs the plan has.
        done: how many of them had finished before.
        parallel: how many go on at a time.
        forecast: how long runs take; it learns from those that finish.
        console: where to.
    """

    def __init__(self, total: int, done: int, parallel: int, forecast: Forecast, console: Console) -> None:
        columns = [TextColumn(f"{{task.fields[{name}]}}", style=style) for name, style in COLUMNS.items()]
        super().__init__(console, "runs", total, columns, done=done, fields=dict.fromkeys(COLUMNS, ""))
        self._total = total
        self._done = done
        self._parallel = parallel
        self._forecast = forecast
        self._failed = 0
        self._going_on: tuple[Collection[Active], Collection[PlannedRun]] = ((), ())
        self._shown = 0.0

    def started(self, run: PlannedRun) -> None:
        """Say that a run was started, unless the bar does."""
        if not self.has_bar:
            self.say(f"{self._count()} {run.name} started")

    def finished(self, run: PlannedRun, seconds: float) -> None:
        """Say that a run has finished, and learn from it."""
        self._done += 1
        self._forecast.learn(run.name, seconds)
        self.say(f"{self._count()} {run.name} finished after {duration(seconds)}")

    def failed(self, run: PlannedRun, reason: str) -> None:
        """Say that a run has failed, and why."""
        self._failed += 1
        self.say(f"{self._count()} {run.name} FAILED: {reason}")

    def show(self, active: Collection[Active], waiting: Collection[PlannedRun]) -> None:
        """Take note of what goes on, for the time left in the next line; bring the bar up to date, once a second."""
        self._going_on = (active, waiting)
        if not self.has_bar or (now := time.monotonic()) - self._shown < REFRESH_S:
            return
        self._shown = now
        left = self._left()
        self.move(
            self._done,
            failed=self._failures().strip(", "),
            left="ETA ?" if left is None else f"ETA {duration(left)}",
            running=", ".join(_place(run) for run in active),
        )

    def _left(self) -> float | None:
        """Return the seconds until the last run ends; None if nothing tells."""
        return self._forecast.remaining(*self._going_on, self._parallel)

    def _count(self) -> str:
        left = self._left()
        about = f", about {duration(left)} left" if left else ""
        return f"[{self._done}/{self._total}{self._failures()}{about}]"

    def _failures(self) -> str:
        return f", {self._failed} failed" if self._failed else ""


def _place(active: Active) -> str:
    rounds, of = active.position
    return f"{active.run.name} {f'round {rounds}/{of}' if of else 'starting'}"
