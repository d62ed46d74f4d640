# SPDX-License-Identifier: Apache-2.0
"""The paper's table from runs: a row per method, a column per held-out domain and their average, means over seeds.

Centralised references, if there are any, follow below the federated methods.
"""

import statistics
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from fdg_plugins.errors import SettingsError
from fdg_plugins.lab.analysis.choosing import choose, note_on
from fdg_plugins.lab.analysis.comparable import (
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
    known_domains,
    line_facts,
    missing_images,
    note_on_batch_norm,
    notes_on_runs,
    rare_classes,
    versions_in_words,
)
from fdg_plugins.lab.analysis.names import default_settings, method_title
from fdg_plugins.lab.analysis.pairing import Scores, compare
from fdg_plugins.lab.analysis.papers import AVERAGE, Paper, PrintedRow, printed_rows
from fdg_plugins.lab.analysis.runs import Run
from fdg_plugins.lab.analysis.selection import ORACLE, RULES, SOURCE_VALIDATION, target_score
from fdg_plugins.lab.analysis.table import (
    CHOSEN,
    DIFFERENCE,
    NOT_COMPARABLE,
    OURS,
    PRINTED,
    Row,
    Table,
    seeds_in_words,
)
from fdg_plugins.plugins.composition import BASE
from fdg_plugins.record.method_settings import differing, method_settings
from fdg_plugins.settings.protocol import Protocol
from fdg_plugins.tasks.counted import FEWEST


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
    found = [choose(group) for group in group_runs(without_repeats(runs, choosing), choosing)]
    groups = [group for group, _ in found]
    writer = _Writer(groups, rules, against)
    rows = tuple(row for group in groups for row in writer.rows(group))
    kept, score, scores = (
        writer.runs,
        writer.score,
        [_scores(group, rows) for group in groups if not group.is_reference],
    )
    rule = RULES[rules[0]] if len(rules) == 1 else "by several rules"
    selecting = kept[0].record.selecting
    rule += f" by {selecting.title}" if selecting != score else ""
    picked = [(group, chosen) for group, chosen in found if chosen]
    return Table(
        caption=f"{score.heading}{score.unit}, {seeds_in_words(rows, (run.seed for run in kept))}: {described(kept)}; "
        f"selection: {rule}; {versions_in_words(kept)}.",
        head=("method", *writer.head),
        columns={column: {"target": column} for column in (*writer.domains, AVERAGE)},
        rows=rows,
        notes=(
            *writer.notes(),
            *(note_on(group, chosen, selecting) for group, chosen in picked),
            *_notes_on_images(kept, writer.domains),
            *notes_on_runs(kept),
            *note_on_batch_norm(groups),
        ),
        score=score,
        facts=line_facts(kept),
        rules=("selection", RULES),
        comparison=compare(scores, score),
        chosen=[
            {
                **line_facts(group.runs),
                **{"kind": CHOSEN, "method": group.method, "label": group.label, "selection": SOURCE_VALIDATION},
                **{"target": one.target, "seeds": len(one.seeds), "mean": one.scores[one.value]},
                "values": ";".join(f"{one.named(value)}:{score}" for value, score in one.scores.items()),
                "note": one.named(one.value),
            }
            for group, chosen in picked
            for one in chosen
        ],
    )


def _check_against(run: Run, choosing: Sequence[str]) -> None:
    """Raise ``SettingsError`` if the runs cannot stand beside printed numbers, which are those of one protocol."""
    if not isinstance(run.dataset, str) or run.record.stand_in:
        raise SettingsError(f"the runs used {run.record.data}, of which no paper prints a number.")
    if varied := [name for name in choosing if name in Protocol.model_fields]:
        raise SettingsError(field="choose", value=varied[0], expected="a setting of a method beside printed numbers")


class _Writer:
    """Writes the rows of one table; collects papers, and remarks with what each is on, on the way."""

    def __init__(self, groups: Sequence[Group], rules: Sequence[str], against: str | None) -> None:
        self.rules, self.against = rules, against
        self.runs = [run for group in groups for run in group.runs]
        self.score, self.domains = self.runs[0].record.score, _domains(self.runs)
        self.papers: dict[str, Paper] = {}
        self.remarks: dict[str, list[str]] = {}
        self.has_differences = False

    @property
    def head(self) -> list[str]:
        """The titles of the columns between the method and the numbers."""
        return (["selection"] if len(self.rules) > 1 else []) + (["whose"] if self.against else [])

    def rows(self, group: Group) -> Iterator[Row]:
        """Yield our rows, one per rule, and for each paper its row followed by the differences."""
        facts = line_facts(group.runs)
        ours = {rule: self._cells(group.runs, rule) for rule in self.rules}
        for rule, cells in ours.items():
            rivals = None if rule == ORACLE else (group.is_reference, rule)
            yield self._row(OURS, group, group.label, rule, "ours", cells, facts, rivals=rivals)
            for kind in dict.fromkeys(kind for run in group.runs for kind in run.record.task.summary_kinds):
                derived, title = self._cells(group.runs, rule, kind.name), f"{group.label}, {kind.title}"
                yield self._row(kind.name, group, title, rule, "ours", derived, facts, factor=kind.factor)
                for number in range(len(group.runs[0].record.classes)):
                    if by_class := self._cells(group.runs, rule, name := f"{kind.name}_{number}"):
                        yield self._row(name, group, title, rule, "ours", by_class, facts, in_text=False)
        for row in printed_rows(str(group.runs[0].dataset), group.method, self.against) if self.against else ():
            if any(row.cells.keys() & cells.keys() for cells in ours.values()):
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
        reasons = ", ".join(departures(group.runs, row, group.chosen))
        if reasons:
            text = f"{NOT_COMPARABLE}, {reasons}"
            self.remarks.setdefault(text, []).append(f"{group.label} ({paper.title} paper)")
        self.has_differences |= not reasons
        source = {"paper": paper.key, "tables": ";".join(map(str, row.tables)), "backbone": row.backbone}
        tables = f"table{'s' if len(row.tables) > 1 else ''} {', '.join(map(str, row.tables))}"
        whose = f"{paper.title} paper, {tables}, {row.backbone}{f', {NOT_COMPARABLE}' if reasons else ''}"
        yield self._row(PRINTED, group, title, "as printed", whose, row.cells, {**source, "selection": None})
        for rule, cells in ours.items():
            found = {
                column: difference(cell, row.cells[column]) for column, cell in cells.items() if column in row.cells
            }
            verdict = {"within_two_standard_errors": NOT_COMPARABLE, "note": reasons} if reasons else {}
            whose, fields = f"ours minus {paper.title} paper, within 2 SE", {**facts, **source, **verdict}
            yield self._row(DIFFERENCE, group, group.label, rule, whose, found, fields, in_text=not reasons)

    def _row(
        self,
        kind: str,
        group: Group,
        title: str,
        rule: str,
        whose: str,
        cells: Mapping[str, Estimate] | Mapping[str, Difference],
        fields: Mapping[str, Any],
        **options: Any,
    ) -> Row:
        label = title if kind == PRINTED else group.label
        words = [word for name, word in (("selection", RULES.get(rule, rule)), ("whose", whose)) if name in self.head]
        fields = {"selection": rule, **fields}
        return Row(
            kind, group.method, label, (title, *words), cells, fields, is_reference=group.is_reference, **options
        )

    def _cells(self, runs: Sequence[Run], rule: str, derived: str | None = None) -> dict[str, Estimate]:
        values: dict[str, dict[int, float]] = {domain: {} for domain in self.domains}
        for run in runs:
            if (score := target_score(run.record, rule, derived)) is not None:
                values[_column(run.target)][run.seed] = score
        found = {column: estimate(by_seed) for column, by_seed in (*values.items(), (AVERAGE, average(values)))}
        return {column: cell for column, cell in found.items() if cell is not None}

    def notes(self) -> Iterator[str]:
        """Yield the notes on papers; call this after all rows are written."""
        for text, of in self.remarks.items():
            yield f"{', '.join(of)}: {text}."
        if self.has_differences:
            yield (
                "Below a printed row: ours minus theirs, the standard error (SE) of the difference, sqrt(s1²/n1 + "
                "s2²/n2), and whether the difference lies within two of them; unknown where a deviation is not known "
                f"or there are fewer than {LEAST_RUNS} seeds."
            )
        for paper in self.papers.values():
            yield f"{paper.title} paper: {paper.reference}; mean of {paper.runs} runs; selection: {paper.selection}."


def _notes_on_images(runs: Sequence[Run], columns: Sequence[str]) -> Iterator[str]:
    """Yield the accuracy of a constant answer, and which images of the held-out domains were not used."""
    shares = {_column(domain): share for domain, share in commonest_in_domains(runs).items()}
    if found := {column: shares[column] for column in columns if column in shares}:
        parts = [f"{column} {100 * share:.1f}" for column, share in found.items()]
        parts += [f"on average {100 * statistics.fmean(found.values()):.1f}"] if len(found) > 1 else []
        words = "Always naming the held-out domain's commonest class is right in this percentage of its images"
        yield f"{words}: {', '.join(parts)}."
    for column, few in rare_classes(runs).items():
        yield f"{column} has fewer than {FEWEST} images of {few}: scores by class, and their mean, are uncertain."
    missing = missing_images(runs)
    if judged := dict.fromkeys(missing[run.target] for run in runs if run.target in missing):
        yield f"Not evaluated on all images of the held-out domain: {', '.join(judged)}."


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
    named = sorted({reply.domain for run in runs for reply in run.record.census.values()})
    domains = known_domains(runs[0].dataset) or named
    others = sorted({run.target for run in runs}.difference(domains))  # of another version of the data set
    return tuple(map(_column, (*domains, *others)))


def _column(domain: str) -> str:
    """Return the name of a domain's column, which is not that of the average, whatever a folder is called."""
    return f"{domain} (domain)" if domain == AVERAGE else domain
