# SPDX-License-Identifier: Apache-2.0
"""How long runs take: counted work, at a rate that finished runs have shown, or that a few training steps have.

The unit of work is one image through one training step; judging an image is a forward pass, a third of that.
"""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from fdg_plugins.methods import make_objective
from fdg_plugins.protocol import Protocol
from fdg_plugins.sweep.execute import Active
from fdg_plugins.sweep.machine import Machine
from fdg_plugins.sweep.plan import PlannedRun

# Seconds beside the arithmetic: a run's processes load torch, and end; a task goes to each site and back. Six sites on
# 2 cores beside much other work took 44 s and 0.8 s a round, with 35 s of processor time in all: on idle cores about
# half of it. Once runs of the folder have finished, the total is theirs; this then only parts it by rounds and images.
START_S = 25.0
ROUND_S = 1.0
FORWARD = 1 / 3
TRAINING_SHARE = 0.9


class Kind(NamedTuple):
    """What decides how long an image takes."""

    model: str
    head: str
    image_size: int
    batch_size: int
    precision: str
    channels_last: bool


class Work(NamedTuple):
    """What one run has to do: rounds, and images as the module counts them, of all sites together."""

    kind: Kind
    rounds: int
    images: float


class _Pace(NamedTuple):
    """Seconds per image, and the share of the usual time beside the arithmetic, on a machine that needs less."""

    rate: float
    share: float = 1.0


def work_of(protocol: Protocol, images: Mapping[str, int]) -> Work:
    """Return the work of a run under ``protocol`` on domains of so many ``images``; about, for splits are rounded."""
    limit = protocol.max_samples_per_domain
    counts = {domain: count if limit is None else min(count, limit) for domain, count in images.items()}
    held_out = counts.pop(protocol.target)
    drawn = min(1.0, (protocol.sites_per_round or len(counts)) / len(counts))
    training = TRAINING_SHARE * sum(counts.values()) * drawn
    validation = (1 - TRAINING_SHARE) * sum(counts.values())
    # The model received and the local one on the validation images; what a method reports, on the training images.
    judged = 2 * validation * (1.0 if protocol.validate_all else drawn) + held_out
    judged += 2 * training * (protocol.gap_split == "train")
    judged += training * (make_objective(protocol.objective).report is not None)
    per_round = protocol.local_epochs * training + FORWARD * judged
    kind = Kind(*(getattr(protocol, name) for name in Kind._fields))
    return Work(kind, protocol.rounds, protocol.rounds * per_round)


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
        return None if pace is None else pace.share * (_overhead(work) + pace.rate * work.images)

    def _pace(self, method: str, kind: Kind) -> _Pace | None:
        of_kind = {name for name in self._taken if self._work[name].kind == kind}
        of_method = {name for name in self._taken if self._methods[name] == method}
        if kind in self._rates and not of_kind:
            return _Pace(self._rates[kind])
        alike = (of_kind & of_method) or of_kind or of_method or set(self._taken)
        if not alike:
            return None
        taken = sum(self._taken[name] for name in alike)
        overhead = sum(_overhead(self._work[name]) for name in alike)
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
        start = min(START_S, active.seconds / 2)
        return start + (active.seconds - start) * of / rounds


def rate_of_run(seconds_per_image: float, machine: Machine, sites: int, on_gpu: bool) -> float:
    """Return the seconds per image of a whole run, of those of one site that computes alone with one thread.

    Sites share the cores of their run, as if nothing were lost by that; on a GPU they, and the runs on it, take turns.
    """
    if on_gpu:
        return seconds_per_image * max(machine.gpus.count(gpu) for gpu in machine.gpus)
    used = machine.threads_of(sites) * machine.arithmetic_threads(sites)
    return seconds_per_image / min(used, max(1.0, machine.cores / machine.parallel))


def _overhead(work: Work) -> float:
    return START_S + ROUND_S * work.rounds
