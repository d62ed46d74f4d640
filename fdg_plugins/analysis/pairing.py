# SPDX-License-Identifier: Apache-2.0
"""Methods compared cell by cell: the mean rank, and the paired difference to FedAvg, over seeds and held-out domains.

A cell is one seed with one held-out domain. In it, all methods have the same images, split and initial weights, so
what differs between cells, such as a domain that is hard for all, drops out of a difference within cells.
"""

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from fdg_plugins.analysis.estimates import Estimate, estimate
from fdg_plugins.analysis.papers import AVERAGE
from fdg_plugins.analysis.selection import ORACLE
from fdg_plugins.analysis.table import MethodRows, Result, Table
from fdg_plugins.plugins.composition import BASE
from fdg_plugins.tasks import ScoreKind

LEAST_PAIRS = 2

Place = tuple[str, int]  # held-out domain and seed
Cells = Mapping[Place, float]


@dataclass(frozen=True)
class Paired:
    """One method in comparison with the others, under one selection rule.

    ``rank``: mean over the comparison's common cells, 1 is best and equal scores share their ranks; None without such
    cells. ``difference``: mean over the ``pairs`` of its score minus FedAvg's, with its standard error if there are at
    least two; None for FedAvg itself and without pairs.
    """

    method: MethodRows
    rule: str
    rank: float | None
    difference: Estimate | None
    pairs: Cells


@dataclass(frozen=True)
class Comparison:
    """The methods of a table compared with ``base``: ``common`` is the number of cells that all have, by rule."""

    base: MethodRows
    rows: tuple[Paired, ...]
    common: Mapping[str, int]


def compare(table: Table) -> Comparison | None:
    """Return the comparison of a table's federated methods with FedAvg; None if there is nothing to say.

    That is so if the table has no FedAvg, or several of which none has the default settings, and if no method shares
    two cells with it. The oracle is left out, being no result.
    """
    methods = [rows for rows in table.methods if not rows.is_reference]
    rules = [rule for rule in table.rules if rule != ORACLE]
    if (base := _base(bases(table))) is None:
        return None
    found = [_compared(methods, base, rule, table.facts.score) for rule in rules]
    rows = tuple(row for of_rule, _ in found for row in of_rule)
    if all(len(row.pairs) < LEAST_PAIRS for row in rows):
        return None
    return Comparison(base, rows, {rule: common for rule, (_, common) in zip(rules, found, strict=True)})


def bases(table: Table) -> tuple[MethodRows, ...]:
    """Return the rows of FedAvg, of which there are several if its settings differ among the runs."""
    return tuple(rows for rows in table.methods if rows.method == BASE)


def _base(found: Sequence[MethodRows]) -> MethodRows | None:
    """Return the only row of FedAvg, or of several the one with the default settings."""
    candidates = found if len(found) == 1 else [rows for rows in found if rows.by_default]
    return candidates[0] if candidates else None


def _compared(methods: Sequence[MethodRows], base: MethodRows, rule: str, score: ScoreKind) -> tuple[list[Paired], int]:
    """Return the rows under one rule, and the number of cells that all methods have."""
    cells = [_cells(rows, rule) for rows in methods]
    common = sorted(set.intersection(*(set(own) for own in cells)))
    ranks = mean_ranks(cells, common, score) if common else [None] * len(methods)
    of_base = cells[[rows is base for rows in methods].index(True)]
    found = []
    for rows, own, rank in zip(methods, cells, ranks, strict=True):
        pairs = {} if rows is base else {at: own[at] - of_base[at] for at in sorted(own) if at in of_base}
        found.append(Paired(rows, rule, rank, estimate(dict(enumerate(pairs.values()))), pairs))
    return found, len(common)


def _cells(rows: MethodRows, rule: str) -> dict[Place, float]:
    result = next(result for result in rows.results if result.rule == rule)
    return {(target, seed): value for target, one in _targets(result) for seed, value in one.by_seed.items()}


def _targets(result: Result) -> list[tuple[str, Estimate]]:
    return [(column, cell) for column, cell in result.cells.items() if column != AVERAGE]


def mean_ranks(cells: Sequence[Cells], common: Sequence[Place], score: ScoreKind) -> list[float]:
    """Return the mean rank of each method over the ``common`` cells, of which there is one at least."""
    by_cell = [_ranks([score.goodness(own[at]) for own in cells]) for at in common]
    return [statistics.fmean(ranks[number] for ranks in by_cell) for number in range(len(cells))]


def _ranks(values: Sequence[float]) -> list[float]:
    """Return the rank of each value, 1 for the largest; equal values share the mean of their ranks.

    >>> _ranks([0.5, 0.7, 0.5])
    [2.5, 1.0, 2.5]
    """
    return [sum(other > value for other in values) + (values.count(value) + 1) / 2 for value in values]
