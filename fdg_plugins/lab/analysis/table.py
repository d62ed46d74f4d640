# SPDX-License-Identifier: Apache-2.0
"""A table of methods by columns: as text with the best of each column in bold, and as unrounded numbers.

A :class:`Sheet` is any table as text; :func:`rendered` writes it for a terminal, in Markdown and in LaTeX.
"""

import re
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import pandas as pd

from fdg_plugins.errors import harmless, visible
from fdg_plugins.lab.analysis import estimates
from fdg_plugins.lab.analysis.estimates import VERDICT, Cell, text_of
from fdg_plugins.tasks import ScoreKind

OURS, PRINTED, DIFFERENCE, NOTE = "ours", "printed", "difference", "note"
NOT_COMPARABLE, MISSING, NONE = "not comparable", "missing", "-"
REFERENCES = "References (pooled source data, or each site alone):"
TERMINAL, MARKDOWN, LATEX, CSV = "terminal", "markdown", "latex", "csv"

FIELDS = (
    *("kind", "method", "label", "selection", "paper", "tables", "backbone", "participation", "on"),
    *("target", "dataset", "skew", "seeds", "mean", "std", "values", "standard_error", "site", "interval", VERDICT),
    *("pairs", "note", "data", "stand_in", "initial_weights", "model", "image_size"),
    *("rounds", "steps", "sites", "max_samples_per_domain", "version"),
)
_LATEX = str.maketrans(
    {
        **{sign: rf"\{sign}" for sign in "&%$#_{}"},
        "\\": r"\textbackslash{}",
        "~": r"\textasciitilde{}",
        "^": r"\textasciicircum{}",
        "[": "{[}",  # at the start of a row, it would be read as an argument of the preceding line break
    }
)


class Sheet(NamedTuple):
    """A caption, a table of text of which the first ``words`` columns are words, and notes below.

    The best of a column stands between ``**``.
    """

    caption: str
    frame: pd.DataFrame
    words: int
    notes: Sequence[str]


class Row(NamedTuple):
    """One row: our results of a method, those that a paper prints, or the differences of the two.

    ``words``: the texts left of the numbers, by the head of their column, none for a row that is not shown to readers;
    ``cells``: by column; ``fields``: of all lines of the row, such as its kind (``ours``, ``printed``, ``difference``,
    or the name of a score that the task derives), method and label. A column without a cell ``is_missing``, or has none
    by nature. Rows with the same ``rivals`` compete for the best of each column; None: this one does not. ``factor``:
    by which numbers are shown, None: that of the table.
    """

    words: Mapping[str, str]
    cells: Mapping[str, Cell]
    fields: Mapping[str, Any]
    is_missing: bool = True
    rivals: Hashable = None
    factor: float | None = None
    is_reference: bool = False


class Below(NamedTuple):
    """A comparison below a table: as text, and as lines of numbers."""

    sheet: Sheet
    lines: Sequence[Mapping[str, Any]]


def seeds_of(rows: Iterable[Row]) -> set[frozenset[int]]:
    """Return the sets of seeds over which our cells are; if there are several, cells state their number of seeds."""
    return {frozenset(cell["by_seed"]) for row in rows if row.fields["kind"] == OURS for cell in row.cells.values()}


def seeds_in_words(rows: Iterable[Row], seeds: Iterable[int]) -> str:
    """Return what the numbers of a table are over; ``seeds``: those of the runs, for a table without numbers."""
    found = seeds_of(rows)
    more = " (their number in brackets)" if len(found) > 1 else ""
    return estimates.seeds_in_words(frozenset().union(*found) or set(seeds), more)


@dataclass(frozen=True)
class Table:
    """A table. ``head``: the titles of the columns of words; ``columns``: of the numbers, with the fields of each.

    ``facts``: the fields of the lines of notes; ``below``: comparisons with FedAvg, and with sites alone.
    """

    caption: str
    head: tuple[str, ...]
    columns: Mapping[str, Mapping[str, Any]]
    rows: tuple[Row, ...]
    notes: tuple[str, ...]
    score: ScoreKind
    facts: Mapping[str, Any]
    below: tuple[Below, ...] = ()

    def text(self, form: str = TERMINAL) -> str:
        """Return the table in the ``form`` terminal, markdown, latex or csv; but for CSV, fractions are in percent."""
        if form == CSV:
            return csv_of(self.numbers())
        return rendered(self.sheets(), form)

    def sheets(self) -> list[Sheet]:
        """Return captions, data frames of text and notes: of the table, and of the comparisons."""
        own = Sheet(self.caption, self._frame(), len(self.head), self.notes)
        return [own, *(one.sheet for one in self.below)]

    def numbers(self) -> pd.DataFrame:
        """Return a line per row and column, unrounded; fractions stay fractions, what does not apply is empty.

        ``kind`` is that of the row; ``values`` are ``seed:value``, separated by semicolons. A missing cell has 0 seeds
        and no mean. Each note has a line of the kind ``note``. Lines of the kinds ``mean_rank`` and
        ``paired_difference`` follow; their ``pairs`` is the number of cells, ``values`` are ``place/seed:difference``;
        then, of the kinds ``alone``, ``federated`` and ``federated_minus_alone``, those of each ``site``.
        """
        lines = [
            {**own, **row.cells.get(column, {"seeds": 0}), **row.fields}
            for row in self.rows
            for column, own in self.columns.items()
            if column in row.cells or row.is_missing
        ]
        lines += [{**self.facts, "kind": NOTE, "note": note} for note in self.notes]
        lines += [{**self.facts, **line} for one in self.below for line in one.lines]
        return pd.DataFrame(lines, columns=FIELDS, dtype=object)

    @property
    def shown(self) -> list[str]:
        """The columns with a result of ours; without any, all."""
        ours = {column for row in self.rows if row.fields["kind"] == OURS for column in row.cells}
        return [one for one in self.columns if one in ours] or list(self.columns)

    def _frame(self) -> pd.DataFrame:
        best, head, lines = self._best(), [*self.head, *self.shown], list[list[str]]()
        for row in (row for row in self.rows if row.words):
            if row.is_reference and REFERENCES not in (line[0] for line in lines):
                lines.append([REFERENCES, *[""] * (len(head) - 1)])
            texts = [self._text(row, column, best) for column in self.shown]
            lines.append([*(row.words[name] for name in self.head), *texts])
        return pd.DataFrame(lines, columns=head)

    def _text(self, row: Row, column: str, best: Mapping[tuple[Hashable, str], float]) -> str:
        if (cell := row.cells.get(column)) is None:
            return MISSING if row.is_missing else NONE
        text = text_of(cell, self.score.factor if row.factor is None else row.factor)
        if VERDICT not in cell and row.fields["kind"] != PRINTED and len(seeds_of(self.rows)) > 1:
            text = f"{text} ({cell['seeds']})"
        return f"**{text}**" if self._rounded(cell) == best.get((row.rivals, column)) else text

    def _rounded(self, cell: Cell) -> float:
        return float(f"{self.score.goodness(self.score.factor * cell['mean']):.1f}")

    def _best(self) -> dict[tuple[Hashable, str], float]:
        """Return the best mean of each column among rivals, as shown; none where there is only one."""
        means: dict[tuple[Hashable, str], list[float]] = {}
        for row in (row for row in self.rows if row.rivals is not None):
            for column, cell in row.cells.items():
                means.setdefault((row.rivals, column), []).append(self._rounded(cell))
        return {at: max(found) for at, found in means.items() if len(found) > 1}


# --- as text ---


def csv_of(frame: pd.DataFrame) -> str:
    """Return a frame as CSV, in which no text is a formula: names may be those of a stranger's record."""
    cells = {harmless(name): [*map(harmless, column)] for name, column in frame.items()}
    return str(pd.DataFrame(cells, dtype=object).to_csv(index=False, lineterminator="\n"))


def rendered(sheets: Sequence[Sheet], form: str) -> str:
    """Return tables one below the other, for a terminal, in Markdown, or in LaTeX with rules of the package booktabs.

    Markup and unprintable signs in names are escaped.
    """
    if form == LATEX:
        return "% needs \\usepackage{booktabs}\n" + "\n".join(map(_latex_table, sheets))
    escape, mark, style, gap = (_markdown, "- ", "pipe", "\n\n") if form == MARKDOWN else (visible, "", "simple", "\n")
    parts: list[str] = []
    for one in sheets:
        frame = one.frame.rename(columns=escape).map(lambda text: escape(text).replace(r"\*\*", "**"))
        sides = ["left"] * one.words + ["right"] * (len(frame.columns) - one.words)
        grid = frame.to_markdown(index=False, tablefmt=style, disable_numparse=True, colalign=sides)
        notes = ["\n".join(f"{mark}{escape(note)}" for note in one.notes)] if one.notes else []
        parts.append(gap.join([escape(one.caption), grid, *notes]))
    return "\n\n".join(parts) + "\n"


def _latex_table(sheet: Sheet) -> str:
    frame = sheet.frame.rename(columns=_latex).map(_latex)
    columns = "l" * sheet.words + "r" * (len(frame.columns) - sheet.words)
    text = str(frame.to_latex(index=False, column_format=columns, caption=_latex(sheet.caption), position="t"))
    notes = "".join(f"\\par\\footnotesize {_latex(note)}\n" for note in sheet.notes)
    return text.replace("\\end{table}\n", f"{notes}\\end{{table}}\n")


def _markdown(text: str) -> str:
    """Return ``text`` with markup escaped; underscores within words are not markup and stay unchanged."""
    return re.sub(r"[\\|*<`\[\]]|(?<!\w)_|_(?!\w)", r"\\\g<0>", visible(text))


def _latex(text: str) -> str:
    """Return ``text`` with LaTeX's special characters escaped, a minus and quotes as it sets them, the best in bold."""
    escaped = re.sub('"([^"]*)"', r"``\1''", visible(text).translate(_LATEX))
    return re.sub(r"\*\*(.+?)\*\*", r"\\textbf{\1}", re.sub(r"^-(?=\d)", "$-$", escaped))
