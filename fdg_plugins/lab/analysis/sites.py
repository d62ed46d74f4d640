# SPDX-License-Identifier: Apache-2.0
"""The table of label-skewed sites: FedOMG's Tables 1 and 5, methods by participation, data set and skew.

The paper's accuracy is the number of correct images over the test sets of all sites, divided by their number (D.3);
here a site's test set is the part of its own images on which it does not train. Beside it stands the accuracy on the
published test part, which no site has; the paper does not print it. A personalised method has a third, of each site's
own model on the site's own test images. All are of the model after the last round: to choose a round by the sites' test
images would be to choose on the test set. Scores that the task derives from sums over all these images, such as the
worst group's accuracy, have separate rows.
"""

import statistics
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import product
from typing import Any, NamedTuple

from fdg_plugins.data import dataset_spec
from fdg_plugins.errors import SettingsError
from fdg_plugins.lab.analysis.comparable import Group, check_comparable, group_runs, without_repeats
from fdg_plugins.lab.analysis.comparisons import compare, worth
from fdg_plugins.lab.analysis.estimates import Cell, cell_of, estimate
from fdg_plugins.lab.analysis.facts import commonest_at_sites, described, line_facts, missing_images, notes_on_runs
from fdg_plugins.lab.analysis.papers import ALL_PAPERS, departures_of_sites, printed_numbers
from fdg_plugins.lab.analysis.runs import Run, grouped, method_title
from fdg_plugins.lab.analysis.selection import LAST, selected
from fdg_plugins.lab.analysis.table import NOT_COMPARABLE, OURS, PRINTED, Row, Table, seeds_in_words
from fdg_plugins.messages import Evaluation
from fdg_plugins.tasks import ScoreKind

SKEWED, TEST = "label_skew", "test"
OWN, PUBLISHED = "sites' own test images", "published test part"
PERSONAL = f"{OWN}, by their own models"
ALPHAS, DATASETS = (0.1, 0.5), ("mnist", "cifar10", "cifar100", "emnist")  # in the paper's order
PAPER, TABLES = "fedomg", (5, 1)  # Table 1 repeats the numbers of Table 5 for all sites, under a caption of 20 %
ROUNDS, SITES, RUNS = 800, 100, 5
PAIRED = ("seed, data set, skew and participation", "data set")
_OF_PLACE = ("sites_per_round", "partition", "dirichlet_alpha")


class Column(NamedTuple):
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

    def is_skewed(run: Run) -> bool:
        with suppress(SettingsError):  # a data set that is not at hand
            skewed = isinstance(run.dataset, str) and SKEWED in dataset_spec(run.dataset).families
            return skewed and run.target == TEST and run.record.protocol.partition != "equal" and not run.is_pooled
        return False

    return all(map(is_skewed, runs))


def build_sites_table(runs: Sequence[Run], against: str | None = None) -> Table:
    """Return the table of ``runs``: rows for each participation and method, a column for each data set and skew.

    ``against``: ``fedomg`` or ``paper`` for the paper's numbers below ours. Raises ``SettingsError`` for another paper,
    for runs in one column that differ in more than method, seed and participation, and for the stand-in beside the
    paper's numbers.
    """
    if against not in (None, ALL_PAPERS, PAPER):
        raise SettingsError(field="paper", value=against, expected=f"{PAPER}, which prints label-skewed sites")
    if against and (drawn := [run.record.data for run in runs if run.record.stand_in]):
        raise SettingsError(f"the runs used {drawn[0]}, of which no paper prints a number.")
    in_columns = grouped(runs, column_of)
    for members in in_columns.values():
        check_comparable(members, apart_from=("sites_per_round",))
    kept = without_repeats(runs, apart_from=_OF_PLACE)
    groups = group_runs(kept)
    columns = {one: in_columns[one] for one in dict.fromkeys((*PAPERS_COLUMNS, *in_columns)) if one in in_columns}
    shares = sorted({*map(participation_of, kept)}, reverse=True)
    rows = tuple(row for share in shares for group in groups for row in _rows(group, share, against))
    # FedAvg has no models of the sites' own. A place is a data set, skew and participation: cifar10/alpha=0.1/0.4.
    compared = [row for row in rows if row.fields.get("on") != PERSONAL]
    places = {one.title: "/".join(one) for one in columns}
    facts, over = line_facts(kept), seeds_in_words(rows, (run.seed for run in kept))
    versions = f"fdg-plugins {facts['version'].replace(';', ', ')}"
    return Table(
        caption=f"Accuracy of the last model, percent, {over}: {described(kept)}; {versions}.",
        head=("method", "participation", "on"),
        columns={one.title: {**one._asdict(), **line_facts(members)} for one, members in columns.items()},
        rows=rows,
        notes=(*_notes(kept, columns, against), *notes_on_runs(kept)),
        score=kept[0].record.score,
        facts=facts,
        below=(
            *compare(compared, groups, facts["data"], ("on", {}), PAIRED, places),
            *(worth(groups, LAST, facts["data"]) if len(columns) == len(shares) == 1 else ()),  # of equal sites
        ),
    )


def _rows(group: Group, participation: float, against: str | None) -> Iterator[Row]:
    """Yield our rows of a method under one participation, and the paper's."""
    runs = [run for run in group.runs if participation_of(run) == participation]
    if not runs:
        return
    by_title = grouped(runs, lambda run: column_of(run).title)
    fields: dict[str, Any] = {"method": group.method, "participation": participation}
    found = {run.folder: own_and_published(run) for run in runs}
    places = (OWN, PUBLISHED, *[PERSONAL] * any(PERSONAL in own for own in found.values()))
    derived = dict.fromkeys(kind for run in runs for kind in run.record.task.summary_kinds)
    for kind, place in product((None, *derived), places):
        what = place if kind is None else derived_on(kind, place)
        cells = {
            title: estimate({run.seed: found[run.folder][what] for run in members if what in found[run.folder]})
            for title, members in by_title.items()
        }
        yield Row(
            {"method": group.label, "participation": f"{participation:g}", "on": what},
            {title: cell for title, cell in cells.items() if cell},
            {**fields, "kind": OURS, "label": group.label, "selection": LAST, "on": what},
            is_missing=kind is None,  # other data sets may have another task
            rivals=None if kind else (participation, what),
        )
    if against and (printed := printed_cells(group.method, participation)):
        title = method_title(group.method)  # without settings of ours
        for one, members in by_title.items():
            if one in printed and (reasons := ", ".join(departures_of_sites(members))):
                printed[one]["note"] = f"{NOT_COMPARABLE}: {reasons}"
        words = {"method": title, "participation": f"{participation:g}", "on": "FedOMG paper, as printed"}
        fields |= {"kind": PRINTED, "label": title, "paper": PAPER, "rounds": ROUNDS, "sites": SITES}
        yield Row(words, printed, {**dict.fromkeys(line_facts(runs)), **fields}, is_missing=False)


def printed_cells(method: str, participation: float) -> dict[str, Cell]:
    """Return the paper's numbers for a method of this package: those of Table 5, for all sites also of Table 1."""
    found: dict[str, Cell] = {}
    numbers = printed_numbers()
    numbers = numbers[(numbers["paper"] == PAPER) & (numbers["ours"] == method)]
    for table in TABLES:
        for number in numbers[numbers["table"] == table].itertuples():
            sites, drawn = number.sites
            if (1.0 if table == 1 else drawn / sites) == participation:
                column = Column(number.dataset, f"alpha={float(number.alpha):g}")
                found.setdefault(column.title, cell_of(number.mean, number.std, RUNS))
    return found


# --- of one run ---


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
    record, values = run.record, dict[str, float]()
    for place, scores in _pooled(run).items():
        (sums,), derived = record.sums_by_domain(scores).values(), record.derived_scores(scores)
        total, count = sums[record.score.name]
        values[place] = total / count
        for kind in record.task.summary_kinds:
            values |= {derived_on(kind, place): value for value in derived.get(kind.name, {}).values()}
    return values


def derived_on(kind: ScoreKind, place: str) -> str:
    """Return the words for a derived score on some images, such as ``worst-group accuracy, published test part``."""
    return f"{kind.title.lower()}, {place}"


def _pooled(run: Run) -> dict[str, dict[str, Evaluation]]:
    """Return the last model's scores by site: on all sites' own test images, if all answered, and the published.

    With those of the sites' own models, if all sources have one.
    """
    if (found := selected(run.record, LAST)) is None:
        return {}
    sources, personal = run.record.sources, found.personal.sites if found.personal else {}
    places = ((OWN, found.sites, sources), (PERSONAL, personal, sources), (PUBLISHED, found.sites, run.record.held_out))
    return {
        place: {site: scores[site] for site in sites}
        for place, scores, sites in places
        if all(site in scores for site in sites)
    }


# --- of several ---


def _notes(runs: Sequence[Run], columns: Mapping[Column, Sequence[Run]], against: str | None) -> Iterator[str]:
    """Yield what a reader must know to compare the numbers."""
    yield (
        f"A site trains on three quarters of its images and is evaluated on the rest ({OWN}: correct over all sites, "
        f"divided by their number); no site has the {PUBLISHED}."
    )
    if missing := missing_images(runs, certain=False):
        yield f"Not on all images: {' and '.join(missing.values())}."
    if against is not None:
        yield (
            f"The paper: Tables 1 and 5, rounds {ROUNDS}, sites {SITES}, mean of {RUNS} runs; how a site's images are "
            "split, and on which of them accuracy is measured, is not stated. The caption of Table 1 says 20 % of the "
            "sites per round; its numbers are those of Table 5 for all."
        )
        for column, members in columns.items():
            if column in PAPERS_COLUMNS and (reasons := departures_of_sites(members)):
                yield f"{column.title} is {NOT_COMPARABLE} with the paper: {', '.join(reasons)}."
    shares = {
        column.title: statistics.fmean(found)
        for column, members in columns.items()
        if (found := [share for run in members if (share := commonest_at_sites(run)) is not None])
    }
    if shares:
        words = "Always naming the site's own commonest class is right in about this percentage of the"
        yield f"{words} {OWN}: {', '.join(f'{title} {100 * share:.1f}' for title, share in shares.items())}."
    for run in runs:
        for place, scores in _pooled(run).items():
            (sums,) = run.record.sums_by_domain(scores).values()
            if remarks := run.record.task.remarks(sums, {}, run.record.classes):
                yield f"{run.folder}, {place}: {'; '.join(remarks)}."
