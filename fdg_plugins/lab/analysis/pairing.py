# SPDX-License-Identifier: Apache-2.0
"""Methods compared cell by cell: the mean rank, and the paired difference to FedAvg, over seeds and held-out domains.

A cell is one seed with one held-out domain, or of label-skewed sites with one data set, skew and participation. In it,
all methods have the same images, split and initial weights, so what differs between cells, such as a domain that is
hard for all, drops out of a difference within cells.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import pandas as pd

from fdg_plugins.lab.analysis.render import Sheet
from fdg_plugins.plugins.composition import BASE
from fdg_plugins.tasks import ScoreKind

LEAST_PAIRS = 2
NONE = "-"


class Scores(NamedTuple):
    """One method's scores by what is compared (the selection rule, or the images), and by place and seed.

    ``by_default``: whether it is FedAvg with its defaults on the data set.
    """

    method: str
    label: str
    by_default: bool
    cells: Mapping[str, Mapping[tuple[str, int], float]]


@dataclass(frozen=True)
class Comparison:
    """The methods of a table compared with the FedAvg that is called ``base``.

    ``rows`` has a line per rule and method: its mean ``rank`` over the ``common`` cells that all have, 1 is best and
    equal scores share their ranks; the number of ``pairs``, the mean ``difference`` of its score to FedAvg's over them
    with its standard error ``se``, and ``se_over``, the error where the mean of each of the ``places`` is one value;
    ``values`` are ``place/seed:difference``. ``paired``: in words what the runs of a pair have in common; ``images``:
    that of which all cells have the same images.
    """

    base: str
    rows: pd.DataFrame
    paired: str
    images: str

    def sheet(self, score: ScoreKind, data: str, rules: tuple[str, Mapping[str, str]]) -> Sheet:
        """Return the ranks and differences as text; ``rules``: what is compared apart, and each of it in words."""
        rows, over = self.rows, f"SE over {self.images}s"
        clustered = bool((rows["se_over"].notna() & (rows["places"] < rows["pairs"])).any())
        counts = " and ".join(dict.fromkeys(map(str, rows["common"])))
        texts = {
            "method": rows["label"],
            rules[0]: rows["rule"].map(lambda rule: rules[1].get(rule, rule)),
            "mean rank": rows["rank"].map("{:.2f}".format, na_action="ignore"),
            f"minus {self.base}": (score.factor * rows["difference"]).map("{:+.1f}".format, na_action="ignore"),
            "SE": (score.factor * rows["se"]).map("{:.1f}".format, na_action="ignore"),
            over: (score.factor * rows["se_over"]).map("{:.1f}".format, na_action="ignore"),
            "pairs": rows["pairs"].replace(0, NONE).map(str),
        }
        several = rows["rule"].nunique() > 1
        unused = ([] if several else [rules[0]]) + ([] if clustered else [over])
        note = f"The SE takes the pairs as independent, though those of one {self.images} share its images"
        also = f"; the SE over {self.images}s takes the mean of each as one value" if clustered else ""
        return Sheet(
            f"{score.title}{score.unit}, {data}, paired with {self.base}: mean difference over the pairs of runs with "
            f"the same {self.paired}, its standard error (SE), and the mean rank (1 is the best) over the {counts} "
            "such cells that all methods have.",
            pd.DataFrame(texts).astype(object).fillna(NONE).drop(columns=unused),
            1 + several,
            [f"{note}{also}."],
        )

    def lines(self) -> Iterator[dict[str, Any]]:
        """Yield method, label, rule and numbers of each mean rank and difference."""
        for row in self.rows.astype(object).where(self.rows.notna(), None).to_dict("records"):
            names = {name: row[name] for name in ("method", "label", "rule")}
            if row["rank"] is not None:
                yield {**names, "kind": "mean_rank", "mean": row["rank"], "pairs": row["common"]}
            if row["pairs"]:
                numbers = {"mean": row["difference"], "standard_error": row["se"], "values": row["values"]}
                yield {**names, "kind": "paired_difference", **numbers, "pairs": row["pairs"]}


def compare(
    methods: Sequence[Scores],
    score: ScoreKind,
    paired: tuple[str, str] = ("seed and held-out domain", "domain"),
    images: Callable[[str], str] = str,
) -> Comparison | None:
    """Return the comparison of methods with FedAvg; None if there is none, or no method shares two cells with it.

    Of several FedAvgs, it is the one with the default settings. ``paired``: as in :class:`Comparison`. ``images``:
    names the images on which the cells of a place are evaluated; by default each place has its own.
    """
    bases = [one for one in methods if one.method == BASE]
    bases = bases if len(bases) == 1 else [one for one in bases if one.by_default]
    if len(bases) != 1:
        return None
    (base,) = bases
    rows = []
    for rule in base.cells:
        lines = [(*at, one.label, value) for one in methods for at, value in one.cells[rule].items()]
        found = pd.DataFrame(lines, columns=["place", "seed", "label", "value"])
        cells = found.pivot(index=["place", "seed"], columns="label", values="value")
        cells = cells.reindex(columns=[one.label for one in methods])
        common = cells.dropna()
        ranks = (score.goodness(1.0) * common).rank(axis="columns", ascending=False).mean()
        for one in methods:
            pairs = (cells[one.label] - cells[base.label]).dropna() if one is not base else pd.Series(dtype=float)
            places = pairs.groupby([images(place) for place, _ in pairs.index]).mean() if len(pairs) else pairs
            rows.append(
                {
                    "method": one.method,
                    "label": one.label,
                    "rule": rule,
                    "rank": ranks[one.label],
                    "common": len(common),
                    "difference": pairs.mean(),
                    "se": pairs.sem(),
                    "se_over": places.sem(),
                    "places": len(places),
                    "pairs": len(pairs),
                    "values": ";".join(f"{place}/{seed}:{value}" for (place, seed), value in pairs.items()),
                }
            )
    if all(row["pairs"] < LEAST_PAIRS for row in rows):
        return None
    return Comparison(base.label, pd.DataFrame(rows), *paired)
