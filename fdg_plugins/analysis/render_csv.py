# SPDX-License-Identifier: Apache-2.0
"""A table as CSV for programs: one line per method, source, selection and column; unrounded fractions."""

import csv
import io
from collections.abc import Iterator
from itertools import product
from typing import Any

from fdg_plugins.analysis.departures import departures
from fdg_plugins.analysis.estimates import Estimate, csv_fields, difference
from fdg_plugins.analysis.grid import Grid
from fdg_plugins.analysis.papers import PrintedRow
from fdg_plugins.analysis.table import MethodRows, Table

OURS = "ours"
PRINTED = "printed"
DIFFERENCE = "difference"
NOT_COMPARABLE = "not comparable"

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


def render_grid_csv(grid: Grid) -> str:
    """Return a grid as CSV with its header: the texts of the cells, percentages as in the table."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(grid.header)
    writer.writerows([cell.text for cell in row] for row in grid.rows)
    return text.getvalue()


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
    base = _common(table, method)
    for result, column in product(method.results, table.columns):
        yield {**base, "kind": OURS, "selection": result.rule, "target": column, **_ours(result.cells.get(column))}
        for kind, found in result.derived.items():
            line = {**base, "kind": kind.name, "selection": result.rule, "target": column}
            yield {**line, **_ours(found.get(column))}
    for printed in method.printed:
        for line in (*_theirs(printed), *_differences(table, method, printed)):
            yield {**base, **_source(printed), **line}


def _common(table: Table, method: MethodRows) -> dict[str, Any]:
    """Return the fields that all lines of a method share."""
    facts = table.facts
    return {
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


def _source(row: PrintedRow) -> dict[str, Any]:
    return {"paper": row.paper.key, "tables": ";".join(map(str, row.tables)), "backbone": row.backbone}


def _ours(cell: Estimate | None) -> dict[str, Any]:
    return {"seeds": 0} if cell is None else csv_fields(cell)


def _theirs(row: PrintedRow) -> Iterator[dict[str, Any]]:
    for column, cell in row.cells.items():
        yield {"kind": PRINTED, "target": column, **csv_fields(cell), "note": "; ".join(cell.notes)}


def _differences(table: Table, method: MethodRows, printed: PrintedRow) -> Iterator[dict[str, Any]]:
    """Yield the differences between a result and the printed number of the same column."""
    reasons = departures(table.facts, printed, is_reference=method.is_reference)
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
