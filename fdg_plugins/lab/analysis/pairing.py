# SPDX-License-Identifier: Apache-2.0
"""Methods compared cell by cell: the mean rank, and the paired difference to FedAvg, over seeds and held-out domains.

A cell is one seed with one held-out domain, or of label-skewed sites with one data set, skew and participation. In it,
all methods have the same images, split and initial weights, so what differs between cells, such as a domain that is
hard for all, drops out of a difference within cells.
"""

import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from fdg_plugins.lab.analysis.estimates import Estimate, estimate
from fdg_plugins.lab.analysis.papers import AVERAGE
from fdg_plugins.lab.analysis.selection import ORACLE
from fdg_plugins.lab.analysis.table import Result, Table
from fdg_plugins.plugins.composition import BASE
from fdg_plugins.tasks import ScoreKind

LEAST_PAIRS = 2

Place = tuple[str, int]  # held-out domain, or data set, skew and participation; and seed
Cells = Mapping[Place, float]


@dataclass(frozen=True)
class Scores:
    """One method's scores in its cells, by what is compared: the selection rule, or the images.

    ``by_default``: whether it is FedAvg with its defaults on the data set.
    """

    method: str
    label: str
    by_default: bool
    cells: Mapping[str, Cells]


@dataclass(frozen=True)
class Paired:
    """One method in comparison with the others, under one ``rule`` of selection or on the images of that name.

    ``rank``: mean over the comparison's common cells, 1 is best and equal scores share their ranks; None without such
    cells. ``difference``: mean over the ``pairs`` of its score minus FedAvg's, with its standard error if there are at
    least two; None for FedAvg itself and without pairs. ``by_images``: the estimate from the mean of each held-out
    domain or skewed data set, whose pairs share images.
    """

    method: Scores
    rule: str
    rank: float | None
    difference: Estimate | None
    by_images: Estimate | None
    pairs: Cells

    @property
    def is_clustered(self) -> bool:
        """Whether pairs share images, so that the error over them is another than that over pairs."""
        over = self.by_images
        return over is not None and over.standard_error is not None and over.count < len(self.pairs)


@dataclass(frozen=True)
class Comparison:
    """The methods of a table compared with ``base``: ``common`` is the number of cells that all have, by rule."""

    base: Scores
    rows: tuple[Paired, ...]
    common: Mapping[str, int]


def scores_of(table: Table) -> list[Scores]:
    """Return the scores of a table's federated methods. The oracle is left out, being no result."""
    return [
        Scores(
            rows.method,
            rows.label,
            rows.by_default,
            {result.rule: _cells(result) for result in rows.results if result.rule != ORACLE},
        )
        for rows in table.methods
        if not rows.is_reference
    ]


def compare(
    methods: Sequence[Scores], score: ScoreKind, images: Callable[[str], str] = lambda place: place
) -> Comparison | None:
    """Return the comparison of methods, whose cells are by the same rules, with FedAvg; None if there is none.

    ``images``: names the images on which the cells of a place are judged; by default each place has its own.

    That is so if there is no FedAvg, or several of which none has the default settings, and if no method shares two
    cells with it.
    """
    if (base := _base(bases(methods))) is None:
        return None
    found = {rule: _compared(methods, base, rule, score, images) for rule in base.cells}
    rows = tuple(row for of_rule, _ in found.values() for row in of_rule)
    if all(len(row.pairs) < LEAST_PAIRS for row in rows):
        return None
    return Comparison(base, rows, {rule: common for rule, (_, common) in found.items()})


def bases(methods: Sequence[Scores]) -> tuple[Scores, ...]:
    """Return FedAvg, several times if its settings differ among the runs."""
    return tuple(one for one in methods if one.method == BASE)


def _base(found: Sequence[Scores]) -> Scores | None:
    """Return the only FedAvg, or of several the one with the default settings."""
    candidates = found if len(found) == 1 else [one for one in found if one.by_default]
    return candidates[0] if candidates else None


def _compared(
    methods: Sequence[Scores], base: Scores, rule: str, score: ScoreKind, images: Callable[[str], str]
) -> tuple[list[Paired], int]:
    """Return the rows under one rule, and the number of cells that all methods have."""
    cells = [one.cells[rule] for one in methods]
    common = sorted(set.intersection(*(set(own) for own in cells)))
    ranks = mean_ranks(cells, common, score) if common else [None] * len(methods)
    of_base = base.cells[rule]
    found = []
    for one, own, rank in zip(methods, cells, ranks, strict=True):
        pairs = {} if one is base else {at: own[at] - of_base[at] for at in sorted(own) if at in of_base}
        found.append(
            Paired(one, rule, rank, estimate(dict(enumerate(pairs.values()))), _by_images(pairs, images), pairs)
        )
    return found, len(common)


def _by_images(pairs: Cells, images: Callable[[str], str]) -> Estimate | None:
    """Return the estimate over the means of the pairs that share images; None without pairs."""
    found: dict[str, list[float]] = {}
    for (place, _), value in pairs.items():
        found.setdefault(images(place), []).append(value)
    return estimate(dict(enumerate(map(statistics.fmean, found.values()))))


def _cells(result: Result) -> dict[Place, float]:
    return {
        (column, seed): value
        for column, cell in result.cells.items()
        if column != AVERAGE
        for seed, value in cell.by_seed.items()
    }


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
