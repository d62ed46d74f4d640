# SPDX-License-Identifier: Apache-2.0
"""The tables of label-skewed federations, FedOMG's Tables 1 and 5: methods by data set, skew and participation."""

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from functools import partial

from fdg_plugins.errors import SettingsError
from fdg_plugins.lab.analysis.absences import notes_on_absences
from fdg_plugins.lab.analysis.cells import MISSING, NOT_PRINTED, Cell, Grid
from fdg_plugins.lab.analysis.commonest import note_on_sites
from fdg_plugins.lab.analysis.departures import departures_of_sites
from fdg_plugins.lab.analysis.estimates import Estimate, over_seeds_in_words
from fdg_plugins.lab.analysis.names import method_title
from fdg_plugins.lab.analysis.paired_grid import Words, paired_grid, why_none
from fdg_plugins.lab.analysis.pairing import compare
from fdg_plugins.lab.analysis.papers import ALL_PAPERS, printed_numbers
from fdg_plugins.lab.analysis.printed_names import method_of
from fdg_plugins.lab.analysis.runs import Run, grouped
from fdg_plugins.lab.analysis.sites_runs import (
    OWN,
    PUBLISHED,
    Column,
    RowKey,
    column_of,
    comparable_runs,
    dataset_of,
    has_row,
    in_groups,
    notes_on_gaps,
    over_seeds,
    own_and_published,
    rows_of,
    scores_of_sites,
    version_of,
)
from fdg_plugins.lab.analysis.varied import value_of
from fdg_plugins.lab.analysis.whole_data import images_in_words
from fdg_plugins.record.method_settings import differing, method_settings
from fdg_plugins.tasks import ScoreKind

DATASETS = ("mnist", "cifar10", "cifar100", "emnist")  # in the paper's order
ALPHAS = (0.1, 0.5)
PAPERS_COLUMNS = tuple(Column(dataset, f"alpha={alpha:g}") for alpha in ALPHAS for dataset in DATASETS)
PAPER, TABLES = "fedomg", (5, 1)  # Table 1 repeats the numbers of Table 5 for all sites, under a caption of 20 %
ROUNDS, SITES, RUNS = 800, 100, 5
Groups = Sequence[tuple[RowKey, Sequence[Run]]]
_SETTING = re.compile(r"alpha=([0-9.]+),clients=100,participation=([0-9.]+)")


def sites_grid(runs: Sequence[Run], against: str | None = None, digits: int = 2, *, paired: bool = True) -> Grid:
    """Return the table of ``runs``: a group of rows for each participation and method.

    ``against``: ``fedomg`` or ``paper`` for the paper's numbers below ours. ``paired``: whether the comparison with
    FedAvg follows below, if there is one. Raises ``SettingsError`` for another paper, for runs in one cell that differ
    in more than their seed, and for the stand-in beside the paper's numbers.
    """
    check_against(runs, against)
    kept, copies = comparable_runs(runs)
    columns = columns_of(kept, beside_the_paper=against is not None)
    of_methods = in_groups(kept)
    seeds = _seeds_of_cells([found for _, found in of_methods])
    writer = _Writer(of_methods, columns, digits, counted=len(seeds) > 1)
    groups = tuple(tuple(writer.rows(key, found, against is not None)) for key, found in of_methods)
    header = ("method", "participation", "on", *(column.title for column in columns))
    scores = scores_of_sites(kept) if paired else []
    score = kept[0].record.score
    below = paired_grid(compare(scores, score, dataset_of), score, _pairs_in_words(kept), digits)
    notes = (*notes_on_sites(kept, copies, against), *why_none(scores))
    return Grid(_caption(kept, seeds), header, 3, groups, notes, below=below)


def _pairs_in_words(runs: Sequence[Run]) -> Words:
    drawn = dict.fromkeys(run.record.data for run in runs if run.record.stand_in)
    return Words("seed, data set, skew and participation", "data set", "on", str, ", ".join(drawn))


def columns_of(runs: Sequence[Run], *, beside_the_paper: bool) -> tuple[Column, ...]:
    """Return the paper's columns, in its order, then others; without its numbers, only those that have runs."""
    own = dict.fromkeys(map(column_of, runs))
    papers = [column for column in PAPERS_COLUMNS if beside_the_paper or column in own]
    return tuple(dict.fromkeys((*papers, *own)))


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


def _seeds_of_cells(of_methods: Iterable[Sequence[Run]]) -> set[frozenset[int]]:
    """Return the sets of seeds that cells of the table have, more than one if they differ: a run may lack a score."""
    seeds: dict[tuple[int, Column, str], set[int]] = {}
    for row, found in enumerate(of_methods):
        for run in found:
            for what in own_and_published(run):
                seeds.setdefault((row, column_of(run), what), set()).add(run.seed)
    return set(map(frozenset, seeds.values()))


class _Writer:
    """Writes the rows. ``counted``: whether cells name their number of seeds.

    The best mean, as printed, of a column is bold, among ours on the same images and under the same participation.
    """

    def __init__(self, of_methods: Groups, columns: Sequence[Column], digits: int, *, counted: bool) -> None:
        self.columns, self.digits, self.counted = columns, digits, counted
        means: dict[tuple[float, str, Column], list[str]] = {}
        for (participation, _, _), runs in of_methods:
            for what in (what for what, kind in rows_of(runs) if kind is None):
                for column, one in _over_seeds_on(runs, what).items():
                    means.setdefault((participation, what, column), []).append(self._mean(one))
        self.best = {at: max(found, key=float) for at, found in means.items() if len(found) > 1}

    def rows(self, key: RowKey, runs: Sequence[Run], against: bool) -> Iterator[tuple[Cell, ...]]:
        """Yield our rows of a method under one participation, and the paper's."""
        participation, label, method = key
        for what, kind in rows_of(runs):
            words = map(Cell, (label, f"{participation:g}", what))
            found = _over_seeds_on(runs, what)
            yield (
                *words,
                *(self._ours(found.get(column), kind, (participation, what, column)) for column in self.columns),
            )
        if against and (printed := printed_cells(method, participation)):
            cells = [self._text(printed[column]) if column in printed else NOT_PRINTED for column in self.columns]
            title = method_title(method)  # without settings of ours
            yield tuple(map(Cell, (title, f"{participation:g}", "FedOMG paper, as printed", *cells)))

    def _ours(self, one: Estimate | None, kind: ScoreKind | None, at: tuple[float, str, Column]) -> Cell:
        """Return a cell; ``kind``: of a score that the task derives, which other tasks do not have."""
        if one is None:
            return Cell(MISSING if has_row(at[-1], kind) else NOT_PRINTED)
        return Cell(self._text(one, counted=self.counted), self._mean(one) == self.best.get(at))

    def _mean(self, one: Estimate) -> str:
        return f"{100 * one.mean:.{self.digits}f}"

    def _text(self, one: Estimate, *, counted: bool = False) -> str:
        deviation = "" if one.std is None else f" ± {100 * one.std:.{self.digits}f}"
        return f"{self._mean(one)}{deviation}{f' ({one.count})' if counted else ''}"


def _over_seeds_on(runs: Sequence[Run], what: str) -> dict[Column, Estimate]:
    """Return the mean over seeds in each column of what :func:`own_and_published` calls ``what``."""
    measured = [(run, own_and_published(run)) for run in runs]
    return over_seeds([(run, own[what]) for run, own in measured if what in own])


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


def _caption(runs: Sequence[Run], cells: Collection[frozenset[int]]) -> str:
    """Return the caption; ``cells``: the sets of seeds that cells have."""
    seeds = sorted(frozenset().union(*cells)) or sorted({run.seed for run in runs})
    over = over_seeds_in_words(seeds, {len(seeds)}, counted=len(cells) > 1)
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


def notes_on_sites(runs: Sequence[Run], copies: Sequence[tuple[Run, Run]], against: str | None) -> list[str]:
    """Return the notes below a table: what a reader must know to compare the numbers, and what was not counted."""
    trained = (_by_column(runs, fact) for fact in (_rounds, _sites))
    notes = [
        f"Ours: {', '.join(trained)}. A site trains on three quarters of its images and is judged on the "
        f"rest ({OWN}: correct over all sites, divided by their number); no site has the {PUBLISHED}.",
        *_notes_on_defaults(runs),
    ]
    if against is not None:
        notes.append(
            f"The paper: Tables 1 and 5, rounds {ROUNDS}, sites {SITES}, mean of {RUNS} runs; how a site's images are "
            "split, and on which of them accuracy is measured, is not stated. The caption of Table 1 says 20 % of the "
            "sites per round; its numbers are those of Table 5 for all."
        )
        notes += [
            f"{column.title} is not comparable with the paper: {', '.join(of)}." for column, of in not_comparable(runs)
        ]
    notes += [*note_on_sites(((column_of(run).title, run) for run in runs), OWN), *notes_on_gaps(runs)]
    notes += [f"{copy.folder} repeats {first.folder} and is counted once." for copy, first in copies]
    return notes + notes_on_absences(runs)


def _rounds(run: Run) -> str:
    return f"rounds {run.record.protocol.rounds}"


def _sites(run: Run) -> str:
    return f"sites {len(run.record.sources)}"


def _notes_on_defaults(runs: Sequence[Run]) -> list[str]:
    """Return a note for each setting that a row does not name and that is not the same in its columns.

    It has the default of the data set in each of them.
    """
    found: dict[str, list[str]] = {}
    for (_, label, _), members in in_groups(runs):
        for name in sorted(differing([method_settings(run.record) for run in members])):
            words = _by_column(members, partial(_value, setting=name))
            found.setdefault(f"{name} {words}", []).append(label)
    return [f"{', '.join(dict.fromkeys(labels))}: {words}." for words, labels in found.items()]


def _value(run: Run, setting: str) -> str:
    return str(value_of(run, setting))


def not_comparable(runs: Sequence[Run]) -> list[tuple[Column, list[str]]]:
    """Return the paper's columns whose runs are not under its protocol, or not on all its images, and why not."""
    in_columns = grouped((run for run in runs if column_of(run) in PAPERS_COLUMNS), column_of)
    reasons = [
        (column, list(dict.fromkeys(words for run in members for words in departures_of_sites(run))))
        for column, members in in_columns.items()
    ]
    return [(column, of) for column, of in reasons if of]
