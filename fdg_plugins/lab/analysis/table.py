# SPDX-License-Identifier: Apache-2.0
"""A table of methods by columns: as text with the best of each column in bold, and as unrounded numbers."""

from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import pandas as pd

from fdg_plugins.lab.analysis import estimates
from fdg_plugins.lab.analysis.estimates import Difference, Estimate
from fdg_plugins.lab.analysis.pairing import NONE, Comparison
from fdg_plugins.lab.analysis.render import TERMINAL, Sheet, rendered
from fdg_plugins.lab.analysis.worth import Worth
from fdg_plugins.tasks import ScoreKind

OURS, PRINTED, DIFFERENCE, NOTE = "ours", "printed", "difference", "note"
NOT_COMPARABLE = "not comparable"
MISSING = "missing"
REFERENCES = "References (pooled source data, or each site alone)"
CSV = "csv"

FIELDS = (
    *("kind", "method", "label", "selection", "paper", "tables", "backbone", "participation", "on"),
    *("target", "dataset", "skew", "seeds", "mean", "std", "values", "standard_error"),
    *(
        "site",
        "interval",
        "within_two_standard_errors",
        "pairs",
        "note",
        "data",
        "stand_in",
        "initial_weights",
        "model",
        "image_size",
    ),
    *("rounds", "steps", "sites", "max_samples_per_domain", "version"),
)


@dataclass(frozen=True)
class Row:
    """One row: our results of a method, those that a paper prints, or the differences of the two.

    Args:
        kind: ``ours``, ``printed``, ``difference``, or the name of a score that the task derives.
        method, label: the method's name, and how it is called; ``words``: the texts left of the numbers.
        cells: by column; a column of ``empty`` has none by nature, any other that is left out is missing.
        fields: of all lines of the row.
        rivals: rows with the same rivals compete for the best of each column; None: this one does not.
        in_text: whether the row is shown to readers; ``factor``: by which its numbers are, None: that of the table.
    """

    kind: str
    method: str
    label: str
    words: tuple[str, ...]
    cells: Mapping[str, Estimate | Difference]
    fields: Mapping[str, Any]
    empty: frozenset[str] = frozenset()
    rivals: Hashable = None
    in_text: bool = True
    factor: float | None = None
    is_reference: bool = False

    def lacks(self, column: str) -> bool:
        """Return whether the row has no number in a column by nature."""
        return column not in self.cells and (column in self.empty or self.kind in (PRINTED, DIFFERENCE))


def seeds_of(rows: Iterable[Row]) -> set[frozenset[int]]:
    """Return the sets of seeds over which our cells are; if there are several, cells state their number of seeds."""
    cells = [cell for row in rows if row.kind == OURS for cell in row.cells.values()]
    return {frozenset(cell.by_seed) for cell in cells if isinstance(cell, Estimate)}


def seeds_in_words(rows: Iterable[Row], seeds: Iterable[int]) -> str:
    """Return what the numbers of a table are over; ``seeds``: those of the runs, for a table without numbers."""
    found = seeds_of(rows)
    more = " (their number in brackets)" if len(found) > 1 else ""
    return estimates.seeds_in_words(frozenset().union(*found) or set(seeds), more)


@dataclass(frozen=True)
class Table:
    """A table. ``head``: the titles of the columns of words; ``columns``: of the numbers, with the fields of each.

    ``facts``: the fields of the lines of notes; ``rules``: what the comparison is made apart for, and each of it in
    words.
    """

    caption: str
    head: tuple[str, ...]
    columns: Mapping[str, Mapping[str, Any]]
    rows: tuple[Row, ...]
    notes: tuple[str, ...]
    score: ScoreKind
    facts: Mapping[str, Any]
    rules: tuple[str, Mapping[str, str]]
    comparison: Comparison | None = None
    worth: Worth | None = None

    def text(self, form: str = TERMINAL, *, paired: bool = True) -> str:
        """Return the table in the ``form`` terminal, markdown, latex or csv; but for CSV, fractions are in percent.

        ``paired``: whether the comparisons with FedAvg and with sites alone follow below, if there are any.
        """
        if form == CSV:
            return str(self.numbers(paired=paired).to_csv(index=False, lineterminator="\n"))
        return rendered(self.sheets(paired=paired), form)

    def sheets(self, *, paired: bool = True) -> list[Sheet]:
        """Return captions, data frames of text and notes: of the table, and of the comparisons."""
        sheets = [Sheet(self.caption, self._frame(), len(self.head), self.notes)]
        if paired and self.comparison is not None:
            sheets.append(self.comparison.sheet(self.score, str(self.facts["data"]), self.rules))
        if paired and self.worth is not None:
            sheets.append(self.worth.sheet(self.score, str(self.facts["data"])))
        return sheets

    def numbers(self, *, paired: bool = True) -> pd.DataFrame:
        """Return a line per row and column, unrounded; fractions stay fractions, what does not apply is empty.

        ``kind`` is that of the row; ``values`` are ``seed:value``, separated by semicolons. A missing cell has 0 seeds
        and no mean. Each note has a line of the kind ``note``. ``paired``: whether lines of the kinds ``mean_rank`` and
        ``paired_difference`` follow; their ``pairs`` is the number of cells, ``values`` are ``place/seed:difference``;
        then, of the kinds ``alone``, ``federated`` and ``federated_minus_alone``, those of each ``site``.
        """
        lines = [
            {
                **{"kind": row.kind, "method": row.method, "label": row.label, **self.columns[column]},
                **(row.cells[column].numbers() if column in row.cells else {"seeds": 0}),
                **row.fields,
            }
            for row in self.rows
            for column in self.columns
            if not row.lacks(column)
        ]
        lines += [{**self.facts, "kind": NOTE, "note": note} for note in self.notes]
        if paired and self.comparison is not None:
            ours = {row.label: row for row in self.rows if row.kind == OURS}
            fields = {label: {**self.facts, **row.fields, "method": row.method} for label, row in ours.items()}
            apart = ((one, {self.rules[0]: one["rule"], "participation": None}) for one in self.comparison.lines())
            lines += [{**fields[one["label"]], **one, **of} for one, of in apart]
        if paired and self.worth is not None:
            lines += [{**self.facts, **one} for one in self.worth.lines()]
        return pd.DataFrame(lines, columns=FIELDS, dtype=object)

    @property
    def shown(self) -> list[str]:
        """The columns with a result of ours; without any, all."""
        ours = [row for row in self.rows if row.kind == OURS]
        return [one for one in self.columns if any(one in row.cells for row in ours)] or list(self.columns)

    def _frame(self) -> pd.DataFrame:
        best, head = self._best(), [*self.head, *self.shown]
        lines: list[list[str]] = []
        for row in (row for row in self.rows if row.in_text):
            if row.is_reference and f"{REFERENCES}:" not in (line[0] for line in lines):
                lines.append([f"{REFERENCES}:", *[""] * (len(head) - 1)])
            lines.append([*row.words, *(self._text(row, column, best) for column in self.shown)])
        return pd.DataFrame(lines, columns=head)

    def _text(self, row: Row, column: str, best: Mapping[tuple[Hashable, str], float]) -> str:
        cell = row.cells.get(column)
        if cell is None:
            return NONE if row.lacks(column) else MISSING
        text = cell.text(self.score.factor if row.factor is None else row.factor)
        if isinstance(cell, Difference):
            return text
        if len(seeds_of(self.rows)) > 1 and row.kind != PRINTED:
            text = f"{text} ({cell.count})"
        return f"**{text}**" if self._rounded(cell) == best.get((row.rivals, column)) else text

    def _rounded(self, cell: Estimate) -> float:
        return float(f"{self.score.goodness(self.score.factor * cell.mean):.1f}")

    def _best(self) -> dict[tuple[Hashable, str], float]:
        """Return the best mean of each column among rivals, as shown; none where there is only one."""
        means: dict[tuple[Hashable, str], list[float]] = {}
        for row in (row for row in self.rows if row.rivals is not None):
            for column, cell in row.cells.items():
                if isinstance(cell, Estimate):
                    means.setdefault((row.rivals, column), []).append(self._rounded(cell))
        return {at: max(found) for at, found in means.items() if len(found) > 1}
