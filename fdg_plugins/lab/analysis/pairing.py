# SPDX-License-Identifier: Apache-2.0
"""Methods compared in the cells of a table that they share: mean ranks, and paired differences to FedAvg.

A cell is one seed with one held-out domain, or of label-skewed sites with one data set, skew and participation. In it,
all methods have the same images, split and initial weights, so what differs between cells, such as a domain that is
hard for all, drops out of a difference within cells.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import pandas as pd

from fdg_plugins.lab.analysis.render import Sheet
from fdg_plugins.tasks import ScoreKind

LEAST_PAIRS = 2
NONE = "-"


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
        several = rows["rule"].nunique() > 1

        def texts(column: str, form: str, factor: float = 1.0) -> pd.Series:
            return (factor * rows[column]).map(form.format, na_action="ignore")

        frame = pd.DataFrame(
            {
                "method": rows["label"],
                **({rules[0]: rows["rule"].map(lambda rule: rules[1].get(rule, rule))} if several else {}),
                "mean rank": texts("rank", "{:.2f}"),
                f"minus {self.base}": texts("difference", "{:+.1f}", score.factor),
                "SE": texts("se", "{:.1f}", score.factor),
                **({over: texts("se_over", "{:.1f}", score.factor)} if clustered else {}),
                "pairs": rows["pairs"].replace(0, NONE).map(str),
            }
        )
        counts = " and ".join(dict.fromkeys(map(str, rows["common"])))
        note = f"The SE takes the pairs as independent, though those of one {self.images} share its images"
        also = f"; the SE over {self.images}s takes the mean of each as one value" if clustered else ""
        return Sheet(
            f"{score.title}{score.unit}, {data}, paired with {self.base}: mean difference over the pairs of runs with "
            f"the same {self.paired}, its standard error (SE), and the mean rank (1 is the best) over the {counts} "
            "such cells that all methods have.",
            frame.astype(object).fillna(NONE),
            1 + several,
            [f"{note}{also}."],
        )

    def lines(self) -> Iterator[dict[str, Any]]:
        """Yield method, label, rule and numbers of each mean rank and difference."""
        for row in self.rows.astype(object).where(self.rows.notna(), None).to_dict("records"):
            names = {name: row[name] for name in ("label", "rule")}
            if row["rank"] is not None:
                yield {**names, "kind": "mean_rank", "mean": row["rank"], "pairs": row["common"]}
            if row["pairs"]:
                numbers = {"mean": row["difference"], "standard_error": row["se"], "values": row["values"]}
                yield {**names, "kind": "paired_difference", **numbers, "pairs": row["pairs"]}


def compare(
    scores: Iterable[tuple[str, str, str, int, float]],
    base: str | None,
    score: ScoreKind,
    paired: tuple[str, str] = ("seed and held-out domain", "domain"),
    images: Callable[[str], str] = str,
) -> Comparison | None:
    """Return the comparison of methods with the FedAvg labelled ``base``; None if no method shares two cells with it.

    ``scores``: label, what is compared apart (the selection rule, or the images), place, seed and value of each.
    ``paired``: as in :class:`Comparison`. ``images``: names the images on which the cells of a place are evaluated; by
    default each place has its own.
    """
    found = pd.DataFrame(list(scores), columns=["label", "rule", "place", "seed", "value"])
    if base not in set(found["label"]):
        return None
    labels, rows = list(found["label"].unique()), []
    for rule, of_rule in found.groupby("rule", sort=False):
        cells = of_rule.pivot(index=["place", "seed"], columns="label", values="value").reindex(columns=labels)
        common = cells.dropna()
        ranks = (score.goodness(1.0) * common).rank(axis="columns", ascending=False).mean()
        for label in labels:
            pairs = (cells[label] - cells[base]).dropna() if label != base else pd.Series(dtype=float)
            places = pairs.groupby([images(place) for place, _ in pairs.index]).mean() if len(pairs) else pairs
            rows.append(
                {
                    "label": label,
                    "rule": rule,
                    "rank": ranks[label],
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
    return Comparison(str(base), pd.DataFrame(rows), *paired)
