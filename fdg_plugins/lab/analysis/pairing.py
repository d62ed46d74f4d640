# SPDX-License-Identifier: Apache-2.0
"""Methods compared cell by cell: the mean rank, and the paired difference to FedAvg, over seeds and held-out domains.

A cell is one seed with one held-out domain, or of label-skewed sites with one data set, skew and participation. In it,
all methods have the same images, split and initial weights, so what differs between cells, such as a domain that is
hard for all, drops out of a difference within cells.
"""

import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd

from fdg_plugins.lab.analysis.estimates import Estimate, estimate
from fdg_plugins.lab.analysis.render import Sheet
from fdg_plugins.plugins.composition import BASE
from fdg_plugins.tasks import ScoreKind

LEAST_PAIRS = 2
NONE = "-"

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
    """The methods of a table compared with ``base``: ``common`` is the number of cells that all have, by rule.

    ``paired``: in words what the runs of a pair have in common; ``images``: that of which all cells have the same
    images.
    """

    base: Scores
    rows: tuple[Paired, ...]
    common: Mapping[str, int]
    paired: str
    images: str

    def sheet(self, score: ScoreKind, data: str, rules: tuple[str, Mapping[str, str]], digits: int) -> Sheet:
        """Return the ranks and differences as text; ``rules``: what is compared apart, and each of it in words."""
        clustered = any(row.is_clustered for row in self.rows)
        counts = " and ".join(dict.fromkeys(map(str, self.common.values())))
        frame = pd.DataFrame([self._row(row, rules, score.factor, digits) for row in self.rows])
        unused = ([] if len(self.common) > 1 else [rules[0]]) + ([] if clustered else [f"SE over {self.images}s"])
        note = f"The SE takes the pairs as independent, though those of one {self.images} share its images"
        over = f"; the SE over {self.images}s takes the mean of each as one value" if clustered else ""
        return Sheet(
            f"{score.title}{score.unit}, {data}, paired with {self.base.label}: mean difference over the pairs of runs "
            f"with the same {self.paired}, its standard error (SE), and the mean rank (1 is the best) over the "
            f"{counts} such cells that all methods have.",
            frame.drop(columns=unused),
            1 + (len(self.common) > 1),
            [f"{note}{over}."],
        )

    def _row(self, row: Paired, rules: tuple[str, Mapping[str, str]], factor: float, digits: int) -> dict[str, str]:
        difference, errors = row.difference, []
        for one in (difference, row.by_images):
            error = None if one is None else one.standard_error
            errors.append(NONE if error is None else f"{factor * error:.{digits}f}")
        return {
            "method": row.method.label,
            rules[0]: rules[1].get(row.rule, row.rule),
            "mean rank": NONE if row.rank is None else f"{row.rank:.2f}",
            f"minus {self.base.label}": NONE if difference is None else f"{factor * difference.mean:+.{digits}f}",
            "SE": errors[0],
            f"SE over {self.images}s": errors[1],
            "pairs": NONE if difference is None else str(len(row.pairs)),
        }

    def lines(self) -> Iterator[tuple[Paired, dict[str, Any]]]:
        """Yield each mean rank and difference with the fields of its line; ``values``: ``place/seed:difference``."""
        for row in self.rows:
            if row.rank is not None:
                yield row, {"kind": "mean_rank", "mean": row.rank, "pairs": self.common[row.rule]}
            if row.difference is not None:
                values = ";".join(f"{place}/{seed}:{value}" for (place, seed), value in row.pairs.items())
                numbers = {"mean": row.difference.mean, "standard_error": row.difference.standard_error}
                yield row, {"kind": "paired_difference", **numbers, "pairs": len(row.pairs), "values": values}


def compare(
    methods: Sequence[Scores],
    score: ScoreKind,
    paired: tuple[str, str] = ("seed and held-out domain", "domain"),
    images: Callable[[str], str] = lambda place: place,
) -> Comparison | None:
    """Return the comparison of methods, whose cells are by the same rules, with FedAvg; None if there is none.

    That is so if there is not one FedAvg, or one among several with the default settings, and if no method shares two
    cells with it. ``paired``: as in :class:`Comparison`. ``images``: names the images on which the cells of a place are
    judged; by default each place has its own.
    """
    candidates = bases(methods)
    candidates = candidates if len(candidates) == 1 else [one for one in candidates if one.by_default]
    if len(candidates) != 1:
        return None
    base, rows, common = candidates[0], list[Paired](), dict[str, int]()
    for rule, of_base in base.cells.items():
        cells = [one.cells[rule] for one in methods]
        shared = sorted(set.intersection(*(set(own) for own in cells)))
        common[rule] = len(shared)
        ranks = mean_ranks(cells, shared, score) if shared else [None] * len(methods)
        for one, own, rank in zip(methods, cells, ranks, strict=True):
            pairs = {} if one is base else {at: own[at] - of_base[at] for at in sorted(own) if at in of_base}
            by_images: dict[str, list[float]] = {}
            for (place, _), value in pairs.items():
                by_images.setdefault(images(place), []).append(value)
            means = estimate(dict(enumerate(map(statistics.fmean, by_images.values()))))
            rows.append(Paired(one, rule, rank, estimate(dict(enumerate(pairs.values()))), means, pairs))
    if all(len(row.pairs) < LEAST_PAIRS for row in rows):
        return None
    return Comparison(base, tuple(rows), common, *paired)


def bases(methods: Sequence[Scores]) -> list[Scores]:
    """Return FedAvg, several times if its settings differ among the runs."""
    return [one for one in methods if one.method == BASE]


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
