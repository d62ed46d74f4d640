# SPDX-License-Identifier: Apache-2.0
"""Runs of label-skewed federations: the column and row of each in a table, and the accuracies of its last model.

The paper's accuracy is the number of correct images over the test sets of all sites, divided by their number (D.3);
here a site's test set is the part of its own images on which it does not train. Beside it stands the accuracy on the
published test part, which no site has; the paper does not print it. A personalised method has a third, of each site's
own model on the site's own test images. All are of the model after the last round: to choose a round by the sites' test
images would be to choose on the test set. Scores that the task derives from sums over all these images, such as the
worst group's accuracy, have rows of their own.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from fdg_plugins.data import dataset_spec
from fdg_plugins.errors import SettingsError
from fdg_plugins.lab.analysis.comparable import check_comparable, without_repeats
from fdg_plugins.lab.analysis.estimates import Estimate, estimate
from fdg_plugins.lab.analysis.names import (
    default_settings,
    is_centralised,
    is_default_fedavg,
    method_order,
    settings_label,
)
from fdg_plugins.lab.analysis.pairing import Cells, Scores
from fdg_plugins.lab.analysis.runs import Run, grouped
from fdg_plugins.lab.analysis.selection import LAST, selected
from fdg_plugins.record.method_settings import differing, method_settings
from fdg_plugins.record.pooling import domain_sums
from fdg_plugins.record.run_record import EvaluationRecord
from fdg_plugins.tasks import TASKS, ScoreKind, SumAndCount
from fdg_plugins.values import counted

SKEWED, TEST = "label_skew", "test"
OWN, PUBLISHED = "sites' own test images", "published test part"
PERSONAL = f"{OWN}, by their own models"
RowKey = tuple[float, str, str]  # participation, label, method


@dataclass(frozen=True)
class Column:
    """A data set divided in one way."""

    dataset: str
    skew: str

    @property
    def title(self) -> str:
        """The heading, such as ``CIFAR-10 alpha=0.1``."""
        return f"{dataset_spec(self.dataset).title.split(' (')[0]} {self.skew}"


def is_of_sites(runs: Sequence[Run]) -> bool:
    """Return whether all runs are of federations whose sites share the training part of a data set by its classes.

    Their held-out domain is its published test part. Runs that hold out a domain have another table, by domains.
    """
    return all(
        run.record.protocol.partition != "equal" and _holds_out_test_part(run) and not is_centralised(run.method)
        for run in runs
    )


def _holds_out_test_part(run: Run) -> bool:
    try:
        spec = dataset_spec(run.dataset)
    except SettingsError:
        return False
    return isinstance(run.dataset, str) and SKEWED in spec.families and run.target == TEST


def comparable_runs(runs: Sequence[Run]) -> tuple[list[Run], list[tuple[Run, Run]]]:
    """Return the runs, each once, and the copies; raise ``SettingsError`` if those of a column are not comparable."""
    kept: list[Run] = []
    copies: list[tuple[Run, Run]] = []
    for of_column in grouped(runs, column_of).values():
        check_comparable(of_column, apart_from=("sites_per_round",))
        for alike in grouped(of_column, participation_of).values():
            own, repeated = without_repeats(alike)
            kept += own
            copies += repeated
    return kept, copies


def in_groups(runs: Sequence[Run]) -> list[tuple[RowKey, list[Run]]]:
    """Return the runs of each participation, label and method, in the order of the table."""
    shown = _shown(runs)
    labels: dict[tuple[Any, ...], str] = {}  # the first of equal settings names them, whether 1 or 1.0

    def key_of(run: Run) -> RowKey:
        own, names = method_settings(run.record), sorted(shown[run.method])
        values = (run.method, *(own.get(name) for name in names))
        label = labels.setdefault(values, settings_label(run.method, own, names))
        return participation_of(run), label, run.method

    return sorted(grouped(runs, key_of).items(), key=lambda group: (-group[0][0], *_order(group[0])))


def _order(key: RowKey) -> tuple[Any, ...]:
    """Return the sort key of a method's rows, whatever their participation."""
    _, label, method = key
    return method_order(method), label


def _shown(runs: Sequence[Run]) -> dict[str, set[str]]:
    """Return the settings that the rows of a method name: those that differ on one data set or from its defaults there.

    Defaults are not the same on all data sets: a method that has them everywhere has one row.
    """
    shown: dict[str, set[str]] = {}
    for (method, _), members in grouped(runs, lambda run: (run.method, str(run.dataset))).items():
        default = default_settings(members[0].record)
        settings = [method_settings(run.record) for run in members]
        shown.setdefault(method, set()).update(differing([*settings, *([] if default is None else [default])]))
    return shown


def scores_of_sites(runs: Sequence[Run]) -> list[Scores]:
    """Return the accuracies of the methods' global models, for their comparison.

    A cell is a data set, skew and participation, ``cifar10/alpha=0.1/0.4``, with a seed. Sites' own models are left
    out: FedAvg has none.
    """
    rows: dict[tuple[str, str], list[Run]] = {}
    for (_, label, method), members in sorted(in_groups(runs), key=lambda group: _order(group[0])):
        rows.setdefault((label, method), []).extend(members)
    return [
        Scores(method, label, all(is_default_fedavg(run.record) for run in members), _cells(members))
        for (label, method), members in rows.items()
    ]


def _cells(runs: Sequence[Run]) -> dict[str, Cells]:
    measured = [(run, own_and_published(run)) for run in runs]
    return {
        what: {(_place(run), run.seed): own[what] for run, own in measured if what in own} for what in (OWN, PUBLISHED)
    }


def dataset_of(place: str) -> str:
    """Return the data set of a cell's place: all its skews are of the same images."""
    return place.partition("/")[0]


def _place(run: Run) -> str:
    column = column_of(run)
    return f"{column.dataset}/{column.skew}/{participation_of(run):g}"


def column_of(run: Run) -> Column:
    """Return the column in which the numbers of a run stand."""
    protocol = run.record.protocol
    skew = f"alpha={protocol.dirichlet_alpha:g}" if protocol.partition == "dirichlet" else protocol.partition
    return Column(str(run.dataset), skew)


def participation_of(run: Run) -> float:
    """Return the share of the sources that are drawn for a round, in (0, 1]."""
    drawn = run.record.protocol.sites_per_round
    return 1.0 if drawn is None else round(drawn / len(run.record.sources), 3)


def own_and_published(run: Run) -> dict[str, float]:
    """Return the accuracies of the last model: on all sites' own test images, and on the published test part.

    With those of the sites' own models, and those that the task derives from the same images, under :func:`derived_on`.
    One that was not measured, at every source unless it is the published part's, is absent.
    """
    task, values = run.record.task, dict[str, float]()
    for place, sums in _pooled(run).items():
        total, count = sums[run.record.score.name]
        values[place] = total / count
        derived = task.derived(sums)
        values |= {derived_on(kind, place): derived[kind.name] for kind in task.derived_kinds if kind.name in derived}
    return values


def derived_on(kind: ScoreKind, place: str) -> str:
    """Return the words for a derived score on some images, such as ``worst-group accuracy, published test part``."""
    return f"{kind.title.lower()}, {place}"


def _pooled(run: Run) -> dict[str, dict[str, SumAndCount]]:
    """Return the last model's scores as sums: over all sites' own test images, if all answered, and the published.

    With those of the sites' own models, if all sources have one.
    """
    found: EvaluationRecord | None = selected(run.record, LAST)
    pooled: dict[str, dict[str, SumAndCount]] = {}
    if found is None:
        return pooled
    own_models = {} if found.personal is None else found.personal.sites
    for place, scores in ((OWN, found.sites), (PERSONAL, own_models)):
        if all(site in scores for site in run.record.sources):
            own = {site: scores[site] for site in run.record.sources}
            pooled[place] = domain_sums(own, dict.fromkeys(own, place))[place]
    if (published := run.record.sums_by_domain(found.sites).get(run.record.protocol.target)) is not None:
        pooled[PUBLISHED] = published
    return pooled


def notes_on_gaps(runs: Iterable[Run]) -> Iterator[str]:
    """Yield a note for each accuracy that a run lacks, and for images without which a derived score was made."""
    for run in runs:
        found, pooled = selected(run.record, LAST), _pooled(run)
        for what in (OWN, PUBLISHED):
            if what not in pooled:
                yield f"{run.folder} has no accuracy on the {what}, and is missing there."
        if found is not None and found.personal is not None and PERSONAL not in pooled:
            without = counted(sum(site not in found.personal.sites for site in run.record.sources), "site")
            yield f"{run.folder} has no accuracy on the {PERSONAL}, and is missing there: {without} had none."
        for place, sums in pooled.items():
            if parts := run.record.task.left_out(sums, run.record.classes):
                missing = ", nor of ".join(parts)
                yield f"{run.folder} has no image of {missing} among the {place}: it is not counted there."


def over_seeds(measured: Iterable[tuple[Run, float]]) -> dict[Column, Estimate]:
    """Return the mean over seeds in each column that has one, from runs with the value of each."""
    by_column: dict[Column, dict[int, float]] = {}
    for run, value in measured:
        by_column.setdefault(column_of(run), {})[run.seed] = value
    found = {column: estimate(by_seed) for column, by_seed in by_column.items()}
    return {column: one for column, one in found.items() if one is not None}


def rows_of(runs: Sequence[Run]) -> list[tuple[str, ScoreKind | None]]:
    """Return what our rows of ``runs`` are of: the accuracies, and on the same images each score that a task derives.

    ``None`` instead of a kind of score stands for the accuracy itself.
    """
    kinds = dict.fromkeys(kind for run in runs for kind in run.record.task.derived_kinds)
    has_own_models = any(PERSONAL in _pooled(run) for run in runs)
    places = (OWN, PUBLISHED, *([PERSONAL] if has_own_models else []))
    plain: list[tuple[str, ScoreKind | None]] = [(place, None) for place in places]
    return plain + [(derived_on(kind, place), kind) for kind in kinds for place in places]


def has_row(column: Column, kind: ScoreKind | None) -> bool:
    """Return whether runs in a column have the score of a row: the accuracy (None), or one that their task derives."""
    return kind is None or kind in TASKS.get(dataset_spec(column.dataset).task).derived_kinds


def version_of(run: Run) -> str:
    """Return the version of this package by which a run was made."""
    return run.record.versions.get("fdg-plugins", "unknown")
