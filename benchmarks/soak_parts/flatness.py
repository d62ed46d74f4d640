# SPDX-License-Identifier: Apache-2.0
"""When a soak is flat: the criteria, and the robust slopes that are held to them.

A series is what one process has of one quantity, from its start to its end: a process that was killed and started
again begins another. Its first rounds are its warm-up and do not count. Its slope is Theil and Sen's, the median of the
slopes between all pairs of its values, which rounds disturbed by faults or other work on the machine hardly move.
"""

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from scipy.stats import theilslopes

from soak_parts.rows import DiskRow, ProcessRow, RoundRow, Soak

WARM_UP = 25
SHORTEST = 50
"""Rounds: what a process needs before it counts, and what a series needs after that."""

HORIZON = 500
"""Rounds over which a slope is judged."""

LIMITS = {"pss": 0.10, "files": 0.05, "threads": 0.05, "cpu_seconds": 0.20, "seconds": 0.20, "rest": 0.05}
"""How much a quantity may grow in ``HORIZON`` rounds, relative to the median of its series."""

MOST_BYTES = {"logs": 64 * 1024, "audit": 32 * 1024, "events": 32 * 1024, "record": 32 * 1024}
"""What a participant may add to files of these kinds in a round; FLARE begins a new log at 20 MB and keeps ten."""

GROWING = tuple(MOST_BYTES)


class Key(NamedTuple):
    """Whose series it is; ``pid`` 0: not that of a process."""

    quantity: str
    participant: str
    role: str
    pid: int


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
        return float(theilslopes(self.values, self.rounds).slope)

    @property
    def growth(self) -> float:
        """What the slope adds in ``HORIZON`` rounds, relative to the median; 0 for a series of zeros."""
        added = HORIZON * self.slope
        if self.median:
            return added / self.median
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


def process_series(rows: Sequence[ProcessRow]) -> list[Series]:
    """Return the series of memory, file descriptors, threads, and processor seconds per round of every process."""
    points = [
        (Key(quantity, row.participant, row.role, row.pid), row.round, float(getattr(row, quantity)))
        for row in rows
        for quantity in ("pss", "files", "threads")
    ]
    return split([*points, *_processor_seconds(rows)])


def _processor_seconds(rows: Sequence[ProcessRow]) -> Iterable[tuple[Key, int, float]]:
    by_process: dict[Key, list[ProcessRow]] = defaultdict(list)
    for row in rows:
        by_process[Key("cpu_seconds", row.participant, row.role, row.pid)].append(row)
    for key, own in by_process.items():
        for before, after in pairwise(sorted(own)):
            yield key, after.round, (after.cpu_seconds - before.cpu_seconds) / (after.round - before.round)


def round_series(rows: Sequence[RoundRow]) -> list[Series]:
    """Return the seconds from the end of each round to the end of the next, over the whole run."""
    key = Key("seconds", "all", "", 0)
    seen = [row for row in rows if math.isfinite(row.at)]
    return split(
        (key, after.round, (after.at - before.at) / (after.round - before.round)) for before, after in pairwise(seen)
    )


def disk_series(rows: Sequence[DiskRow], kinds: Sequence[str]) -> list[Series]:
    """Return the series of each kind of file for each participant, over the whole run."""
    return split(
        (Key(kind, row.participant, "", 0), row.round, float(getattr(row, kind))) for row in rows for kind in kinds
    )


class Finding(NamedTuple):
    """A series and the limit to which it is held: relative growth in ``HORIZON`` rounds, or bytes per round."""

    series: Series
    value: float
    limit: float

    @property
    def holds(self) -> bool:
        """Whether the series stays below its limit."""
        return self.value <= self.limit


def findings(soak: Soak) -> list[Finding]:
    """Return every series of a soak with its limit."""
    flat = [*process_series(soak.processes), *round_series(soak.rounds), *disk_series(soak.disk, ("rest",))]
    growing = disk_series(soak.disk, GROWING)
    return [
        *(Finding(series, series.growth, LIMITS[series.key.quantity]) for series in flat),
        *(Finding(series, series.slope, MOST_BYTES[series.key.quantity]) for series in growing),
    ]
