# SPDX-License-Identifier: Apache-2.0
"""A table as text, before it is rendered: percentages, the best values marked, caption and footnotes."""

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

from fdg_plugins.lab.analysis.cells import MISSING, NOT_PRINTED, Cell, Grid
from fdg_plugins.lab.analysis.commonest import note_on_domains
from fdg_plugins.lab.analysis.departures import departures
from fdg_plugins.lab.analysis.estimates import LEAST_RUNS, Estimate, difference, over_seeds_in_words, span_with
from fdg_plugins.lab.analysis.names import method_title
from fdg_plugins.lab.analysis.paired_grid import Words, paired_grid, why_none
from fdg_plugins.lab.analysis.pairing import compare, scores_of
from fdg_plugins.lab.analysis.papers import PrintedRow
from fdg_plugins.lab.analysis.selection import ORACLE, rule_in_words
from fdg_plugins.lab.analysis.table import Facts, MethodRows, Result, Table

REASONS_IN_ROW = 2  # why ours are not comparable; more would push the numbers off a screen
ALL = "all"
_WITHIN = {True: "yes", False: "no", None: "unknown"}


def to_grid(table: Table, digits: int = 1, *, paired: bool = True) -> Grid:
    """Return ``table`` as text, with scores to ``digits`` decimals and fractions in percent.

    ``paired``: whether the comparison with FedAvg follows below, if there is one.
    """
    writer = _Writer(table, digits)
    groups = tuple(tuple(writer.rows_of(method)) for method in table.methods if not method.is_reference)
    references = tuple(tuple(writer.rows_of(method)) for method in table.methods if method.is_reference)
    scores = scores_of(table) if paired else []
    below = paired_grid(compare(scores, table.facts.score), table.facts.score, _pairs_in_words(table.facts), digits)
    notes = (*writer.notes(), *why_none(scores))
    return Grid(writer.caption(), writer.header(), writer.words, groups, notes, references, below)


def _pairs_in_words(facts: Facts) -> Words:
    rule = partial(rule_in_words, protocol=facts.protocol)
    stand_in = facts.data if facts.stand_in else ""
    return Words("seed and held-out domain", "domain", "selection", rule, stand_in)


class _Writer:
    """Writes one table; collects the footnotes on the way."""

    def __init__(self, table: Table, digits: int) -> None:
        self.table = table
        self.digits = digits
        self.factor = table.facts.score.factor
        self.compared = table.against is not None
        self.words = 1 + (len(table.rules) > 1) + self.compared
        results = [result for method in table.methods for result in method.results]
        # A column without any result of ours is left out, and with it what papers print there.
        self.columns = tuple(name for name in table.columns if any(name in result.cells for result in results))
        self.columns = self.columns or table.columns
        cells = [cell for result in results for cell in result.cells.values()]
        self.counts = sorted({cell.count for cell in cells})
        self.seeds = sorted({seed for cell in cells for seed in cell.by_seed})  # a run without a score adds none
        self.seeds_differ = len({tuple(cell.by_seed) for cell in cells}) > 1
        self.best = {(block, rule): self._best(block, rule) for block in (False, True) for rule in table.rules}
        self.marks: dict[str, str] = {}
        self.has_differences = False

    # --- header, caption and footnotes ---

    def header(self) -> tuple[str, ...]:
        """Return the titles of the columns."""
        return (*self._words("method", "selection", "whose"), *self.columns)

    def caption(self) -> str:
        """Return the description of the numbers: the data, the training, the selection, and the number of seeds."""
        facts, rules = self.table.facts, self.table.rules
        selection = self._rule(rules[0]) if len(rules) == 1 else "by several rules"
        parts = [", ".join(_described(facts)), f"selection: {selection}", f"fdg-plugins {', '.join(facts.versions)}"]
        over = over_seeds_in_words(self.seeds or facts.seeds, self.counts, counted=self.seeds_differ)
        return f"{facts.score.heading}{facts.score.unit}, {over}: {'; '.join(parts)}."

    def notes(self) -> list[str]:
        """Return the footnotes; call this after all rows are written."""
        table = self.table
        notes = [f"[{mark}] {text}." for text, mark in self.marks.items()]
        if ORACLE in table.rules:
            notes.append("The oracle looks at the held-out domain to choose the model: it is not a result.")
        if left_out := [name for name in table.columns if name not in self.columns]:
            notes.append(f"Left out, since no run has a score there: {', '.join(left_out)}.")
        if self.has_differences:
            notes.append(
                "Below a printed row: ours minus theirs, the standard error (SE) of the difference, sqrt(s1²/n1 + "
                "s2²/n2), and whether the difference lies within two of them; unknown where a deviation is not known "
                f"or there are fewer than {LEAST_RUNS} seeds."
            )
        if self.compared:
            notes += self._notes_on_papers()
        return [*notes, *note_on_domains(table.facts.commonest, self.columns), *table.notes]

    def _notes_on_papers(self) -> list[str]:
        methods = self.table.methods
        shown = {method.label: [row for row in method.printed if self._has_number(row)] for method in methods}
        printed = {row.paper.key: row.paper for rows in shown.values() for row in rows}
        notes = [
            f"{paper.title} paper: {paper.reference}; mean of {paper.runs} runs; selection: {paper.selection}."
            for paper in printed.values()
        ]
        lacking = [method.label for method in methods if not shown[method.label] and not method.is_reference]
        return notes + ([f"No printed number: {', '.join(lacking)}."] if lacking else [])

    # --- rows ---

    def rows_of(self, method: MethodRows) -> list[tuple[Cell, ...]]:
        """Return our rows, one per rule, and for each paper its row followed by the differences."""
        rows = [
            row for result in method.results for row in (self._ours(method, result), *self._derived(method, result))
        ]
        for printed in method.printed:
            if not self._has_number(printed):
                continue
            rows.append(self._theirs(method, printed))
            if reasons := departures(self.table.facts, printed, method):
                rows.append(self._not_comparable(method, reasons))
            else:
                rows += [self._differences(method, result, printed) for result in method.results]
        return rows

    def _has_number(self, printed: PrintedRow) -> bool:
        return any(column in printed.cells for column in self.columns)

    def _not_comparable(self, method: MethodRows, reasons: Sequence[str]) -> tuple[Cell, ...]:
        """Return the row that stands in place of the differences; all reasons may be in a footnote."""
        told, whole = (f"not comparable: {', '.join(some)}" for some in (reasons[:REASONS_IN_ROW], reasons))
        whose = told if told == whole else told + self._marked([whole])
        return (*self._cells(method.label, "", whose), *(Cell(NOT_PRINTED) for _ in self.columns))

    def _ours(self, method: MethodRows, result: Result) -> tuple[Cell, ...]:
        cells, best = [], self.best[method.is_reference, result.rule]
        for column in self.columns:
            cell = result.cells.get(column)
            is_best = cell is not None and self._mean(cell) == best.get(column)
            cells.append(Cell(self._estimate(cell, counted=True) if cell else MISSING, is_best))
        return (*self._cells(method.label, self._rule(result.rule), "ours"), *cells)

    def _derived(self, method: MethodRows, result: Result) -> Iterator[tuple[Cell, ...]]:
        """Yield a row for each score that the task derives, without marks: the primary score is compared."""
        for kind, found in result.derived.items():
            cells = [Cell(self._estimate(found[name], True) if name in found else MISSING) for name in self.columns]
            yield (*self._cells(f"{method.label}, {kind.title}", self._rule(result.rule), "ours"), *cells)

    def _theirs(self, method: MethodRows, row: PrintedRow) -> tuple[Cell, ...]:
        first, *others = row.cells.values()
        common = [note for note in first.notes if all(note in other.notes for other in others)]
        tables = f"table{'s' if len(row.tables) > 1 else ''} {', '.join(map(str, row.tables))}"
        whose = f"{row.paper.title} paper, {tables}, {row.backbone}{self._marked(common)}"
        cells = [self._printed(row.cells.get(column), common) for column in self.columns]
        return (*self._cells(method_title(method.method), "as printed", whose), *cells)  # whose settings are not ours

    def _printed(self, cell: Estimate | None, common: Sequence[str]) -> Cell:
        """Return a printed number with the marks of its notes, except those ``common`` to its row."""
        if cell is None:
            return Cell(NOT_PRINTED)
        own = [note for note in cell.notes if note not in common]
        return Cell(self._estimate(cell) + self._marked(own))

    def _differences(self, method: MethodRows, result: Result, row: PrintedRow) -> tuple[Cell, ...]:
        self.has_differences = True
        cells = [self._difference(result.cells.get(column), row.cells.get(column)) for column in self.columns]
        whose = f"ours minus {row.paper.title} paper, within 2 SE"
        return (*self._cells(method.label, self._rule(result.rule), whose), *cells)

    def _difference(self, ours: Estimate | None, theirs: Estimate | None) -> Cell:
        if theirs is None:
            return Cell(NOT_PRINTED)
        if ours is None:
            return Cell(MISSING)
        found = difference(ours, theirs)
        error = found.standard_error
        words = "" if error is None else f"(SE {self.factor * error:.{self.digits}f}) "
        return Cell(f"{self.factor * found.value:+.{self.digits}f} {words}{_WITHIN[found.within_two]}")

    # --- cells ---

    def _rule(self, rule: str) -> str:
        return rule_in_words(rule, self.table.facts.protocol)

    def _cells(self, *words: str) -> tuple[Cell, ...]:
        return tuple(Cell(word) for word in self._words(*words))

    def _words(self, method: str, selection: str, whose: str) -> tuple[str, ...]:
        selections = (selection,) if len(self.table.rules) > 1 else ()
        return (method, *selections, *((whose,) if self.compared else ()))

    def _mean(self, cell: Estimate) -> str:
        return f"{self.factor * cell.mean:.{self.digits}f}"

    def _estimate(self, cell: Estimate, counted: bool = False) -> str:
        text = self._mean(cell)
        if cell.std is not None:
            text += f" ± {self.factor * cell.std:.{self.digits}f}"
        return f"{text} ({cell.count})" if counted and self.seeds_differ else text

    def _best(self, references: bool, rule: str) -> dict[str, str]:
        """Return the best mean of each column of a block, as printed: of the methods, or of the references.

        Empty for the oracle; without columns that have only one value.
        """
        if rule == ORACLE:
            return {}
        means = self._means(self._results(references, rule))
        return {column: self._best_of(printed) for column, printed in means.items() if len(printed) > 1}

    def _results(self, references: bool, rule: str) -> list[Result]:
        methods = [method for method in self.table.methods if method.is_reference == references]
        return [result for method in methods for result in method.results if result.rule == rule]

    def _means(self, results: Sequence[Result]) -> dict[str, list[str]]:
        """Return all means of each column, as printed."""
        means: dict[str, list[str]] = {}
        for result in results:
            for column, cell in result.cells.items():
                means.setdefault(column, []).append(self._mean(cell))
        return means

    def _best_of(self, printed: list[str]) -> str:
        return max(printed, key=lambda text: self.table.facts.score.goodness(float(text)))

    def _marked(self, notes: Sequence[str]) -> str:
        """Return the marks of footnotes; new footnotes are numbered consecutively."""
        for note in notes:
            self.marks.setdefault(note, str(len(self.marks) + 1))
        return "".join(f" [{self.marks[note]}]" for note in notes)


def _described(facts: Facts) -> list[str]:
    """Return the data and settings that the runs share; the name of the data contains STAND-IN if it applies."""
    weights = "ImageNet weights" if facts.initial_weights == "imagenet" else facts.initial_weights
    most = _span(facts, "max_samples_per_domain", facts.max_samples)
    rounds = () if facts.rounds is None else facts.chosen.get("rounds", (facts.rounds,))
    optional = (
        (facts.rounds, span_with(rounds, "round") if rounds else ""),
        (None if most == ALL else most, f"at most {most} images per domain"),
        (facts.rounds, span_with(facts.sources, "source site")),
        (facts.steps, facts.references),
    )
    known = [text for value, text in optional if value is not None]
    trained = [facts.trained] if facts.trained else []
    size = _span(facts, "image_size", facts.image_size)
    return [facts.data, weights, _span(facts, "model", facts.model), *trained, f"{size} px", *known]


def _span(facts: Facts, setting: str, value: Any) -> str:
    """Return the value of a setting as text; of one that was chosen, the smallest and the largest, or all names."""
    values = facts.chosen.get(setting, (value,))
    texts = [ALL if one is None else str(one) for one in values]
    return " or ".join(texts) if isinstance(values[0], str) else " to ".join(dict.fromkeys((texts[0], texts[-1])))
