# SPDX-License-Identifier: Apache-2.0
"""Mean ranks and paired differences to FedAvg as text, below a table."""

from fdg_plugins.analysis.cells import NOT_PRINTED, Cell, Grid, Row
from fdg_plugins.analysis.pairing import Paired, bases, compare
from fdg_plugins.analysis.selection import rule_in_words
from fdg_plugins.analysis.table import Table
from fdg_plugins.tasks import ScoreKind


def paired_grid(table: Table, digits: int = 1) -> Grid | None:
    """Return the mean ranks and the paired differences to FedAvg; None if the table has none."""
    found = compare(table)
    if found is None:
        return None
    score, several = table.facts.score, len(found.common) > 1
    cells = " and ".join(dict.fromkeys(map(str, found.common.values())))
    caption = (
        f"{score.title}{score.unit}, paired with {found.base.label}: mean difference over the pairs of runs with the "
        "same seed and held-out domain, its standard error (SE), and the mean rank (1 is the best) over the "
        f"{cells} such cells that all methods have."
    )
    header = ("method", *(["selection"] if several else []), "mean rank", f"minus {found.base.label}", "SE", "pairs")
    groups = tuple(
        (_paired_row(row, rule_in_words(row.rule, table.facts.protocol) if several else "", score, digits),)
        for row in found.rows
    )
    note = "The standard error takes the pairs as independent; those of one domain share its images."
    return Grid(caption, header, 1 + several, groups, (note,))


def why_none(table: Table) -> str | None:
    """Return a sentence if nothing is paired because several FedAvgs could be what others are compared with."""
    found = bases(table)
    if len(found) < 2 or any(rows.by_default for rows in found):
        return None
    labels = ", ".join(rows.label for rows in found)
    return f"No paired differences: expected one FedAvg, or one of them with the default settings; found {labels}."


def _paired_row(row: Paired, rule: str, score: ScoreKind, digits: int) -> Row:
    words = [row.method.label, *([rule] if rule else [])]
    rank = NOT_PRINTED if row.rank is None else f"{row.rank:.2f}"
    if row.difference is None:
        return tuple(map(Cell, (*words, rank, NOT_PRINTED, NOT_PRINTED, NOT_PRINTED)))
    value, error = row.difference.mean, row.difference.standard_error
    shown = NOT_PRINTED if error is None else f"{score.factor * error:.{digits}f}"
    return tuple(map(Cell, (*words, rank, f"{score.factor * value:+.{digits}f}", shown, str(len(row.pairs)))))
