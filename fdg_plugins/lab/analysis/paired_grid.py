# SPDX-License-Identifier: Apache-2.0
"""Mean ranks and paired differences to FedAvg as text, below a table."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from fdg_plugins.lab.analysis.cells import NOT_PRINTED, Cell, Grid, Row
from fdg_plugins.lab.analysis.pairing import Comparison, Paired, Scores, bases
from fdg_plugins.tasks import ScoreKind


@dataclass(frozen=True)
class Words:
    """What the table above calls things.

    ``paired``: what the runs of a pair have in common; ``images``: that of which all cells have the same images;
    ``rules``: the heading of what is compared apart, such as rules of selection; ``rule``: one of them in words;
    ``stand_in``: the name of the data if they are none of the data set, else empty.
    """

    paired: str
    images: str
    rules: str
    rule: Callable[[str], str]
    stand_in: str = ""


def paired_grid(found: Comparison | None, score: ScoreKind, words: Words, digits: int = 1) -> Grid | None:
    """Return the mean ranks and the paired differences to FedAvg; None if there are none."""
    if found is None:
        return None
    several = len(found.common) > 1
    cells = " and ".join(dict.fromkeys(map(str, found.common.values())))
    noun = "cell" if cells == "1" else "cells"
    data = f"{words.stand_in}, " if words.stand_in else ""
    clustered = any(row.is_clustered for row in found.rows)
    caption = (
        f"{score.title}{score.unit}, {data}paired with {found.base.label}: mean difference over the pairs of runs with "
        f"the same {words.paired}, its standard error (SE), and the mean rank (1 is the best) over the {cells} such "
        f"{noun} that all methods have."
    )
    errors = ("SE", f"SE over {words.images}s") if clustered else ("SE",)
    header = ("method", *([words.rules] if several else []), "mean rank", f"minus {found.base.label}", *errors, "pairs")
    groups = tuple(
        (_paired_row(row, words.rule(row.rule) if several else "", score, digits, clustered),) for row in found.rows
    )
    note = f"The standard error takes the pairs as independent; those of one {words.images} share its images."
    if clustered:
        note = (
            f"The SE takes the pairs as independent, though those of one {words.images} share its images; the SE over "
            f"{words.images}s takes the mean of each as one value."
        )
    return Grid(caption, header, 1 + several, groups, (note,))


def why_none(methods: Sequence[Scores]) -> list[str]:
    """Return a sentence if nothing is paired because several FedAvgs could be what others are compared with."""
    found = bases(methods)
    if len(found) < 2 or any(one.by_default for one in found):
        return []
    labels = ", ".join(one.label for one in found)
    return [f"No paired differences: expected one FedAvg, or one of them with the default settings; found {labels}."]


def _paired_row(row: Paired, rule: str, score: ScoreKind, digits: int, clustered: bool) -> Row:
    words = [row.method.label, *([rule] if rule else [])]
    rank = NOT_PRINTED if row.rank is None else f"{row.rank:.2f}"
    estimates = (row.difference, row.by_images) if clustered else (row.difference,)
    errors = [None if one is None else one.standard_error for one in estimates]
    shown = [NOT_PRINTED if error is None else f"{score.factor * error:.{digits}f}" for error in errors]
    value = NOT_PRINTED if row.difference is None else f"{score.factor * row.difference.mean:+.{digits}f}"
    count = NOT_PRINTED if row.difference is None else str(len(row.pairs))
    return tuple(map(Cell, (*words, rank, value, *shown, count)))
