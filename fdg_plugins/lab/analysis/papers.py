# SPDX-License-Identifier: Apache-2.0
"""The numbers that papers print for a method on a data set, with one site per source domain and all sites per round."""

import csv
import functools
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.resources import files
from typing import NamedTuple

from fdg_plugins.errors import SettingsError
from fdg_plugins.lab.analysis.estimates import Estimate
from fdg_plugins.lab.analysis.printed_names import DOMAINS, PRINTED_DATASETS, REMARKS, method_of

AVERAGE = "average"
ALL_PAPERS = "paper"


@dataclass(frozen=True)
class Paper:
    """A paper: its numbers are means of ``runs`` runs; ``selection`` is the model selection that it states."""

    key: str
    title: str
    reference: str
    runs: int
    selection: str


class PrintedNumber(NamedTuple):
    """One line of the data file; mean and standard deviation are fractions, ``std`` is None if none is printed."""

    paper: str
    table: int
    dataset: str
    setting: str
    backbone: str
    method: str
    test_domain: str
    mean: float
    std: float | None
    notes: tuple[str, ...]


@dataclass(frozen=True)
class PrintedRow:
    """The numbers of one paper for one method, by this package's domain names or ``average``; and their tables."""

    paper: Paper
    tables: tuple[int, ...]
    backbone: str
    cells: dict[str, Estimate]


@functools.cache
def papers() -> dict[str, Paper]:
    """Return the papers by key, such as ``feddg-ga``."""
    rows = _read("papers.csv")
    return {
        row["paper"]: Paper(row["paper"], row["title"], row["reference"], int(row["runs"]), row["selection"])
        for row in rows
    }


@functools.cache
def printed_numbers() -> tuple[PrintedNumber, ...]:
    """Return all printed numbers, in the order of the data file."""
    return tuple(
        PrintedNumber(
            row["paper"],
            int(row["table"]),
            row["dataset"],
            row["setting"],
            row["backbone"],
            row["method"],
            row["test_domain"],
            float(row["mean"]) / 100,
            float(row["std"]) / 100 if row["std"] else None,
            tuple(note for note in row["note"].split("; ") if note),
        )
        for row in _read("paper-results.csv")
    )


def printed_rows(dataset: str, method: str, against: str = ALL_PAPERS) -> tuple[PrintedRow, ...]:
    """Return the printed numbers for this package's ``method`` on its ``dataset``, one row per paper.

    ``against`` is a paper's key, or ``paper`` for all. Raises ``SettingsError`` for an unknown paper, and if none of
    the requested papers uses the data set.
    """
    asked = _asked(against)
    numbers = _of_method(method, _on_dataset(dataset, asked))
    rows = [[number for number in numbers if number.paper == key] for key in asked]
    return tuple(_row(row) for row in rows if row)


def _asked(against: str) -> tuple[str, ...]:
    if against == ALL_PAPERS:
        return tuple(papers())
    if against not in papers():
        raise SettingsError(f"paper {against!r} is unknown; expected one of {', '.join((ALL_PAPERS, *papers()))}.")
    return (against,)


def _on_dataset(dataset: str, asked: Sequence[str]) -> list[PrintedNumber]:
    printed = PRINTED_DATASETS.get(dataset)
    numbers = [number for number in printed_numbers() if number.paper in asked and number.dataset == printed]
    if not numbers:
        raise SettingsError(
            f"no number on data set {dataset} is printed by {', '.join(papers()[key].title for key in asked)}; "
            f"the data sets with printed numbers are {', '.join(PRINTED_DATASETS)}."
        )
    return numbers


def _of_method(method: str, numbers: Sequence[PrintedNumber]) -> list[PrintedNumber]:
    """Return the numbers for this package's ``method`` in a federation like this package's."""
    ours = {printed: method_of(printed) for printed in {number.method for number in numbers}}
    return [number for number in numbers if ours[number.method] == method and _one_site_per_source(number)]


def _one_site_per_source(number: PrintedNumber) -> bool:
    """Return whether each source domain is one site, all sites train in every round, and nothing else is varied."""
    expected = len(DOMAINS[number.dataset]) - 1
    found = re.fullmatch(r"clients=(\d+),sampled=(\d+)", number.setting)
    return found is not None and {int(count) for count in found.groups()} == {expected}


def _row(numbers: Sequence[PrintedNumber]) -> PrintedRow:
    """Return one paper's row: its fullest table, completed by numbers and deviations from its other tables."""
    first = numbers[0]
    taken = _by_domain(numbers)
    paper = papers()[first.paper]
    remark = REMARKS.get((first.paper, first.dataset))
    names = {**DOMAINS[first.dataset], AVERAGE: AVERAGE}
    cells = {
        names[domain]: Estimate(
            number.mean, number.std, paper.runs, notes=(*number.notes, *((remark,) if remark else ()))
        )
        for domain, number in taken.items()
    }
    return PrintedRow(paper, tuple(sorted({number.table for number in taken.values()})), first.backbone, cells)


def _by_domain(numbers: Sequence[PrintedNumber]) -> dict[str, PrintedNumber]:
    """Return one number for each domain: that of the fullest table, or an equal one that has a deviation."""
    sizes = Counter(number.table for number in numbers)
    taken: dict[str, PrintedNumber] = {}
    for number in sorted(numbers, key=lambda number: (-sizes[number.table], number.table)):
        known = taken.get(number.test_domain)
        if known is None or _adds_deviation(number, known):
            taken[number.test_domain] = number
    return taken


def _adds_deviation(number: PrintedNumber, known: PrintedNumber) -> bool:
    return known.std is None and number.std is not None and known.mean == number.mean


def _read(name: str) -> list[dict[str, str]]:
    text = (files("fdg_plugins.lab.analysis") / "data" / name).read_text(encoding="utf-8")
    return list(csv.DictReader(text.splitlines()))
