# SPDX-License-Identifier: Apache-2.0
"""The table by held-out domains: a row for each method and selection rule, a column for each domain and their average.

Centralised references, if there are any, follow below the federated methods.
"""

import statistics
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from fdg_plugins.errors import SettingsError
from fdg_plugins.lab.analysis.comparable import Group, check_comparable, check_varies, group_runs, without_repeats
from fdg_plugins.lab.analysis.departures import departures
from fdg_plugins.lab.analysis.estimates import LEAST_RUNS, Estimate, average, difference, estimate
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
from fdg_plugins.lab.analysis.pairing import compare
from fdg_plugins.lab.analysis.papers import AVERAGE, PrintedRow, papers, printed_rows
from fdg_plugins.lab.analysis.runs import Run, default_settings, method_title
from fdg_plugins.lab.analysis.selection import ORACLE, RULES, SOURCE_VALIDATION, choose, note_on, target_score
from fdg_plugins.lab.analysis.table import DIFFERENCE, NOT_COMPARABLE, OURS, PRINTED, Row, Table, seeds_in_words
from fdg_plugins.lab.analysis.worth import worth
from fdg_plugins.plugins.composition import BASE
from fdg_plugins.record.method_settings import differing, method_settings
from fdg_plugins.settings.protocol import Protocol
from fdg_plugins.tasks.counts import FEWEST


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
    kept = [run for group in groups for run in group.runs]
    score, domains = kept[0].record.score, _domains(kept)
    remarks: dict[str, list[str]] = {}
    rows = tuple(row for group in groups for row in _rows(group, rules, domains, against, remarks))
    selecting = kept[0].record.selecting
    rule = RULES[rules[0]] if len(rules) == 1 else "by several rules"
    rule += f" by {selecting.title}" if selecting != score else ""
    return Table(
        caption=f"{score.heading}{score.unit}, {seeds_in_words(rows, (run.seed for run in kept))}: {described(kept)}; "
        f"selection: {rule}; {versions_in_words(kept)}.",
        head=("method", *["selection"] * (len(rules) > 1), *["whose"] * (against is not None)),
        columns={column: {"target": column} for column in (*domains, AVERAGE)},
        rows=rows,
        notes=(
            *(f"{', '.join(of)}: {text}." for text, of in remarks.items()),
            *_notes_on_papers(rows),
            *(note_on(group, chosen, selecting) for group, chosen in found if chosen),
            *_notes_on_images(kept, domains),
            *notes_on_runs(kept),
            *note_on_batch_norm(groups),
        ),
        score=score,
        facts=line_facts(kept),
        rules=("selection", RULES),
        comparison=compare(_scores(rows), base_of(groups), score),
        worth=worth(groups, SOURCE_VALIDATION if SOURCE_VALIDATION in rules else rules[0]),
    )


def _check_against(run: Run, choosing: Sequence[str]) -> None:
    if not isinstance(run.dataset, str) or run.record.stand_in:
        raise SettingsError(f"the runs used {run.record.data}, of which no paper prints a number.")
    if varied := [name for name in choosing if name in Protocol.model_fields]:
        raise SettingsError(field="choose", value=varied[0], expected="a setting of a method beside printed numbers")


def _rows(
    group: Group, rules: Sequence[str], domains: Sequence[str], against: str | None, remarks: dict[str, list[str]]
) -> Iterator[Row]:
    """Yield our rows of a method, and each paper's with the differences; ``remarks`` receives what is to be said."""
    facts, title = line_facts(group.runs), method_title(group.method)  # the title is without settings of ours

    def row(
        kind: str, title: str, rule: str, whose: str, cells: Mapping[str, Any], fields: Mapping[str, Any], **more: Any
    ) -> Row:
        words = [title, *[RULES.get(rule, rule)] * (len(rules) > 1), *[whose] * (against is not None)]
        label = title if kind == PRINTED else group.label
        fields = {"selection": rule, **fields}
        return Row(kind, group.method, label, tuple(words), cells, fields, is_reference=group.is_reference, **more)

    ours = {rule: _cells(group.runs, rule, domains) for rule in rules}
    for rule, cells in ours.items():
        rivals = None if rule == ORACLE else (group.is_reference, rule)
        yield row(OURS, group.label, rule, "ours", cells, facts, rivals=rivals)
        for kind in dict.fromkeys(kind for run in group.runs for kind in run.record.task.summary_kinds):
            named, derived = f"{group.label}, {kind.title}", _cells(group.runs, rule, domains, kind.name)
            yield row(kind.name, named, rule, "ours", derived, facts, factor=kind.factor)
            names = [f"{kind.name}_{number}" for number in range(len(group.runs[0].record.classes))]
            for name, by_class in {one: _cells(group.runs, rule, domains, one) for one in names}.items():
                yield from [row(name, named, rule, "ours", by_class, facts, in_text=False)] if by_class else ()
    for one in _printed(group, against) if against else ():
        if not any(one.cells.keys() & cells.keys() for cells in ours.values()):
            continue
        paper, tables = f"{one.paper.title} paper", [str(table) for table in one.tables]
        for text in dict.fromkeys(note for cell in one.cells.values() for note in cell.notes):
            of = [column for column, cell in one.cells.items() if text in cell.notes]
            where = "" if len(of) == len(one.cells) else f" on {', '.join(of)}"
            remarks.setdefault(text, []).append(f"{title}{where} ({paper})")
        reasons = ", ".join(departures(group.runs, one, group.chosen))
        source: dict[str, Any] = {"paper": one.paper.key, "tables": ";".join(tables), "backbone": one.backbone}
        whose = f"{paper}, table{'s' * (len(tables) > 1)} {', '.join(tables)}, {one.backbone}"
        printed = {**source, "selection": None}
        if reasons:
            remarks.setdefault(f"{NOT_COMPARABLE}, {reasons}", []).append(f"{group.label} ({paper})")
            printed |= {"within_two_standard_errors": NOT_COMPARABLE, "note": reasons}
            whose += f", {NOT_COMPARABLE}"
        yield row(PRINTED, title, "as printed", whose, one.cells, printed)
        for rule, cells in ours.items() if not reasons else ():
            minus = {
                column: difference(cell, one.cells[column]) for column, cell in cells.items() if column in one.cells
            }
            yield row(DIFFERENCE, group.label, rule, f"ours minus {paper}, within 2 SE", minus, {**facts, **source})


def _printed(group: Group, against: str) -> tuple[PrintedRow, ...]:
    record = group.runs[0].record
    sources = [record.census[site].domain for site in record.sources if site in record.census]
    settings = {} if group.is_reference else method_settings(record)
    many = len(sources) > len({*sources})
    return printed_rows(str(group.runs[0].dataset), group.method, against, many=many, settings=settings)


def _cells(runs: Sequence[Run], rule: str, domains: Sequence[str], derived: str | None = None) -> dict[str, Estimate]:
    values: dict[str, dict[int, float]] = {domain: {} for domain in domains}
    for run in runs:
        if (score := target_score(run.record, rule, derived)) is not None:
            values[_column(run.target)][run.seed] = score
    found = {column: estimate(by_seed) for column, by_seed in (*values.items(), (AVERAGE, average(values)))}
    return {column: cell for column, cell in found.items() if cell is not None}


def _notes_on_papers(rows: Sequence[Row]) -> Iterator[str]:
    if any(row.kind == DIFFERENCE for row in rows):
        yield (
            "Below a printed row: ours minus theirs, the standard error (SE) of the difference, sqrt(s1²/n1 + "
            "s2²/n2), and whether the difference lies within two of them; unknown where a deviation is not known "
            f"or there are fewer than {LEAST_RUNS} seeds."
        )
    for key in dict.fromkeys(row.fields["paper"] for row in rows if row.kind == PRINTED):
        paper = papers()[key]
        yield f"{paper.title} paper: {paper.reference}; mean of {paper.runs} runs; selection: {paper.selection}."


def _notes_on_images(runs: Sequence[Run], columns: Sequence[str]) -> Iterator[str]:
    shares = {_column(domain): share for domain, share in commonest_in_domains(runs).items()}
    if found := {column: shares[column] for column in columns if column in shares}:
        parts = [f"{column} {100 * share:.1f}" for column, share in found.items()]
        parts += [f"on average {100 * statistics.fmean(found.values()):.1f}"] * (len(found) > 1)
        words = "Always naming the held-out domain's commonest class is right in this percentage of its images"
        yield f"{words}: {', '.join(parts)}."
    for column, few in rare_classes(runs).items():
        yield f"{column} has fewer than {FEWEST} images of {few}: scores by class, and their mean, are uncertain."
    missing = missing_images(runs)
    if judged := dict.fromkeys(missing[run.target] for run in runs if run.target in missing):
        yield f"Not evaluated on all images of the held-out domain: {', '.join(judged)}."


def _scores(rows: Sequence[Row]) -> Iterator[tuple[str, str, str, int, float]]:
    """Yield the federated methods' scores for their comparison; the oracle is left out, being no result."""
    for row in (row for row in rows if row.rivals is not None and not row.is_reference):
        domains = {column: cell for column, cell in row.cells.items() if column != AVERAGE}
        for column, cell in domains.items():
            for seed, value in cell.by_seed.items() if isinstance(cell, Estimate) else ():
                yield row.label, row.fields["selection"], column, seed, value


def base_of(groups: Sequence[Group]) -> str | None:
    """Return the label of FedAvg; of several, of that with its defaults on the data sets, apart from chosen settings.

    None if there is none, or several have or lack the defaults.
    """

    def has_defaults(group: Group) -> bool:
        pairs = [(method_settings(run.record), default_settings(run.record)) for run in group.runs]
        return all(default is None or not differing([own, default], group.chosen) for own, default in pairs)

    bases = [group for group in groups if group.method == BASE]
    bases = bases if len(bases) == 1 else list(filter(has_defaults, bases))
    return bases[0].label if len(bases) == 1 else None


def _domains(runs: Sequence[Run]) -> tuple[str, ...]:
    named = sorted({reply.domain for run in runs for reply in run.record.census.values()})
    domains = known_domains(runs[0].dataset) or named
    others = sorted({run.target for run in runs}.difference(domains))  # of another version of the data set
    return tuple(map(_column, (*domains, *others)))


def _column(domain: str) -> str:
    """Return the name of a domain's column, which is not that of the average, whatever a folder is called."""
    return f"{domain} (domain)" if domain == AVERAGE else domain
