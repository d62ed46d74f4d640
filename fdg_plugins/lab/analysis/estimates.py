# SPDX-License-Identifier: Apache-2.0
"""Means and standard deviations over seeds, and differences between two of them."""

import math
import statistics
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from fdg_plugins.errors import counted

LEAST_RUNS = 3  # below, a deviation is so uncertain that a verdict which rests on it would not show anything


@dataclass(frozen=True)
class Estimate:
    """A mean over ``count`` runs and their standard deviation, None if it is unknown or there is one run.

    ``by_seed`` contains the runs' own values if they are known; ``notes`` are remarks on this number.
    """

    mean: float
    std: float | None
    count: int
    by_seed: Mapping[int, float] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    @property
    def standard_error(self) -> float | None:
        """The standard error of the mean, ``std / sqrt(count)``; None if it is unknown."""
        return None if self.std is None or self.count < 2 else self.std / math.sqrt(self.count)

    def text(self, factor: float) -> str:
        """Return mean and deviation, multiplied by ``factor``: ``53.1 ± 0.4``."""
        deviation = "" if self.std is None else f" ± {factor * self.std:.1f}"
        return f"{factor * self.mean:.1f}{deviation}"

    def numbers(self) -> dict[str, Any]:
        """Return the fields of a line of numbers; ``values`` are ``seed:value``, separated by semicolons."""
        return {
            "seeds": self.count,
            "mean": self.mean,
            "std": self.std,
            "values": ";".join(f"{seed}:{value}" for seed, value in self.by_seed.items()) or None,
            "standard_error": self.standard_error,
            "note": "; ".join(self.notes) or None,
        }


def estimate(by_seed: Mapping[int, float]) -> Estimate | None:
    """Return mean and sample standard deviation (divisor n - 1) of the values; None if there are no values."""
    values = dict(sorted(by_seed.items()))
    if not values:
        return None
    std = statistics.stdev(values.values()) if len(values) > 1 else None
    return Estimate(statistics.fmean(values.values()), std, len(values), values)


def average(domains: Mapping[str, Mapping[int, float]]) -> dict[int, float]:
    """Return the mean over all domains for each seed that has a value in every one of them."""
    seeds = set.intersection(*map(set, domains.values())) if domains else set()
    return {seed: statistics.fmean(by_seed[seed] for by_seed in domains.values()) for seed in sorted(seeds)}


def span(values: Iterable[int], noun: str, several: str = "") -> str:
    """Return the smallest and the largest of the values, with their noun: ``2 to 5 rounds``, ``1 round``."""
    low, high = min(found := list(values)), max(found)
    return ("" if low == high else f"{low:,} to ") + counted(high, noun, several)


def seeds_in_words(seeds: Collection[int], more: str = "") -> str:
    """Return what numbers are over; ``more``: words on several seeds."""
    listed = ", ".join(map(str, sorted(seeds)))
    return (
        f"one seed ({listed})"
        if len(seeds) == 1 and not more
        else f"mean ± standard deviation over seeds {listed}{more}"
    )


@dataclass(frozen=True)
class Difference:
    """Our value minus the printed one, and its standard error; None if either deviation is unknown.

    ``runs``: the smaller of the numbers of runs.
    """

    value: float
    standard_error: float | None
    runs: int

    @property
    def verdict(self) -> str:
        """``yes`` if it is within two standard errors, ``no``, or ``unknown``, as it is for two runs."""
        if self.standard_error is None or self.runs < LEAST_RUNS:
            return "unknown"
        return "yes" if abs(self.value) <= 2 * self.standard_error else "no"

    def text(self, factor: float) -> str:
        """Return the difference, its standard error and the verdict: ``-1.2 (SE 0.4) no``."""
        error = "" if self.standard_error is None else f" (SE {factor * self.standard_error:.1f})"
        return f"{factor * self.value:+.1f}{error} {self.verdict}"

    def numbers(self) -> dict[str, Any]:
        """Return the fields of a line of numbers."""
        error = self.standard_error
        return {"mean": self.value, "standard_error": error, "within_two_standard_errors": self.verdict}


def difference(ours: Estimate, theirs: Estimate) -> Difference:
    """Return ``ours - theirs`` with ``sqrt(s_ours^2 / n_ours + s_theirs^2 / n_theirs)`` as its standard error."""
    errors = ours.standard_error, theirs.standard_error
    known = [error for error in errors if error is not None]
    error = math.hypot(*known) if len(known) == len(errors) else None
    return Difference(ours.mean - theirs.mean, error, min(ours.count, theirs.count))
