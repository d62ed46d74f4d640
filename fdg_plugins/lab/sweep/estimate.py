# SPDX-License-Identifier: Apache-2.0
"""The expected duration of runs, from finished ones; no estimate exists before a run of the same kind has finished."""

from collections.abc import Collection, Iterable

from fdg_plugins.lab.sweep.execute import Active
from fdg_plugins.lab.sweep.kinds import kind_of
from fdg_plugins.lab.sweep.plan import PlannedRun
from fdg_plugins.lab.sweep.store import Store
from fdg_plugins.record.text import duration


class Forecast:
    """The expected duration of the runs of a plan; learns from each that finishes."""

    def __init__(self, plan: Iterable[PlannedRun]) -> None:
        self._runs = {run.name: run for run in plan}
        self._taken: dict[str, float] = {}

    @property
    def learned_from(self) -> int:
        """The number of finished runs that the forecast is based on."""
        return len(self._taken)

    def learn(self, name: str, seconds: float) -> None:
        """Add the duration of a run, from the start of its processes to their end."""
        self._taken[name] = seconds

    def expected(self, run: PlannedRun) -> float | None:
        """Return the expected seconds of ``run``, None if unknown.

        This is the mean over the finished runs that differ from it only in seed and held-out domain, else over those of
        its method, else over those of its kind.
        """
        finished = [self._runs[name] for name in self._taken]
        for likeness in (_is_repetition, _has_same_method, _has_same_kind):
            if alike := [self._taken[one.name] for one in finished if likeness(one, run)]:
                return sum(alike) / len(alike)
        return None

    def remaining(self, active: Collection[Active], waiting: Iterable[PlannedRun], parallel: int) -> float | None:
        """Return the seconds until the last run ends, ``parallel`` at a time; None if unknown."""
        ahead = [self.expected(run) for run in waiting]
        totals = [self.expected(run.run) for run in active]
        if None in ahead or None in totals:
            return None
        left = [max((total or 0.0) - run.seconds, 0.0) for total, run in zip(totals, active, strict=True)]
        return max((sum(seconds or 0.0 for seconds in ahead) + sum(left)) / parallel, *left, 0.0)


def _has_same_kind(one: PlannedRun, other: PlannedRun) -> bool:
    return kind_of(one.method) is kind_of(other.method)


def _has_same_method(one: PlannedRun, other: PlannedRun) -> bool:
    return one.method == other.method


def _is_repetition(one: PlannedRun, other: PlannedRun) -> bool:
    return _has_same_method(one, other) and one.settings == other.settings


def make_forecast(plan: Collection[PlannedRun], store: Store) -> Forecast:
    """Return a forecast that has learned from the finished runs of the plan."""
    forecast = Forecast(plan)
    for run in plan:
        if store.is_finished(run.name):
            forecast.learn(run.name, store.seconds(run.name))
    return forecast


def estimate(forecast: Forecast, runs: Collection[PlannedRun], parallel: int) -> str:
    """Return in one line how long ``runs`` take, ``parallel`` at a time, or why this is unknown."""
    if not runs:
        return "nothing is left to do"
    several = f"{len(runs)} run{'s' * (len(runs) > 1)}, {parallel} at a time"
    seconds = forecast.remaining((), runs, min(parallel, len(runs)))
    if seconds is None:
        return f"to do: {several}; how long that takes can be said once a run of each kind has finished"
    return f"to do: {several}; about {duration(seconds)}, judging by the {forecast.learned_from} that finished here"
