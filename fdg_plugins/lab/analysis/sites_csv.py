# SPDX-License-Identifier: Apache-2.0
"""The tables of label-skewed federations as CSV: one line per method, participation, images and column; fractions."""

import csv
import io
from collections.abc import Iterator, Sequence
from typing import Any

from fdg_plugins.lab.analysis.estimates import csv_numbers
from fdg_plugins.lab.analysis.names import method_title
from fdg_plugins.lab.analysis.pairing import compare
from fdg_plugins.lab.analysis.render_csv import NOT_COMPARABLE, NOTE, OURS, PRINTED, paired_lines
from fdg_plugins.lab.analysis.runs import Run
from fdg_plugins.lab.analysis.selection import LAST
from fdg_plugins.lab.analysis.sites_runs import (
    Column,
    RowKey,
    column_of,
    comparable_runs,
    has_row,
    in_groups,
    over_seeds,
    own_and_published,
    rows_of,
    scores_of_sites,
    version_of,
)
from fdg_plugins.lab.analysis.sites_table import (
    PAPER,
    ROUNDS,
    SITES,
    check_against,
    columns_of,
    not_comparable,
    notes_on_sites,
    printed_cells,
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
    "note",
    "data",
    "stand_in",
    "initial_weights",
    "model",
    "image_size",
    "rounds",
    "sites",
    "max_samples_per_domain",
    "version",
    "pairs",
)


# What a printed number does not say, or says of other runs than ours.
NOT_OURS = dict.fromkeys(("initial_weights", "model", "image_size", "max_samples_per_domain", "version"), "")


def render_sites_csv(runs: Sequence[Run], against: str | None = None, *, paired: bool = True) -> str:
    """Return the table of ``runs`` as CSV with a header; arguments and errors as for :func:`sites_table.sites_grid`.

    ``kind`` is ``ours`` or, in columns that have runs, ``printed``; ``on`` are the images, ``dataset`` and ``skew`` the
    column; ``values`` are ``seed:accuracy``, separated by semicolons. A missing cell has 0 seeds and no mean. The
    ``note`` of a printed number says why ours are not comparable with it. Lines of the kinds ``note``, ``mean_rank``
    and ``paired_difference`` are those of :func:`~fdg_plugins.lab.analysis.render_csv.render_csv`; of the fields on the
    runs they have all values, separated by semicolons.
    """
    check_against(runs, against)
    kept, copies = comparable_runs(runs)
    text = io.StringIO()
    writer = csv.DictWriter(text, FIELDS, restval="", lineterminator="\n")
    writer.writeheader()
    for key, found in in_groups(kept):
        for column in columns_of(kept, beside_the_paper=False):
            members = [run for run in found if column_of(run) == column]
            base = _common(key, column, members or [run for run in kept if column_of(run) == column][:1])
            writer.writerows({**base, **line} for line in _ours(found, column))
            if against is not None:
                writer.writerows({**base, **line} for line in _theirs(key, column, kept))
    writer.writerows({**_of_all(kept), "kind": NOTE, "note": note} for note in notes_on_sites(kept, copies, against))
    writer.writerows(_paired(kept) if paired else ())
    return text.getvalue()


def _paired(runs: Sequence[Run]) -> Iterator[dict[str, Any]]:
    """Yield the mean rank of each method, and its paired difference to FedAvg."""
    members: dict[str, list[Run]] = {}
    for (_, label, _), found in in_groups(runs):
        members.setdefault(label, []).extend(found)
    for row, line in paired_lines(compare(scores_of_sites(runs), runs[0].record.score)):
        names = {"method": row.method.method, "label": row.method.label, "selection": LAST, "on": row.rule}
        yield {**_of_all(members[row.method.label]), **names, **line}


def _ours(runs: Sequence[Run], column: Column) -> Iterator[dict[str, Any]]:
    """Yield the numbers of a method's runs in one column, a line for each row of the table that the column has."""
    measured = [(run, own_and_published(run)) for run in runs]
    for what, kind in rows_of(runs):
        if has_row(column, kind):
            cell = over_seeds([(run, own[what]) for run, own in measured if what in own]).get(column)
            yield {"kind": OURS, "selection": LAST, "on": what, **csv_numbers(cell)}


def _theirs(key: RowKey, column: Column, runs: Sequence[Run]) -> Iterator[dict[str, Any]]:
    participation, _, method = key
    if (cell := printed_cells(method, participation).get(column)) is not None:
        reasons = dict(not_comparable(runs)).get(column)
        note = f"{NOT_COMPARABLE}: {', '.join(reasons)}" if reasons else ""
        of_paper = {
            "label": method_title(method),
            "paper": PAPER,
            **NOT_OURS,
            "rounds": ROUNDS,
            "sites": SITES,
            "note": note,
        }
        yield {"kind": PRINTED, **of_paper, **csv_numbers(cell)}


def _common(key: RowKey, column: Column, runs: Sequence[Run]) -> dict[str, Any]:
    """Return the fields that all lines of a method in one column share; ``runs`` are comparable."""
    participation, label, method = key
    return {
        "method": method,
        "label": label,
        "participation": participation,
        "dataset": column.dataset,
        "skew": column.skew,
        **_of_all(runs),
    }


def _of_all(runs: Sequence[Run]) -> dict[str, str]:
    """Return the facts of runs, each with all its values, separated by semicolons."""
    facts = [_facts(run) for run in runs]
    return {name: ";".join(sorted({str(own[name]) for own in facts} - {""})) for name in facts[0]}


def _facts(run: Run) -> dict[str, Any]:
    record, protocol = run.record, run.record.protocol
    most = protocol.max_samples_per_domain
    return {
        "data": record.data,
        "stand_in": str(record.stand_in).lower(),
        "initial_weights": record.initial_weights.label,
        "model": protocol.model,
        "image_size": protocol.image_size,
        "rounds": protocol.rounds,
        "sites": len(record.sources),
        "max_samples_per_domain": "" if most is None else most,
        "version": version_of(run),
    }
