# SPDX-License-Identifier: Apache-2.0
"""The table by held-out domains: a row for each method and selection rule, a column for each domain and their average.

Centralised references, if there are any, follow below the federated methods.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from fdg_plugins.errors import SettingsError
from fdg_plugins.lab.analysis.comparable import Group, check_varies, comparable_groups
from fdg_plugins.lab.analysis.comparisons import compare, worth
from fdg_plugins.lab.analysis.estimates import LEAST_RUNS, VERDICT, Cell, average, difference, estimate
from fdg_plugins.lab.analysis.facts import described, known_domains, line_facts, notes_on_groups
from fdg_plugins.lab.analysis.papers import AVERAGE, PrintedRow, departures, papers, printed_rows
from fdg_plugins.lab.analysis.runs import Run, method_title
from fdg_plugins.lab.analysis.selection import ORACLE, RULES, SOURCE_VALIDATION, choose, target_score
from fdg_plugins.lab.analysis.table import DIFFERENCE, NOT_COMPARABLE, OURS, PRINTED, Row, Table, seeds_in_words
from fdg_plugins.record.method_settings import method_settings
from fdg_plugins.settings.protocol import Protocol

Columns = Mapping[str, str]  # the name of the column of each held-out domain


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
    if against is not None:
        _check_against(runs[0], choosing)
    found = [choose(group) for group in comparable_groups(runs, choosing)]
    groups = [group for group, _ in found]
    kept = [run for group in groups for run in group.runs]
    score, selecting, columns, facts = kept[0].record.score, kept[0].record.selecting, _columns(kept), line_facts(kept)
    remarks: dict[str, list[str]] = {}
    rows = tuple(row for group in groups for row in _rows(group, rules, columns, against, remarks))
    rule = RULES[rules[0]] if len(rules) == 1 else "by several rules"
    rule += f" by {selecting.title}" if selecting != score else ""
    return Table(
        caption=f"{score.heading}{score.unit}, {seeds_in_words(rows, (run.seed for run in kept))}: {described(kept)}; "
        f"selection: {rule}; fdg-plugins {facts['version'].replace(';', ', ')}.",
        head=("method", *["selection"] * (len(rules) > 1), *["whose"] * (against is not None)),
        columns={column: {"target": column} for column in (*columns.values(), AVERAGE)},
        rows=rows,
        notes=(
            *(f"{', '.join(of)}: {text}." for text, of in remarks.items()),
            *_notes_on_papers(rows),
            *filter(None, (note for _, note in found)),
            *notes_on_groups(groups, columns),
        ),
        score=score,
        facts=facts,
        below=(
            *compare(rows, groups, facts["data"], ("selection", RULES)),
            *worth(groups, SOURCE_VALIDATION if SOURCE_VALIDATION in rules else rules[0], facts["data"]),
        ),
    )


def _check_against(run: Run, choosing: Sequence[str]) -> None:
    if not isinstance(run.dataset, str) or run.record.stand_in:
        raise SettingsError(f"the runs used {run.record.data}, of which no paper prints a number.")
    if varied := [name for name in choosing if name in Protocol.model_fields]:
        raise SettingsError(field="choose", value=varied[0], expected="a setting of a method beside printed numbers")


def _row(group: Group, kind: str, title: str, rule: str, whose: str, cells: Mapping[str, Cell], **fields: Any) -> Row:
    words = {"method": title, "selection": RULES.get(rule, rule), "whose": whose}
    of = {"kind": kind, "method": group.method, "label": group.label, "selection": rule, **fields}
    return Row(words, cells, of, is_missing=kind not in (PRINTED, DIFFERENCE), is_reference=group.is_reference)


def _rows(
    group: Group, rules: Sequence[str], columns: Columns, against: str | None, remarks: dict[str, list[str]]
) -> Iterator[Row]:
    """Yield our rows of a method, and each paper's with the differences; ``remarks`` receives what is to be said."""
    facts, ours = line_facts(group.runs), {rule: _cells(group.runs, rule, columns) for rule in rules}
    for rule, cells in ours.items():
        rivals = None if rule == ORACLE else (group.is_reference, rule)
        yield _row(group, OURS, group.label, rule, "ours", cells, **facts)._replace(rivals=rivals)
        for kind in dict.fromkeys(kind for run in group.runs for kind in run.record.task.summary_kinds):
            derived, title = _cells(group.runs, rule, columns, kind.name), f"{group.label}, {kind.title}"
            yield _row(group, kind.name, title, rule, "ours", derived, **facts)._replace(factor=kind.factor)
            names = [f"{kind.name}_{number}" for number in range(len(group.runs[0].record.classes))]
            by_class = {name: found for name in names if (found := _cells(group.runs, rule, columns, name))}
            for name, found in by_class.items():
                yield _row(group, name, title, rule, "ours", found, **facts)._replace(words={})
    for printed in _printed(group, against) if against else ():
        if any(printed.cells.keys() & cells.keys() for cells in ours.values()):
            yield from _beside(group, printed, ours, facts, remarks)


def _beside(
    group: Group,
    printed: PrintedRow,
    ours: Mapping[str, Mapping[str, Cell]],
    facts: Mapping[str, Any],
    remarks: dict[str, list[str]],
) -> Iterator[Row]:
    """Yield the row of a paper, and what ours are minus it, unless they cannot be compared."""
    paper, title = f"{printed.paper.title} paper", method_title(group.method)  # without settings of ours
    for text in dict.fromkeys(note for cell in printed.cells.values() for note in cell["notes"]):
        of = [column for column, cell in printed.cells.items() if text in cell["notes"]]
        where = "" if len(of) == len(printed.cells) else f" on {', '.join(of)}"
        remarks.setdefault(text, []).append(f"{title}{where} ({paper})")
    tables = [str(table) for table in printed.tables]
    source = {"paper": printed.paper.key, "tables": ";".join(tables), "backbone": printed.backbone}
    whose = f"{paper}, table{'s' * (len(tables) > 1)} {', '.join(tables)}, {printed.backbone}"
    fields: dict[str, Any] = {**source, "label": title, "selection": None}
    if reasons := ", ".join(departures(group.runs, printed, group.chosen)):
        remarks.setdefault(f"{NOT_COMPARABLE}, {reasons}", []).append(f"{group.label} ({paper})")
        fields |= {VERDICT: NOT_COMPARABLE, "note": reasons}
        whose += f", {NOT_COMPARABLE}"
    yield _row(group, PRINTED, title, "as printed", whose, printed.cells, **fields)
    for rule, cells in ours.items() if not reasons else ():
        minus = {name: difference(cell, printed.cells[name]) for name, cell in cells.items() if name in printed.cells}
        whose = f"ours minus {paper}, within 2 SE"
        yield _row(group, DIFFERENCE, group.label, rule, whose, minus, **facts, **source)


def _printed(group: Group, against: str) -> tuple[PrintedRow, ...]:
    record = group.runs[0].record
    sources = [record.census[site].domain for site in record.sources if site in record.census]
    many = len(sources) > len({*sources})
    return printed_rows(str(group.runs[0].dataset), group.method, against, many=many, settings=method_settings(record))


def _cells(runs: Sequence[Run], rule: str, columns: Columns, derived: str | None = None) -> dict[str, Cell]:
    values: dict[str, dict[int, float]] = {column: {} for column in columns.values()}
    for run in runs:
        if (score := target_score(run.record, rule, derived)) is not None:
            values[columns[run.target]][run.seed] = score
    found = {column: estimate(by_seed) for column, by_seed in (*values.items(), (AVERAGE, average(values)))}
    return {column: cell for column, cell in found.items() if cell}


def _notes_on_papers(rows: Sequence[Row]) -> Iterator[str]:
    if any(row.fields["kind"] == DIFFERENCE for row in rows):
        yield (
            "Below a printed row: ours minus theirs, the standard error (SE) of the difference, sqrt(s1²/n1 + "
            "s2²/n2), and whether the difference lies within two of them; unknown where a deviation is not known "
            f"or there are fewer than {LEAST_RUNS} seeds."
        )
    for key in dict.fromkeys(row.fields["paper"] for row in rows if row.fields["kind"] == PRINTED):
        paper = papers()[key]
        yield f"{paper.title} paper: {paper.reference}; mean of {paper.runs} runs; selection: {paper.selection}."


def _columns(runs: Sequence[Run]) -> Columns:
    replies = (reply for run in runs for reply in run.record.census.values())
    domains = known_domains(runs[0].dataset) or sorted({reply.domain for reply in replies})
    others = sorted({run.target for run in runs}.difference(domains))  # of another version of the data set
    # A domain's column is not that of the average, whatever a folder is called.
    return {domain: f"{domain} (domain)" if domain == AVERAGE else domain for domain in (*domains, *others)}
