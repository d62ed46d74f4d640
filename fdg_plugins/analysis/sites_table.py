# SPDX-License-Identifier: Apache-2.0
"""The tables of label-skewed federations, FedOMG's Tables 1 and 5: methods by data set, skew and participation.

The paper's accuracy is the number of correct images over the test sets of all sites, divided by their number (D.3);
here a site's test set is the part of its own images on which it does not train. Beside it stands the accuracy on the
published test part, which no site has; the paper does not print it. A personalised method has a third, of each site's
own model on the site's own test images. All are of the model after the last round: to choose a round by the sites' test
images would be to choose on the test set. Scores that the task derives from sums over
all these images, such as the worst group's accuracy, have rows of their own.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from fdg_plugins.analysis.absences import notes_on_absences
from fdg_plugins.analysis.cells import MISSING, NOT_PRINTED, Cell, Grid
from fdg_plugins.analysis.comparable import check_comparable, without_repeats
from fdg_plugins.analysis.departures import departures_of_sites
from fdg_plugins.analysis.estimates import Estimate, estimate, over_seeds_in_words, span_of
from fdg_plugins.analysis.names import differing, is_centralised, method_order, method_settings, settings_label
from fdg_plugins.analysis.papers import ALL_PAPERS, printed_numbers
from fdg_plugins.analysis.printed_names import method_of
from fdg_plugins.analysis.runs import Run, grouped
from fdg_plugins.analysis.selection import LAST, selected
from fdg_plugins.analysis.whole_data import images_in_words
from fdg_plugins.data import dataset_spec
from fdg_plugins.errors import SettingsError
from fdg_plugins.record.pooling import domain_sums
from fdg_plugins.record.run_record import EvaluationRecord
from fdg_plugins.tasks import TASKS, ScoreKind, SumAndCount

DATASETS = ("mnist", "cifar10", "cifar100", "emnist")  # in the paper's order
ALPHAS = (0.1, 0.5)
SKEWED, TEST = "label_skew", "test"
PAPER, TABLES = "fedomg", (5, 1)  # Table 1 repeats the numbers of Table 5 for all sites, under a caption of 20 %
ROUNDS, SITES, RUNS = 800, 100, 5
OWN, PUBLISHED = "sites' own test images", "published test part"
PERSONAL = f"{OWN}, by their own models"
RowKey = tuple[float, str, str]  # participation, label, method
_SETTING = re.compile(r"alpha=([0-9.]+),clients=100,participation=([0-9.]+)")


@dataclass(frozen=True)
class Column:
    """A data set divided in one way."""

    dataset: str
    skew: str

    @property
    def title(self) -> str:
        """The heading, such as ``CIFAR-10 alpha=0.1``."""
        return f"{dataset_spec(self.dataset).title.split(' (')[0]} {self.skew}"


PAPERS_COLUMNS = tuple(Column(dataset, f"alpha={alpha:g}") for alpha in ALPHAS for dataset in DATASETS)


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


def sites_grid(runs: Sequence[Run], against: str | None = None, digits: int = 2) -> Grid:
    """Return the table of ``runs``: a group of rows for each participation and method.

    ``against``: ``fedomg`` or ``paper`` for the paper's numbers below ours. Raises ``SettingsError`` for another paper,
    for runs in one cell that differ in more than their seed, and for the stand-in beside the paper's numbers.
    """
    check_against(runs, against)
    kept, copies = comparable_runs(runs)
    columns = columns_of(kept, beside_the_paper=against is not None)
    of_methods = in_groups(kept)
    writer = _Writer(columns, digits, counted=_seeds_differ([found for _, found in of_methods]))
    groups = tuple(tuple(writer.rows(key, found, against is not None)) for key, found in of_methods)
    header = ("method", "participation", "on", *(column.title for column in columns))
    notes = [f"{copy.folder} repeats {first.folder} and is counted once." for copy, first in copies]
    caption = _caption(kept, counted=writer.counted)
    notes += notes_on_absences(kept)
    return Grid(caption, header, 3, groups, (*_notes(kept, against), *writer.notes, *notes))


def in_groups(runs: Sequence[Run]) -> list[tuple[RowKey, list[Run]]]:
    """Return the runs of each participation, label and method, in the order of the table."""
    found = grouped(runs, lambda run: (participation_of(run), _label(run, runs), run.method))
    return sorted(found.items(), key=lambda group: (-group[0][0], method_order(group[0][2]), group[0][1]))


def columns_of(runs: Sequence[Run], *, beside_the_paper: bool) -> tuple[Column, ...]:
    """Return the paper's columns, in its order, then others; without its numbers, only those that have runs."""
    own = dict.fromkeys(map(column_of, runs))
    papers = [column for column in PAPERS_COLUMNS if beside_the_paper or column in own]
    return tuple(dict.fromkeys((*papers, *own)))


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


def check_against(runs: Sequence[Run], against: str | None) -> None:
    """Raise ``SettingsError`` for a paper without such a table, and for the stand-in beside a paper's numbers."""
    if against is None:
        return
    if against not in (ALL_PAPERS, PAPER):
        raise SettingsError(f"paper {against!r} prints no table of label-skewed sites, expected {PAPER}.")
    if drawn := [run for run in runs if run.record.stand_in]:
        raise SettingsError(
            f"the runs used {drawn[0].record.data}, and the papers real data: they cannot stand in one table."
        )


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


def column_of(run: Run) -> Column:
    """Return the column in which the numbers of a run stand."""
    protocol = run.record.protocol
    skew = f"alpha={protocol.dirichlet_alpha:g}" if protocol.partition == "dirichlet" else protocol.partition
    return Column(str(run.dataset), skew)


def _label(run: Run, runs: Sequence[Run]) -> str:
    siblings = [method_settings(other.record) for other in runs if other.method == run.method]
    return settings_label(run.method, method_settings(run.record), differing(siblings))


def _seeds_differ(of_methods: Iterable[Sequence[Run]]) -> bool:
    """Return whether the cells of the table have other seeds than one another: a run may lack a score."""
    seeds: dict[tuple[int, Column, str], set[int]] = {}
    for row, found in enumerate(of_methods):
        for run in found:
            for what in own_and_published(run):
                seeds.setdefault((row, column_of(run), what), set()).add(run.seed)
    return len(set(map(frozenset, seeds.values()))) > 1


class _Writer:
    """Writes the rows; notes the runs without an accuracy. ``counted``: whether cells name their number of seeds."""

    def __init__(self, columns: Sequence[Column], digits: int, *, counted: bool) -> None:
        self.columns, self.digits, self.counted = columns, digits, counted
        self.notes: list[str] = []

    def rows(self, key: RowKey, runs: Sequence[Run], against: bool) -> Iterator[tuple[Cell, ...]]:
        """Yield our rows of a method under one participation, and the paper's."""
        participation, label, method = key
        measured = [(run, own_and_published(run)) for run in runs]
        for what in (OWN, PUBLISHED):
            self.notes += [
                f"{run.folder} has no accuracy on the {what}, and is missing there."
                for run, own in measured
                if what not in own
            ]
        self.notes += [note for run in runs for note in _left_out(run)]
        for what, kind in rows_of(runs):
            cells = self._ours([(run, own[what]) for run, own in measured if what in own], kind)
            yield tuple(map(Cell, (label, f"{participation:g}", what, *cells)))
        if against and (printed := printed_cells(method, participation)):
            cells = [self._text(printed[column]) if column in printed else NOT_PRINTED for column in self.columns]
            yield tuple(map(Cell, (label, f"{participation:g}", "FedOMG paper, as printed", *cells)))

    def _ours(self, measured: Sequence[tuple[Run, float]], kind: ScoreKind | None) -> list[str]:
        """Return the cells of a row; ``kind``: of a score that the task derives, which other tasks do not have."""
        found = over_seeds(measured)
        blank = {column: MISSING if has_row(column, kind) else NOT_PRINTED for column in self.columns}
        return [
            blank[column] if (one := found.get(column)) is None else self._text(one, counted=self.counted)
            for column in self.columns
        ]

    def _text(self, one: Estimate, *, counted: bool = False) -> str:
        deviation = "" if one.std is None else f" ± {100 * one.std:.{self.digits}f}"
        return f"{100 * one.mean:.{self.digits}f}{deviation}{f' ({one.count})' if counted else ''}"


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


def _left_out(run: Run) -> Iterator[str]:
    """Yield a note for images without which a derived score was made, because there are none of their kind."""
    for place, sums in _pooled(run).items():
        if parts := run.record.task.left_out(sums, run.record.classes):
            yield f"{run.folder} has no image of {', nor of '.join(parts)} among the {place}: it is not counted there."


def printed_cells(method: str, participation: float) -> dict[Column, Estimate]:
    """Return the paper's numbers for a method of this package: those of Table 5, for all sites also of Table 1."""
    found: dict[Column, Estimate] = {}
    for table in TABLES:
        for number in printed_numbers():
            if (number.paper, number.table) != (PAPER, table) or method_of(number.method) != method:
                continue
            setting = _SETTING.fullmatch(number.setting)
            assert setting is not None
            share = 1.0 if table == 1 else float(setting[2])
            if share == participation:
                column = Column(number.dataset, f"alpha={float(setting[1]):g}")
                found.setdefault(column, Estimate(number.mean, number.std, RUNS))
    return found


def _caption(runs: Sequence[Run], *, counted: bool) -> str:
    seeds = sorted({run.seed for run in runs})
    over = over_seeds_in_words(seeds, {len(seeds)}, counted=counted)
    data = dict.fromkeys(run.record.data for run in runs)
    facts = filter(None, (_by_column(runs, fact) for fact in (_network, _images, _version)))
    return f"Accuracy of the last model, percent, {over}: {', '.join(data)}; {', '.join(facts)}."


def _by_column(runs: Sequence[Run], fact: Callable[[Run], str]) -> str:
    """Return a fact about runs in words, with its columns if it is not the same in all; empty if there is none."""
    found = grouped(runs, fact)
    if len(found) == 1:
        return next(iter(found))
    return ", ".join(
        f"{words} in {' and '.join(dict.fromkeys(column_of(run).title for run in members))}"
        for words, members in found.items()
        if words
    )


def _network(run: Run) -> str:
    record = run.record
    trained = f", {record.protocol.trained}" if record.protocol.trained else ""
    return f"{record.protocol.model} ({record.initial_weights.label}{trained})"


def _images(run: Run) -> str:
    return " and ".join(images_in_words(run))


def _version(run: Run) -> str:
    return f"fdg-plugins {version_of(run)}"


def version_of(run: Run) -> str:
    """Return the version of this package by which a run was made."""
    return run.record.versions.get("fdg-plugins", "unknown")


def _notes(runs: Sequence[Run], against: str | None) -> list[str]:
    """Return what a reader must know to compare our numbers with the paper's."""
    rounds = span_of(run.record.protocol.rounds for run in runs)
    sites = span_of(len(run.record.sources) for run in runs)
    notes = [
        f"Ours: rounds {rounds}, sites {sites}. A site trains on three quarters of its images and is judged on the "
        f"rest ({OWN}: correct over all sites, divided by their number); no site has the {PUBLISHED}.",
    ]
    if against is not None:
        notes.append(
            f"The paper: Tables 1 and 5, rounds {ROUNDS}, sites {SITES}, mean of {RUNS} runs; how a site's images are "
            "split, and on which of them accuracy is measured, is not stated. The caption of Table 1 says 20 % of the "
            "sites per round; its numbers are those of Table 5 for all."
        )
        notes += _not_comparable(runs)
    return notes


def _not_comparable(runs: Sequence[Run]) -> list[str]:
    """Return a note for each of the paper's columns whose runs are not under its protocol, or not on all its images."""
    in_columns = grouped((run for run in runs if column_of(run) in PAPERS_COLUMNS), column_of)
    reasons = {
        column: dict.fromkeys(words for run in members for words in departures_of_sites(run))
        for column, members in in_columns.items()
    }
    return [
        f"{column.title} is not comparable with the paper: {', '.join(of)}." for column, of in reasons.items() if of
    ]
