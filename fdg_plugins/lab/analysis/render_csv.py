# SPDX-License-Identifier: Apache-2.0
"""A table as CSV for programs: one line per method, source, selection and column; unrounded fractions."""

import csv
import io
from collections.abc import Iterator
from itertools import product
from typing import Any

from fdg_plugins.lab.analysis.choosing import Chosen, Values
from fdg_plugins.lab.analysis.commonest import note_on_domains
from fdg_plugins.lab.analysis.departures import departures
from fdg_plugins.lab.analysis.estimates import Estimate, csv_fields, csv_numbers, difference
from fdg_plugins.lab.analysis.names import method_title
from fdg_plugins.lab.analysis.pairing import Comparison, Paired, compare, scores_of
from fdg_plugins.lab.analysis.papers import PrintedRow
from fdg_plugins.lab.analysis.selection import SOURCE_VALIDATION
from fdg_plugins.lab.analysis.table import Facts, MethodRows, Table

OURS = "ours"
PRINTED = "printed"
DIFFERENCE = "difference"
CHOSEN = "chosen"
NOTE = "note"
RANK = "mean_rank"
PAIRED = "paired_difference"
NOT_COMPARABLE = "not comparable"
# What a printed number does not say, or says of other runs than ours.
OF_OUR_RUNS = ("data", "stand_in", "initial_weights", "model", "image_size", "rounds", "steps", "version")
NOT_OURS = dict.fromkeys(OF_OUR_RUNS, "")

FIELDS = (
    "kind",
    "method",
    "label",
    "selection",
    "paper",
    "tables",
    "backbone",
    "target",
    "seeds",
    "mean",
    "std",
    "values",
    "standard_error",
    "within_two_standard_errors",
    "note",
    "data",
    "stand_in",
    "initial_weights",
    "model",
    "image_size",
    "rounds",
    "steps",
    "version",
    "pairs",
)


def render_csv(table: Table, *, paired: bool = True) -> str:
    """Return the table as CSV with a header.

    ``kind`` is ``ours``, ``printed``, ``difference`` (ours minus printed, in ``mean``), or the name of a score that the
    task derives, for our values of it; ``values`` are
    ``seed:accuracy``, separated by semicolons. A missing cell has 0 seeds and no mean; fields that do not apply are
    empty: ``rounds`` for a centralised reference, ``steps`` for a federated method.

    Lines of the kind ``chosen`` have the value of a setting that was chosen for a held-out domain in ``note``, its mean
    score on source validation in ``mean``, and ``value:score`` of all values in ``values``. Each ``note`` on the runs
    has a line of that kind without a method.

    ``paired``: whether lines of the kinds ``mean_rank`` and ``paired_difference`` (to FedAvg) follow, if there are any.
    Their ``pairs`` is the number of cells, and ``values`` are ``held-out domain/seed:difference``.
    """
    text = io.StringIO()
    writer = csv.DictWriter(text, FIELDS, restval="", lineterminator="\n")
    writer.writeheader()
    for method in table.methods:
        writer.writerows(_lines(table, method))
        writer.writerows(_picked(table, method))
    notes = (*note_on_domains(table.facts.commonest, table.columns), *table.notes)
    writer.writerows({**_shared(table.facts), "kind": NOTE, "note": note} for note in notes)
    writer.writerows(_paired(table) if paired else ())
    return text.getvalue()


def _paired(table: Table) -> Iterator[dict[str, Any]]:
    """Yield the mean rank of each method, and its paired difference to FedAvg."""
    common = {method.label: _common(table, method) for method in table.methods}
    for row, line in paired_lines(compare(scores_of(table), table.facts.score)):
        yield {**common[row.method.label], "selection": row.rule, **line}


def paired_lines(found: Comparison | None) -> Iterator[tuple[Paired, dict[str, Any]]]:
    """Yield each method's mean rank and its paired difference to FedAvg: the row, and the fields that hold its numbers.

    ``values`` are ``<place>/<seed>:<difference>``.
    """
    for row in () if found is None else found.rows:
        if found is not None and row.rank is not None:
            yield row, {"kind": RANK, "mean": row.rank, "pairs": found.common[row.rule]}
        if row.difference is not None:
            values = ";".join(f"{place}/{seed}:{value}" for (place, seed), value in row.pairs.items())
            error = row.difference.standard_error
            numbers = {"mean": row.difference.mean, "standard_error": "" if error is None else error}
            yield row, {"kind": PAIRED, **numbers, "pairs": len(row.pairs), "values": values}


def _lines(table: Table, method: MethodRows) -> Iterator[dict[str, Any]]:
    base = _common(table, method)
    for result, column in product(method.results, table.columns):
        numbers = csv_numbers(result.cells.get(column))
        yield {**base, "kind": OURS, "selection": result.rule, "target": column, **numbers}
        for kind, found in result.derived.items():
            line = {**base, "kind": kind.name, "selection": result.rule, "target": column}
            yield {**line, **csv_numbers(found.get(column))}
    for printed in method.printed:
        for line in (*_theirs(printed, method), *_differences(table, method, printed)):
            yield {**base, **_source(printed), **line}


def _picked(table: Table, method: MethodRows) -> Iterator[dict[str, Any]]:
    """Yield what was chosen for a method, a line per held-out domain."""
    for one in method.picked:
        values = ";".join(f"{_named(one, value)}:{score}" for value, score in one.scores.items())
        yield {
            **_common(table, method),
            "kind": CHOSEN,
            "selection": SOURCE_VALIDATION,
            "target": one.target,
            "seeds": len(one.seeds),
            "mean": one.scores[one.value],
            "values": values,
            "note": _named(one, one.value),
        }


def _named(one: Chosen, value: Values) -> str:
    """Return the chosen settings with values: ``kappa=0.5``, ``kappa=0.5,server_lr=1``."""
    return ",".join(f"{setting}={each}" for setting, each in zip(one.settings, value, strict=True))


def _shared(facts: Facts) -> dict[str, Any]:
    """Return the fields that all lines of a table share."""
    return {
        "data": facts.data,
        "stand_in": str(facts.stand_in).lower(),
        "initial_weights": facts.initial_weights,
        "version": ";".join(facts.versions),
    }


def _common(table: Table, method: MethodRows) -> dict[str, Any]:
    """Return the fields that all lines of a method share."""
    facts = table.facts
    return {
        **_shared(facts),
        "method": method.method,
        "label": method.label,
        "model": _value(method, "model", facts.model),
        "image_size": _value(method, "image_size", facts.image_size),
        "rounds": "" if method.is_reference else _value(method, "rounds", facts.rounds),
        "steps": facts.steps if method.is_reference else "",
    }


def _value(method: MethodRows, setting: str, value: Any) -> Any:
    """Return the value of a setting; for one that was chosen, all values of the method, separated by semicolons."""
    return ";".join(map(str, method.chosen[setting])) if setting in method.chosen else value


def _source(row: PrintedRow) -> dict[str, Any]:
    return {"paper": row.paper.key, "tables": ";".join(map(str, row.tables)), "backbone": row.backbone}


def _theirs(row: PrintedRow, method: MethodRows) -> Iterator[dict[str, Any]]:
    label = method_title(method.method)  # without settings of ours
    for column, cell in row.cells.items():
        theirs = {"label": label, "target": column, **csv_fields(cell), "note": "; ".join(cell.notes)}
        yield {"kind": PRINTED, **NOT_OURS, **theirs}


def _differences(table: Table, method: MethodRows, printed: PrintedRow) -> Iterator[dict[str, Any]]:
    """Yield the differences between a result and the printed number of the same column."""
    reasons = departures(table.facts, printed, method)
    for result, column in product(method.results, table.columns):
        if column in result.cells and column in printed.cells:
            found = _difference(result.cells[column], printed.cells[column])
            if reasons:
                found |= {"within_two_standard_errors": NOT_COMPARABLE, "note": ", ".join(reasons)}
            yield {"kind": DIFFERENCE, "selection": result.rule, "target": column, **found}


def _difference(ours: Estimate, theirs: Estimate) -> dict[str, Any]:
    found = difference(ours, theirs)
    within = "unknown" if found.within_two is None else "yes" if found.within_two else "no"
    return {
        "mean": found.value,
        "standard_error": "" if found.standard_error is None else found.standard_error,
        "within_two_standard_errors": within,
    }
