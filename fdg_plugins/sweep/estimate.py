# SPDX-License-Identifier: Apache-2.0
"""How long runs take: counted work, at a rate that finished runs have shown, or that a few training steps have."""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from fdg_plugins.sweep.execute import Active
from fdg_plugins.sweep.machine import Machine
from fdg_plugins.sweep.plan import PlannedRun
from fdg_plugins.sweep.work import Kind, Work


class _Pace(NamedTuple):
    """Seconds per image, and the share of the usual time beside the arithmetic, on a machine that needs less."""

    rate: float
    share: float = 1.0


class Forecast:
    """How long each run of a plan takes. Learns from those that finish; without any, ``rates`` must say.

    Args:
        plan: the runs.
        work: the work of each, by name.
        rates: seconds per image of a run by kind, as measured beforehand; empty if nothing was.
    """

    def __init__(
        self, plan: Iterable[PlannedRun], work: Mapping[str, Work], rates: Mapping[Kind, float] | None = None
    ) -> None:
        self._methods = {run.name: run.method for run in plan}
        self._work = work
        self._rates = rates or {}
        self._taken: dict[str, float] = {}
        self._learned: dict[tuple[str, Kind], _Pace | None] = {}

    @property
    def learned_from(self) -> int:
        """How many finished runs it has learned from."""
        return len(self._taken)

    def learn(self, name: str, seconds: float) -> None:
        """Take in how long a run took, from the start of its processes to their end."""
        self._taken[name] = seconds
        self._learned.clear()

    def expected(self, name: str) -> float | None:
        """Return how many seconds a run takes: as runs of its method and kind did, else of its kind, else of its
        method, else any, else as measured; None if nothing is known."""
        work = self._work[name]
        key = self._methods[name], work.kind
        if key not in self._learned:
            self._learned[key] = self._pace(*key)
        pace = self._learned[key]
        return None if pace is None else pace.share * (work.overhead + pace.rate * work.images)

    def _pace(self, method: str, kind: Kind) -> _Pace | None:
        of_kind = {name for name in self._taken if self._work[name].kind == kind}
        of_method = {name for name in self._taken if self._methods[name] == method}
        if kind in self._rates and not of_kind:
            return _Pace(self._rates[kind])
        alike = (of_kind & of_method) or of_kind or of_method or set(self._taken)
        if not alike:
            return None
        taken = sum(self._taken[name] for name in alike)
        overhead = sum(self._work[name].overhead for name in alike)
        if taken <= overhead:
            return _Pace(0.0, taken / overhead)
        return _Pace((taken - overhead) / sum(self._work[name].images for name in alike))

    def remaining(self, active: Iterable[Active], waiting: Iterable[PlannedRun], parallel: int) -> float | None:
        """Return the seconds until the last run ends, ``parallel`` at a time; None as long as nothing tells."""
        running = [(run.seconds, self._total(run)) for run in active]
        projected = [total for _, total in running if total is not None]
        typical = sum(projected) / len(projected) if projected else None
        expected = [self.expected(run.name) for run in waiting]
        ahead = [typical if seconds is None else seconds for seconds in expected]
        left = [None if total is None else max(total - seconds, 0.0) for seconds, total in running]
        known = [seconds for seconds in (*ahead, *left) if seconds is not None]
        if len(known) < len(ahead) + len(left):
            return None
        longest = max((seconds for seconds in left if seconds is not None), default=0.0)
        return max(sum(known) / parallel, longest)

    def _total(self, active: Active) -> float | None:
        """Return how long a run that is going on takes in all: by its own rounds, once it has some."""
        rounds, of = active.position
        if not rounds:
            return self.expected(active.run.name)
        start = min(self._work[active.run.name].start, active.seconds / 2)
        return start + (active.seconds - start) * of / rounds


def rate_of_run(seconds_per_image: float, machine: Machine, processes: int, on_gpu: bool) -> float:
    """Return the seconds per image of a whole run, of those of one process that computes alone with one thread.

    They share the cores of their run, as if nothing were lost by that; on a GPU they, and the runs on it, take turns.
    """
    if on_gpu:
        return seconds_per_image * max(machine.gpus.count(gpu) for gpu in machine.gpus)
    used = machine.threads_of(processes) * machine.arithmetic_threads(processes)
    return seconds_per_image / min(used, max(1.0, machine.cores / machine.parallel))
