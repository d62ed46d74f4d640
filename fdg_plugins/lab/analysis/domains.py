# SPDX-License-Identifier: Apache-2.0
"""The paper's table from runs: a row per method, a column per held-out domain and their average, means over seeds.

Centralised references, if there are any, follow below the federated methods.
"""

import statistics
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from fdg_plugins.data import dataset_spec
from fdg_plugins.errors import SettingsError
from fdg_plugins.lab.analysis.choosing import choose, note_on
from fdg_plugins.lab.analysis.comparable import (
    Copies,
    Group,
    check_comparable,
    check_varies,
    group_runs,
    without_repeats,
)
from fdg_plugins.lab.analysis.departures import departures
from fdg_plugins.lab.analysis.estimates import LEAST_RUNS, Difference, Estimate, average, difference, estimate
from fdg_plugins.lab.analysis.facts import (
    commonest_in_domains,
    described,
    line_facts,
    missing_images,
    note_on_batch_norm,
    notes_on_runs,
    seeds_in_words,
    versions_in_words,
)
from fdg_plugins.lab.analysis.names import default_settings, method_title
from fdg_plugins.lab.analysis.pairing import Scores, bases, compare
from fdg_plugins.lab.analysis.papers import AVERAGE, Paper, PrintedRow, printed_rows
from fdg_plugins.lab.analysis.runs import Run
from fdg_plugins.lab.analysis.selection import ORACLE, RULES, SOURCE_VALIDATION, target_score
from fdg_plugins.lab.analysis.table import CHOSEN, DIFFERENCE, NOT_COMPARABLE, OURS, PRINTED, Row, Table
from fdg_plugins.plugins.composition import BASE
from fdg_plugins.record.method_settings import differing, method_settings
from fdg_plugins.settings.protocol import Protocol


def build_table(
    runs: Sequence[Run],
    rules: Sequence[str] = (SOURCE_VALIDATION,),
    against: str | None = None,
    choosing: Sequence[str] = (),
) -> Table:
    """Return the table of one or more ``runs`` under the selection rules ``rules``.

    ``against`` names a paper, or ``paper`` for all, whose numbers are shown next to ours. ``choosing``: settings with
    several values among the runs, of which the best on source validation is taken for each held-out domain. Raises
    ``SettingsError`` if the runs are not comparable, or not comparable with printed numbers because they used the
    stand-in or data of no paper.
    """
    for setting in choosing:
        check_varies(runs, setting)
    check_comparable(runs, apart_from=choosing)
    if against is not None:
        _check_against(runs[0], choosing)
    kept, copies = without_repeats(runs, apart_from=choosing)
    found = [choose(group) for group in group_runs(kept, apart_from=choosing)]
    picked = [(group, chosen) for group, chosen in found if chosen]
    writer = _Writer([group for group, _ in found], rules, against)
    rows = tuple(row for group in writer.groups for row in writer.rows(group))
    notes = [*writer.notes(), *(note_on(group, chosen, writer.score) for group, chosen in picked)]
    lines = [
        {
            **line_facts(group.runs),
            "kind": CHOSEN,
            "method": group.method,
            "label": group.label,
            "selection": SOURCE_VALIDATION,
            "target": one.target,
            "seeds": len(one.seeds),
            "mean": one.scores[one.value],
            "values": ";".join(f"{one.named(value)}:{score}" for value, score in one.scores.items()),
            "note": one.named(one.value),
        }
        for group, chosen in picked
        for one in chosen
    ]
    return writer.table(rows, (*notes, *writer.notes_on_data(copies)), lines)


def _check_against(run: Run, choosing: Sequence[str]) -> None:
    """Raise ``SettingsError`` if the runs cannot stand beside printed numbers, which are those of one protocol."""
    if not isinstance(run.dataset, str) or run.record.stand_in:
        raise SettingsError(f"the runs used {run.record.data}, of which no paper prints a number.")
    if varied := [name for name in choosing if name in Protocol.model_fields]:
        raise SettingsError(field="choose", value=varied[0], expected="a setting of a method beside printed numbers")


class _Writer:
    """Writes one table; collects the notes on the way."""

    def __init__(self, groups: Sequence[Group], rules: Sequence[str], against: str | None) -> None:
        self.groups, self.rules, self.against = groups, rules, against
        self.runs = [run for group in groups for run in group.runs]
        self.score = self.runs[0].record.score
        self.domains = _domains(self.runs)
        self.papers: dict[str, Paper] = {}
        self.remarks: dict[str, list[str]] = {}
        self.reasons: dict[str, list[str]] = {}
        self.seeds: set[frozenset[int]] = set()
        self.unprinted: list[str] = []
        self.has_differences = False

    # --- rows ---

    def rows(self, group: Group) -> Iterator[Row]:
        """Yield our rows, one per rule, and for each paper its row followed by the differences."""
        facts = line_facts(group.runs)
        ours = {rule: self._cells(group.runs, rule) for rule in self.rules}
        for rule, cells in ours.items():
            self.seeds |= {frozenset(cell.by_seed) for cell in cells.values()}
            rivals = None if rule == ORACLE else (group.is_reference, rule)
            yield self._row(OURS, group, rule, "ours", cells, facts, rivals=rivals)
            for kind in group.runs[0].record.task.derived_kinds:
                derived = self._cells(group.runs, rule, kind.name)
                yield self._row(kind.name, group, rule, "ours", derived, facts, score=kind.title)
        if self.against is None:
            return
        printed = printed_rows(str(group.runs[0].dataset), group.method, self.against)
        shown = [row for row in printed if any(row.cells.keys() & cells.keys() for cells in ours.values())]
        if not shown and not group.is_reference:
            self.unprinted.append(group.label)
        for row in shown:
            yield from self._theirs(group, row, ours, facts)

    def _theirs(
        self, group: Group, row: PrintedRow, ours: Mapping[str, Mapping[str, Estimate]], facts: Mapping[str, Any]
    ) -> Iterator[Row]:
        paper, title = row.paper, method_title(group.method)  # whose settings are not ours
        self.papers[paper.key] = paper
        for text in dict.fromkeys(note for cell in row.cells.values() for note in cell.notes):
            of = [column for column, cell in row.cells.items() if text in cell.notes]
            where = "" if len(of) == len(row.cells) else f" on {', '.join(of)}"
            self.remarks.setdefault(text, []).append(f"{title}{where} ({paper.title} paper)")
        reasons = departures(group.runs, row, group.chosen)
        self.has_differences |= not reasons
        if reasons:
            self.reasons.setdefault(", ".join(reasons), []).append(f"{group.label} ({paper.title} paper)")
        source = {"paper": paper.key, "tables": ";".join(map(str, row.tables)), "backbone": row.backbone}
        tables = f"table{'s' if len(row.tables) > 1 else ''} {', '.join(map(str, row.tables))}"
        whose = f"{paper.title} paper, {tables}, {row.backbone}{f', {NOT_COMPARABLE}' if reasons else ''}"
        yield self._row(PRINTED, group, "as printed", whose, row.cells, {**source, "selection": None}, label=title)
        for rule, cells in ours.items():
            found: dict[str, Estimate | Difference] = {
                column: difference(cell, row.cells[column]) for column, cell in cells.items() if column in row.cells
            }
            verdict = {"within_two_standard_errors": NOT_COMPARABLE, "note": ", ".join(reasons)} if reasons else {}
            whose = f"ours minus {paper.title} paper, within 2 SE"
            fields = {**facts, **source, **verdict}
            yield self._row(DIFFERENCE, group, rule, whose, found, fields, in_text=not reasons)

    def _row(
        self,
        kind: str,
        group: Group,
        rule: str,
        whose: str,
        cells: Mapping[str, Estimate] | Mapping[str, Estimate | Difference],
        fields: Mapping[str, Any],
        label: str = "",
        **options: Any,
    ) -> Row:
        words = ([RULES.get(rule, rule)] if len(self.rules) > 1 else []) + ([] if self.against is None else [whose])
        fields = {"selection": rule, **fields}
        reference = group.is_reference
        return Row(
            kind, group.method, label or group.label, tuple(words), cells, fields, is_reference=reference, **options
        )

    def _cells(self, runs: Sequence[Run], rule: str, derived: str | None = None) -> dict[str, Estimate]:
        values: dict[str, dict[int, float]] = {domain: {} for domain in self.domains}
        for run in runs:
            if (score := target_score(run.record, rule, derived)) is not None:
                values[_column(run.target)][run.seed] = score
        found = {column: estimate(by_seed) for column, by_seed in (*values.items(), (AVERAGE, average(values)))}
        return {column: cell for column, cell in found.items() if cell is not None}

    # --- what stands above and below ---

    def table(self, rows: Sequence[Row], notes: Sequence[str], chosen: Sequence[Mapping[str, Any]]) -> Table:
        """Return the table of all rows."""
        counted = len(self.seeds) > 1
        seeds = frozenset().union(*self.seeds) or {run.seed for run in self.runs}
        rule = RULES[self.rules[0]] if len(self.rules) == 1 else "by several rules"
        scores = [_scores(group, rows) for group in self.groups if not group.is_reference]
        found = bases(scores)
        unpaired = len(found) > 1 and sum(one.by_default for one in found) != 1
        why = [f"No paired differences: of {len(found)} FedAvgs, not one has the default settings."] if unpaired else []
        selection = ["selection"] if len(self.rules) > 1 else []
        return Table(
            caption=f"{self.score.heading}{self.score.unit}, {seeds_in_words(seeds, counted=counted)}: "
            f"{described(self.runs)}; selection: {rule}; {versions_in_words(self.runs)}.",
            head=("method", *selection, *([] if self.against is None else ["whose"])),
            columns={column: {"target": column} for column in (*self.domains, AVERAGE)},
            rows=tuple(rows),
            notes=(*notes, *why),
            score=self.score,
            facts=line_facts(self.runs),
            rules=("selection", RULES),
            comparison=compare(scores, self.score) if scores else None,
            counted=counted,
            chosen=chosen,
        )

    def notes(self) -> list[str]:
        """Return the notes on rules and papers; call this after all rows are written."""
        notes = []
        if ORACLE in self.rules:
            notes.append("The oracle looks at the held-out domain to choose the model: it is not a result.")
        notes += [f"{', '.join(of)}: {NOT_COMPARABLE}, {why}." for why, of in self.reasons.items()]
        if self.has_differences:
            notes.append(
                "Below a printed row: ours minus theirs, the standard error (SE) of the difference, sqrt(s1²/n1 + "
                "s2²/n2), and whether the difference lies within two of them; unknown where a deviation is not known "
                f"or there are fewer than {LEAST_RUNS} seeds."
            )
        notes += [f"{', '.join(of)}: {text}." for text, of in self.remarks.items()]
        notes += [
            f"{paper.title} paper: {paper.reference}; mean of {paper.runs} runs; selection: {paper.selection}."
            for paper in self.papers.values()
        ]
        return notes + ([f"No printed number: {', '.join(self.unprinted)}."] if self.unprinted else [])

    def notes_on_data(self, copies: Copies) -> list[str]:
        """Return the notes on the images, and on what runs lacked."""
        notes = []
        shares = commonest_in_domains(self.runs)
        found = {name: shares[name] for name in map(_domain, self.domains) if name in shares}
        if found:
            parts = [f"{_column(name)} {100 * share:.1f}" for name, share in found.items()]
            parts += [f"on average {100 * statistics.fmean(found.values()):.1f}"] if len(found) > 1 else []
            words = "Always naming the held-out domain's commonest class is right in this percentage of its images"
            notes.append(f"{words}: {', '.join(parts)}.")
        for run in self.runs:
            if lacking := [RULES[rule] for rule in self.rules if target_score(run.record, rule) is None]:
                notes.append(f"{run.folder} has no score for {', '.join(lacking)} and is missing there.")
        missing = missing_images(self.runs)
        if judged := [missing[run.target] for run in self.runs if run.target in missing]:
            notes.append(f"Not judged on all images of the held-out domain: {', '.join(dict.fromkeys(judged))}.")
        return notes + notes_on_runs(self.runs, copies) + note_on_batch_norm(self.groups)


def _scores(group: Group, rows: Sequence[Row]) -> Scores:
    """Return a method's scores by rule, for its comparison. The oracle is left out, being no result."""
    cells = {
        str(row.fields["selection"]): {
            (column, seed): value
            for column, cell in row.cells.items()
            if column != AVERAGE and isinstance(cell, Estimate)
            for seed, value in cell.by_seed.items()
        }
        for row in rows
        if row.kind == OURS and row.label == group.label and row.rivals is not None
    }
    return Scores(group.method, group.label, is_default_fedavg(group), cells)


def is_default_fedavg(group: Group) -> bool:
    """Return whether runs are of FedAvg with its defaults on their data sets, apart from settings that were chosen."""
    if group.method != BASE:
        return False
    pairs = [(method_settings(run.record), default_settings(run.record)) for run in group.runs]
    return all(default is None or not differing([own, default], group.chosen) for own, default in pairs)


def _domains(runs: Sequence[Run]) -> tuple[str, ...]:
    """Return the domains' columns in the catalogue's order; for an unknown data set, of those that the sites named."""
    try:
        domains = dataset_spec(runs[0].dataset).domains
    except SettingsError:
        domains = tuple(sorted({reply.domain for run in runs for reply in run.record.census.values()}))
    others = sorted({run.target for run in runs}.difference(domains))  # of another version of the data set
    return tuple(map(_column, (*domains, *others)))


def _domain(column: str) -> str:
    return AVERAGE if column == _column(AVERAGE) else column


def _column(domain: str) -> str:
    """Return the name of a domain's column, which is not that of the average, whatever a folder is called."""
    return f"{domain} (domain)" if domain == AVERAGE else domain
