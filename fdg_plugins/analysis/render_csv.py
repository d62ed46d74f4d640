# SPDX-License-Identifier: Apache-2.0
"""A table as CSV for programs: one line per method, source, selection and column; unrounded fractions."""

import csv
import io
from collections.abc import Iterator
from itertools import product
from typing import Any

from fdg_plugins.analysis.estimates import Estimate, difference
from fdg_plugins.analysis.papers import PrintedRow
from fdg_plugins.analysis.table import MethodRows, Table

OURS = "ours"
PRINTED = "printed"
DIFFERENCE = "difference"

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
)


def render_csv(table: Table) -> str:
    """Return the table as CSV with a header.

    ``kind`` is ``ours``, ``printed``, ``difference`` (ours minus printed, in ``mean``), or the name of a score that the
    task derives, for our values of it; ``values`` are
    ``seed:accuracy``, separated by semicolons. A missing cell has 0 seeds and no mean; fields that do not apply are
    empty: ``rounds`` for a centralised reference, ``steps`` for a federated method.
    """
    text = io.StringIO()
    writer = csv.DictWriter(text, FIELDS, restval="", lineterminator="\n")
    writer.writeheader()
    for method in table.methods:
        writer.writerows(_lines(table, method))
    return text.getvalue()


def _lines(table: Table, method: MethodRows) -> Iterator[dict[str, Any]]:
    facts = table.facts
    base = {
        "method": method.method,
        "label": method.label,
        "data": facts.data,
        "stand_in": str(facts.stand_in).lower(),
        "initial_weights": facts.initial_weights,
        "model": facts.model,
        "image_size": facts.image_size,
        "rounds": "" if method.is_reference else facts.rounds,
        "steps": facts.steps if method.is_reference else "",
        "version": ";".join(facts.versions),
    }
    for result, column in product(method.results, table.columns):
        yield {**base, "kind": OURS, "selection": result.rule, "target": column, **_ours(result.cells.get(column))}
        for kind, found in result.derived.items():
            line = {**base, "kind": kind.name, "selection": result.rule, "target": column}
            yield {**line, **_ours(found.get(column))}
    for printed in method.printed:
        source = {**base, **_source(printed)}
        for column, cell in printed.cells.items():
            yield {**source, "kind": PRINTED, "target": column, **_theirs(cell)}
        for result, column in product(method.results, table.columns):
            if column in result.cells and column in printed.cells:
                line = {**source, "kind": DIFFERENCE, "selection": result.rule, "target": column}
                yield {**line, **_difference(result.cells[column], printed.cells[column])}


def _source(row: PrintedRow) -> dict[str, Any]:
    return {"paper": row.paper.key, "tables": ";".join(map(str, row.tables)), "backbone": row.backbone}


def _ours(cell: Estimate | None) -> dict[str, Any]:
    if cell is None:
        return {"seeds": 0}
    values = ";".join(f"{seed}:{value}" for seed, value in cell.by_seed.items())
    return {"seeds": cell.count, "mean": cell.mean, "std": _or_empty(cell.std), "values": values}


def _theirs(cell: Estimate) -> dict[str, Any]:
    return {"seeds": cell.count, "mean": cell.mean, "std": _or_empty(cell.std), "note": "; ".join(cell.notes)}


def _difference(ours: Estimate, theirs: Estimate) -> dict[str, Any]:
    found = difference(ours, theirs)
    within = "unknown" if found.within_two is None else "yes" if found.within_two else "no"
    return {
        "mean": found.value,
        "standard_error": _or_empty(found.standard_error),
        "within_two_standard_errors": within,
    }


def _or_empty(value: float | None) -> float | str:
    return "" if value is None else value
