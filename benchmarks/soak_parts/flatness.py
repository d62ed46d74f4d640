# SPDX-License-Identifier: Apache-2.0
"""When a soak is flat: the criteria, and the robust slopes that are held to them.

A series is what one process has of one quantity, from its start to its end: a process that was killed and started
again begins another. Its first rounds are its warm-up and do not count. Its slope is Theil and Sen's, the median of the
slopes between all pairs of its values, which rounds disturbed by other work on the machine hardly move. The processes
that a participant has had one after another are judged together, by the slopes between pairs within each of them.
"""

import math
from collections import defaultdict
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from types import MappingProxyType
from typing import NamedTuple

import numpy as np

from soak_parts.rows import DiskRow, ProcessRow, RoundRow, Soak

WARM_UP = 125
SHORTEST = 50
"""Rounds: what a process needs before it counts, and what a series needs after that."""

AROUND = 12
"""Rounds before and after one that say how fast the machine was by then."""

HORIZON = 500
"""Rounds over which growth is judged, where a process was watched for so long."""

LIMITS = {"pss": 0.10, "files": 0.05, "threads": 0.05, "cpu_seconds": 0.20, "seconds": 0.20}
"""How much a quantity may grow in that time, relative to the median of its series."""

MOST_BYTES = {"logs": 64 * 1024, "audit": 32 * 1024, "events": 32 * 1024, "record": 32 * 1024, "rest": 1024}
"""What a participant may add to its files of each kind in a round; FLARE begins a new log at 20 MB and keeps ten."""


class Key(NamedTuple):
    """Whose series it is. ``generation``: the id of its process; for a folder, how often the run has been resumed."""

    quantity: str
    participant: str
    role: str = ""
    generation: int = 0


@dataclass(frozen=True)
class Series:
    """The values of one quantity by round, in the order of the rounds."""

    key: Key
    rounds: tuple[int, ...]
    values: tuple[float, ...]

    @property
    def median(self) -> float:
        """The median of the values."""
        return float(np.median(self.values))

    @property
    def slope(self) -> float:
        """The slope of Theil and Sen, per round."""
        return float(np.median(self.slopes()))

    def slopes(self) -> np.ndarray:
        """Return the slopes between all pairs of values, per round."""
        first, second = np.triu_indices(len(self.rounds), 1)
        rounds, values = np.array(self.rounds, float), np.array(self.values)
        return np.asarray((values[second] - values[first]) / (rounds[second] - rounds[first]))


def growth(generations: Sequence[Series]) -> float:
    """Return what the median slope within the series adds in ``HORIZON`` rounds, relative to the median of all values.

    If the longest series has fewer rounds, it is what the slope adds in those: memory goes up and down by some percent
    within fifty rounds, so a short series says little about 500. It is 0 where all values are zero.
    """
    seen = max(one.rounds[-1] - one.rounds[0] for one in generations)
    added = min(seen, HORIZON) * float(np.median(np.concatenate([one.slopes() for one in generations])))
    if median := float(np.median(np.concatenate([one.values for one in generations]))):
        return added / median
    return math.inf if added > 0 else 0.0


def split(points: Iterable[tuple[Key, int, float]]) -> list[Series]:
    """Return the series of the points (key, round, value) that are long enough once their warm-up is left out."""
    found: dict[Key, dict[int, float]] = defaultdict(dict)
    for key, number, value in points:
        found[key][number] = value
    return [one for key, values in found.items() if (one := _warm(key, values)) is not None]


def _warm(key: Key, values: Mapping[int, float]) -> Series | None:
    warm = sorted(number for number in values if number >= min(values) + WARM_UP)
    if len(warm) < SHORTEST:
        return None
    return Series(key, tuple(warm), tuple(values[number] for number in warm))


def disturbed(soak: Soak) -> set[int]:
    """Return the rounds that last longer because of a fault: their seconds are not compared with those of others.

    They are those in which a site was missing, the next one, in which it may return, and the two after a kill or start.
    """
    missing = {row.round for row in soak.rounds if row.failures}
    after_faults = {fault.round + distance for fault in soak.faults for distance in (1, 2)}
    return missing | {number + 1 for number in missing} | after_faults


def pace(rows: Sequence[RoundRow]) -> dict[int, float]:
    """Return by round how long the machine took for the same work, relative to the median of all rounds.

    Other work on a machine takes its caches, so that every process needs more processor seconds. The values are medians
    of the rounds around each.
    """
    seen = [row for row in rows if math.isfinite(row.work_cpu)]
    taken = np.array([row.work_cpu for row in seen])
    around = [np.median(taken[max(0, place - AROUND) : place + AROUND + 1]) for place in range(len(seen))]
    return {row.round: float(one / np.median(taken)) for row, one in zip(seen, around, strict=True)}


def process_series(
    rows: Sequence[ProcessRow], left_out: Container[int] = (), paces: Mapping[int, float] = MappingProxyType({})
) -> list[Series]:
    """Return the series of memory, file descriptors, threads, and processor seconds per round of every process.

    The processor seconds are those of the rounds that are not ``left_out``, and what they would be at a pace of 1.
    """
    points = [
        (Key(quantity, row.participant, row.role, row.pid), row.round, float(getattr(row, quantity)))
        for row in rows
        for quantity in ("pss", "files", "threads")
    ]
    seconds = [
        (key, number, value / paces.get(number, 1.0))
        for key, number, value in _processor_seconds(rows)
        if number not in left_out
    ]
    return split([*points, *seconds])


def _processor_seconds(rows: Sequence[ProcessRow]) -> Iterator[tuple[Key, int, float]]:
    by_process: dict[Key, list[ProcessRow]] = defaultdict(list)
    for row in rows:
        by_process[Key("cpu_seconds", row.participant, row.role, row.pid)].append(row)
    for key, own in by_process.items():
        for before, after in pairwise(sorted(own)):
            yield key, after.round, (after.cpu_seconds - before.cpu_seconds) / (after.round - before.round)


def round_series(rows: Sequence[RoundRow], left_out: Container[int] = ()) -> list[Series]:
    """Return the seconds from the end of each round to the end of the next, over the whole run."""
    key = Key("seconds", "all")
    seen = [row for row in rows if math.isfinite(row.at)]
    return split(
        (key, after.round, (after.at - before.at) / (after.round - before.round))
        for before, after in pairwise(seen)
        if after.round not in left_out
    )


def disk_series(rows: Sequence[DiskRow], resumed_after: Sequence[int]) -> list[Series]:
    """Return the series of each kind of file for each participant, before and after each resumption of the run.

    A server that is killed leaves the folder of the job that it ran, which is no growth per round.
    """

    def key(kind: str, row: DiskRow) -> Key:
        return Key(kind, row.participant, "", sum(row.round > number for number in resumed_after))

    return split((key(kind, row), row.round, float(getattr(row, kind))) for row in rows for kind in MOST_BYTES)


class Finding(NamedTuple):
    """What is held to a limit: relative growth, or bytes per round.

    ``series``: whose it is; of the processes that a participant has had, the one with most rounds.
    """

    series: Series
    value: float
    limit: float

    @property
    def holds(self) -> bool:
        """Whether the series stays below its limit."""
        return self.value <= self.limit


def findings(soak: Soak) -> list[Finding]:
    """Return what is held to a limit of a soak: relative growth of its processes and rounds, and files by round."""
    slow = disturbed(soak)
    relative = [*process_series(soak.processes, slow, pace(soak.rounds)), *round_series(soak.rounds, slow)]
    together: dict[tuple[str, ...], list[Series]] = defaultdict(list)
    for series in relative:
        together[series.key[:3]].append(series)
    disk = disk_series(soak.disk, soak.about["resumed_after"])
    return [
        *(
            Finding(max(found, key=lambda one: len(one.rounds)), growth(found), LIMITS[quantity])
            for (quantity, *_), found in together.items()
        ),
        *(Finding(series, series.slope, MOST_BYTES[series.key.quantity]) for series in disk),
    ]
