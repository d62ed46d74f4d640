# SPDX-License-Identifier: Apache-2.0
"""A table of results: rows of means over seeds, written as text for readers and as lines of numbers for programs."""

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pandas as pd

from fdg_plugins.lab.analysis.estimates import Difference, Estimate
from fdg_plugins.lab.analysis.pairing import NONE, Comparison
from fdg_plugins.lab.analysis.render import Sheet, as_latex, as_markdown, as_text
from fdg_plugins.tasks import ScoreKind

OURS, PRINTED, DIFFERENCE, CHOSEN, NOTE = "ours", "printed", "difference", "chosen", "note"
NOT_COMPARABLE = "not comparable"
MISSING = "missing"
REFERENCES = "Centralised references (pooled source data)"

FIELDS = (
    *("kind", "method", "label", "selection", "paper", "tables", "backbone", "participation", "on"),
    *("target", "dataset", "skew", "seeds", "mean", "std", "values", "standard_error"),
    *("within_two_standard_errors", "pairs", "note", "data", "stand_in", "initial_weights", "model", "image_size"),
    *("rounds", "steps", "sites", "max_samples_per_domain", "version"),
)

Cells = Mapping[str, Estimate | Difference]


@dataclass(frozen=True)
class Row:
    """One row: our results of a method, those that a paper prints, or the differences of the two.

    Args:
        kind: ``ours``, ``printed``, ``difference``, or the name of a score that the task derives.
        method, label: the method's name, and how it is called; ``score``: the title of the score that the task derives.
        words: the texts between the label and the numbers.
        cells: by column; a column of ``empty`` has none by nature, any other that is left out is missing.
        fields: of all lines of the row; ``by_column``: of the lines of a column.
        rivals: rows with the same rivals compete for the best of each column; None: this one does not.
        in_text: whether the row is shown to readers.
    """

    kind: str
    method: str
    label: str
    words: tuple[str, ...]
    cells: Cells
    fields: Mapping[str, Any] = field(default_factory=dict)
    by_column: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    empty: frozenset[str] = frozenset()
    rivals: Hashable = None
    score: str = ""
    in_text: bool = True
    is_reference: bool = False


@dataclass(frozen=True)
class Table:
    """A table. ``head``: the titles of the columns of words; ``columns``: of the numbers, with the fields of each.

    ``facts``: the fields of the lines of notes; ``chosen``: lines of what was chosen on source validation; ``rules``:
    what the comparison is made apart for, and each of it in words. ``counted``: whether cells state their number of
    seeds.
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
    counted: bool = False
    chosen: Sequence[Mapping[str, Any]] = ()

    def text(self, digits: int = 1, *, paired: bool = True) -> str:
        """Return the table for a terminal, with scores to ``digits`` decimals and fractions in percent.

        ``paired``: whether the comparison with FedAvg follows below, if there is one.
        """
        return as_text(self._sheets(digits, paired))

    def markdown(self, digits: int = 1, *, paired: bool = True) -> str:
        """Return the table in Markdown."""
        return as_markdown(self._sheets(digits, paired))

    def latex(self, digits: int = 1, *, paired: bool = True) -> str:
        """Return the table in LaTeX."""
        return as_latex(self._sheets(digits, paired))

    def csv(self, *, paired: bool = True) -> str:
        """Return :meth:`numbers` as CSV with a header."""
        return self.numbers(paired=paired).to_csv(index=False, lineterminator="\n")

    def numbers(self, *, paired: bool = True) -> pd.DataFrame:
        """Return a line per row and column, unrounded; fractions stay fractions, what does not apply is empty.

        ``kind`` is that of the row; ``values`` are ``seed:value``, separated by semicolons. A missing cell has 0 seeds
        and no mean. Lines of the kind ``chosen`` have the value of a setting that was chosen for a held-out domain in
        ``note``, its mean score on source validation in ``mean``, and ``value:score`` of all values in ``values``. Each
        note has a line of the kind ``note``. ``paired``: whether lines of the kinds ``mean_rank`` and
        ``paired_difference`` follow; their ``pairs`` is the number of cells, ``values`` are ``place/seed:difference``.
        """
        lines: list[Mapping[str, Any]] = [line for row in self.rows for line in self._lines(row)]
        lines += [*self.chosen, *({**self.facts, "kind": NOTE, "note": note} for note in self.notes)]
        if paired and self.comparison is not None:
            own = {row.label: row.fields for row in self.rows if row.kind == OURS}
            for row, line in self.comparison.lines():
                names = {"method": row.method.method, "label": row.method.label}
                at = {"participation": None, self.rules[0]: row.rule}
                lines.append({**own[row.method.label], **names, **at, **line})
        return pd.DataFrame(lines, columns=FIELDS, dtype=object)

    def _lines(self, row: Row) -> list[dict[str, Any]]:
        lines = []
        for column in (column for column in self.columns if column not in row.empty):
            if column in row.cells:
                numbers = row.cells[column].numbers()
            elif row.kind in (PRINTED, DIFFERENCE):
                continue
            else:
                numbers = {"seeds": 0}
            names = {"kind": row.kind, "method": row.method, "label": row.label, **self.columns[column]}
            lines.append({**names, **numbers, **row.fields, **row.by_column.get(column, {})})
        return lines

    @property
    def shown(self) -> list[str]:
        """The columns with a result of ours; without any, all."""
        ours = [row for row in self.rows if row.kind == OURS]
        return [one for one in self.columns if any(one in row.cells for row in ours)] or list(self.columns)

    def _sheets(self, digits: int, paired: bool) -> list[Sheet]:
        left_out = [column for column in self.columns if column not in self.shown]
        notes = [f"Left out, since no run has a score there: {', '.join(left_out)}."] if left_out else []
        found = [Sheet(self.caption, self._frame(digits), len(self.head), [*notes, *self.notes])]
        if paired and self.comparison is not None:
            found.append(self.comparison.sheet(self.score, str(self.facts["data"]), self.rules, digits))
        return found

    def _frame(self, digits: int) -> pd.DataFrame:
        best, head = self._best(digits), [*self.head, *self.shown]
        lines: list[list[str]] = []
        heading = [[f"{REFERENCES}:", *[""] * (len(head) - 1)]]
        for row in (row for row in self.rows if row.in_text):
            if row.is_reference:
                lines, heading = [*lines, *heading], []
            texts = [self._text(row, column, digits) for column in self.shown]
            for place, column in enumerate(self.shown):
                mean = self._mean(row, column, digits)
                if mean is not None and mean == best.get((row.rivals, column)):
                    texts[place] = f"**{texts[place]}**"
            lines.append([f"{row.label}, {row.score}" if row.score else row.label, *row.words, *texts])
        return pd.DataFrame(lines, columns=head)

    def _text(self, row: Row, column: str, digits: int) -> str:
        cell = row.cells.get(column)
        if cell is None:
            return NONE if row.kind in (PRINTED, DIFFERENCE) or column in row.empty else MISSING
        text = cell.text(self.score.factor, digits)
        if self.counted and isinstance(cell, Estimate) and row.kind != PRINTED:
            return f"{text} ({cell.count})"
        return text

    def _mean(self, row: Row, column: str, digits: int) -> str | None:
        """Return a mean as shown, if the row competes for the best of the column."""
        cell = row.cells.get(column)
        if row.rivals is None or not isinstance(cell, Estimate):
            return None
        return f"{self.score.factor * cell.mean:.{digits}f}"

    def _best(self, digits: int) -> dict[tuple[Hashable, str], str]:
        """Return the best mean of each column among rivals, as shown; none where there is only one."""
        means: dict[tuple[Hashable, str], list[str]] = {}
        for row in self.rows:
            for column in row.cells:
                if (text := self._mean(row, column, digits)) is not None:
                    means.setdefault((row.rivals, column), []).append(text)
        return {
            at: max(found, key=lambda text: self.score.goodness(float(text)))
            for at, found in means.items()
            if len(found) > 1
        }
