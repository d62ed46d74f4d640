# SPDX-License-Identifier: Apache-2.0
"""The tables of label-skewed federations as CSV: one line per method, participation, images and column; fractions."""

import csv
import io
from collections.abc import Iterator, Sequence
from typing import Any

from fdg_plugins.analysis.estimates import csv_numbers
from fdg_plugins.analysis.render_csv import OURS, PRINTED
from fdg_plugins.analysis.runs import Run
from fdg_plugins.analysis.selection import LAST
from fdg_plugins.analysis.sites_table import (
    PAPER,
    ROUNDS,
    SITES,
    Column,
    RowKey,
    check_against,
    column_of,
    columns_of,
    comparable_runs,
    has_row,
    in_groups,
    over_seeds,
    own_and_published,
    printed_cells,
    rows_of,
    version_of,
)

FIELDS = (
    "kind",
    "method",
    "label",
    "selection",
    "paper",
    "participation",
    "on",
    "dataset",
    "skew",
    "seeds",
    "mean",
    "std",
    "values",
    "standard_error",
    "data",
    "stand_in",
    "initial_weights",
    "model",
    "image_size",
    "rounds",
    "sites",
    "max_samples_per_domain",
    "version",
)


# What a printed number does not say, or says of other runs than ours.
NOT_OURS = dict.fromkeys(("initial_weights", "model", "image_size", "max_samples_per_domain", "version"), "")


def render_sites_csv(runs: Sequence[Run], against: str | None = None) -> str:
    """Return the table of ``runs`` as CSV with a header; ``against`` and errors as for :func:`sites_table.sites_grid`.

    ``kind`` is ``ours`` or, in columns that have runs, ``printed``; ``on`` are the images, ``dataset`` and ``skew`` the
    column; ``values`` are ``seed:accuracy``, separated by semicolons. A missing cell has 0 seeds and no mean.
    """
    check_against(runs, against)
    kept, _ = comparable_runs(runs)
    text = io.StringIO()
    writer = csv.DictWriter(text, FIELDS, restval="", lineterminator="\n")
    writer.writeheader()
    for key, found in in_groups(kept):
        for column in columns_of(kept, beside_the_paper=False):
            members = [run for run in found if column_of(run) == column]
            base = _common(key, column, members or [run for run in kept if column_of(run) == column][:1])
            writer.writerows({**base, **line} for line in _ours(found, column))
            if against is not None:
                writer.writerows({**base, **line} for line in _theirs(key, column))
    return text.getvalue()


def _ours(runs: Sequence[Run], column: Column) -> Iterator[dict[str, Any]]:
    """Yield the numbers of a method's runs in one column, a line for each row of the table that the column has."""
    measured = [(run, own_and_published(run)) for run in runs]
    for what, kind in rows_of(runs):
        if has_row(column, kind):
            cell = over_seeds([(run, own[what]) for run, own in measured if what in own]).get(column)
            yield {"kind": OURS, "selection": LAST, "on": what, **csv_numbers(cell)}


def _theirs(key: RowKey, column: Column) -> Iterator[dict[str, Any]]:
    participation, _, method = key
    if (cell := printed_cells(method, participation).get(column)) is not None:
        yield {"kind": PRINTED, "paper": PAPER, **NOT_OURS, "rounds": ROUNDS, "sites": SITES, **csv_numbers(cell)}


def _common(key: RowKey, column: Column, runs: Sequence[Run]) -> dict[str, Any]:
    """Return the fields that all lines of a method in one column share; ``runs`` are comparable."""
    participation, label, method = key
    record, protocol = runs[0].record, runs[0].record.protocol
    most = protocol.max_samples_per_domain
    return {
        "method": method,
        "label": label,
        "participation": participation,
        "dataset": column.dataset,
        "skew": column.skew,
        "data": record.data,
        "stand_in": str(record.stand_in).lower(),
        "initial_weights": record.initial_weights.label,
        "model": protocol.model,
        "image_size": protocol.image_size,
        "rounds": protocol.rounds,
        "sites": len(record.sources),
        "max_samples_per_domain": "" if most is None else most,
        "version": ";".join(sorted({version_of(run) for run in runs})),
    }
