# SPDX-License-Identifier: Apache-2.0
"""Means and standard deviations over seeds, and differences of two, as the fields of a line of numbers.

A cell has ``mean``, ``std`` (None if it is unknown or there is one run), ``seeds``, the number of runs, and their
``standard_error``, ``std / sqrt(seeds)``; ``by_seed`` has the runs' own values if they are known, ``values`` as text.
A difference has ``mean``, ``standard_error`` and the verdict ``within_two_standard_errors``.
"""

import math
import statistics
from collections.abc import Collection, Iterable, Mapping
from typing import Any

from fdg_plugins.errors import counted

LEAST_RUNS = 3  # below, a deviation is so uncertain that a verdict which rests on it would not show anything
VERDICT = "within_two_standard_errors"

Cell = dict[str, Any]


def estimate(by_seed: Mapping[int, float]) -> Cell:
    """Return the cell with mean and sample standard deviation (divisor n - 1) of the values; empty without values."""
    values = dict(sorted(by_seed.items()))
    if not values:
        return {}
    std = statistics.stdev(values.values()) if len(values) > 1 else None
    text = ";".join(f"{seed}:{value}" for seed, value in values.items())
    return {**cell_of(statistics.fmean(values.values()), std, len(values)), "by_seed": values, "values": text}


def cell_of(mean: float, std: float | None, seeds: int) -> Cell:
    """Return the cell of a mean over ``seeds`` runs whose values are not known."""
    error = None if std is None or seeds < 2 else std / math.sqrt(seeds)
    return {"mean": mean, "std": std, "seeds": seeds, "standard_error": error}


def difference(ours: Cell, theirs: Cell) -> Cell:
    """Return ``ours - theirs`` with ``sqrt(s_ours^2 / n_ours + s_theirs^2 / n_theirs)`` as its standard error.

    The verdict is ``yes`` or ``no``, and ``unknown`` where a deviation is, or for two runs.
    """
    value, errors = ours["mean"] - theirs["mean"], (ours["standard_error"], theirs["standard_error"])
    error, verdict = None if None in errors else math.hypot(*errors), "unknown"
    if error is not None and min(ours["seeds"], theirs["seeds"]) >= LEAST_RUNS:
        verdict = "yes" if abs(value) <= 2 * error else "no"
    return {"mean": value, "standard_error": error, VERDICT: verdict}


def text_of(cell: Cell, factor: float) -> str:
    """Return a cell in words, multiplied by ``factor``: ``53.1 ± 0.4``; of a difference, ``-1.2 (SE 0.4) no``."""
    if VERDICT in cell:
        error = "" if cell["standard_error"] is None else f" (SE {factor * cell['standard_error']:.1f})"
        return f"{factor * cell['mean']:+.1f}{error} {cell[VERDICT]}"
    return f"{factor * cell['mean']:.1f}" + ("" if cell["std"] is None else f" ± {factor * cell['std']:.1f}")


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
    in_a_row = 2 < len(seeds) == max(seeds) - min(seeds) + 1
    listed = f"{min(seeds)} to {max(seeds)}" if in_a_row else ", ".join(map(str, sorted(seeds)))
    if len(seeds) == 1 and not more:
        return f"one seed ({listed})"
    return f"mean ± standard deviation over seeds {listed}{more}"
