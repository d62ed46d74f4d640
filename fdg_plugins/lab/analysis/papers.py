# SPDX-License-Identifier: Apache-2.0
"""The numbers that papers print for a method on a data set, and this package's names of what they print.

The papers' names are those of ``data/paper-results.csv``, which are lower-case forms of the printed ones. Methods and
their parts have names there that this package understands, or has no counterpart for.
"""

import csv
import functools
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from importlib.resources import files
from typing import Any, NamedTuple

from fdg_plugins.errors import SettingsError, check_choice
from fdg_plugins.lab.analysis.estimates import Estimate
from fdg_plugins.plugins.composition import parse_method

AVERAGE = "average"
ALL_PAPERS = "paper"

# From a data set of this package to the papers' name. The images may differ in number: REMARKS and OTHER_IMAGES.
PRINTED_DATASETS = {
    **{name: name for name in ("pacs", "vlcs", "officehome", "terraincognita", "domainnet", "rotatedmnist")},
    "domainnet10": "domainnet",
    "rotatedmnist_7k": "rotatedmnist",
}
ANGLE = "angle_"  # in this package's names of RotatedMNIST's domains
# From a printed backbone to this package's network.
NETWORKS = {"convnet": "groupnorm_convnet", **{name: name for name in ("resnet18", "resnet50", "alexnet")}}
# What only the papers' texts state, by paper and the papers' name of the data set.
REMARKS = {
    ("fediir", "rotatedmnist"): "RotatedMNIST of 70,000 images",
    ("feddim", "rotatedmnist"): "RotatedMNIST of 7,000 images",
    ("feddg-ga", "domainnet"): "the paper does not say which classes of DomainNet; the accuracies fit a subset of 10",
}
# How a data set of this package differs from that of a paper's numbers, by paper and data set.
OTHER_IMAGES = {
    ("fediir", "rotatedmnist_7k"): "7,000 images instead of 70,000",
    ("feddim", "rotatedmnist"): "70,000 images instead of 7,000",
}


class Paper(NamedTuple):
    """A paper: its numbers are means of ``runs`` runs; ``selection`` is the model selection that it states."""

    key: str
    title: str
    reference: str
    runs: int
    selection: str


# FedDIM's Table 3 varies settings: from a printed method to ours and its settings. FedDG-GA's Table 3 has them in the
# setting of a number; those that the paper uses everywhere else are none.
ABLATIONS: Mapping[str, tuple[str, Mapping[str, Any]]] = {
    "feddim-lambda0": ("feddim", {"strength": 0}),
    "feddim-m0": ("feddim", {"insight_momentum": 0}),
    "feddim-m1": ("feddim", {"insight_momentum": 1}),
    "feddim-feature": ("feddim", {"objective target": "feature"}),
    "feddim-logit": ("feddim", {"objective target": "logit"}),
}
USUAL_SETTINGS = ("", "step=0.05,decay=linear", "weights=sample_ratio")
_SETTING = re.compile(r"clients=(\d+),sampled=(\d+),?(?:step=(?P<step>[\d.]+))?(?:,decay=(?P<decay>\w+))?.*")


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

    @property
    def ours(self) -> str | None:
        """This package's name of the method in a federated table; None if it has no such method."""
        return method_of(ABLATIONS.get(self.method, (self.method,))[0])

    @property
    def sites(self) -> tuple[int, int] | None:
        """The number of sites that share the source domains, and of those drawn for a round; None if there are none."""
        found = _SETTING.fullmatch(self.setting)
        return None if found is None else (int(found[1]), int(found[2]))

    @property
    def settings(self) -> Mapping[str, Any]:
        """The settings of the method, by our names, in which it differs from the paper's other tables."""
        found = _SETTING.fullmatch(self.setting)
        if found is None or self.setting.split(",", 2)[2:] in ([], *([text] for text in USUAL_SETTINGS)):
            return ABLATIONS.get(self.method, ("", {}))[1]
        decay = {"decay": found["decay"]} if found["decay"] else {}
        return {"step_size": float(found["step"]), **decay}


class PrintedRow(NamedTuple):
    """The numbers of one paper for one method, by this package's domain names or ``average``; and their tables.

    ``sites``: the number of sites of the sources, and of those drawn for a round.
    """

    paper: Paper
    tables: tuple[int, ...]
    backbone: str
    sites: tuple[int, int]
    cells: dict[str, Estimate]

    @property
    def protocol(self) -> str:
        """The name of the protocol of these numbers."""
        return self.paper.key if self.sites[0] == self.sites[1] else f"{self.paper.key}-many"


@functools.cache
def papers() -> dict[str, Paper]:
    """Return the papers by key, such as ``feddg-ga``."""
    return {row["paper"]: Paper(row.pop("paper"), runs=int(row.pop("runs")), **row) for row in _read("papers.csv")}


@functools.cache
def printed_numbers() -> tuple[PrintedNumber, ...]:
    """Return all printed numbers, in the order of the data file."""
    return tuple(
        PrintedNumber(
            **{name: row[name] for name in ("paper", "dataset", "setting", "backbone", "method", "test_domain")},
            table=int(row["table"]),
            mean=float(row["mean"]) / 100,
            std=float(row["std"]) / 100 if row["std"] else None,
            notes=tuple(filter(None, row["note"].split("; "))),
        )
        for row in _read("paper-results.csv")
    )


@functools.cache
def method_of(printed: str) -> str | None:
    """Return this package's name of a method in a federated table; None if it has no such method."""
    try:
        return parse_method(printed).name
    except SettingsError:
        return None


def printed_rows(
    dataset: str, method: str, against: str = ALL_PAPERS, *, many: bool = False, settings: Mapping[str, Any] = {}
) -> tuple[PrintedRow, ...]:
    """Return the printed numbers for this package's ``method`` on its ``dataset``, one row per paper.

    ``against`` is a paper's key, or ``paper`` for all. ``many``: of the tables in which several sites share a source
    domain, instead of those with one site per domain. ``settings``: of the method, for tables that vary one; a paper
    that does not print these has its other row. Raises ``SettingsError`` for an unknown paper, and if none of the
    requested papers uses the data set.
    """
    check_choice("paper", against, (ALL_PAPERS, *papers()))
    asked = [paper for paper in papers().values() if against in (ALL_PAPERS, paper.key)]
    printed = PRINTED_DATASETS.get(dataset, "")
    on_dataset = [one for one in printed_numbers() if one.dataset == printed]
    if not {one.paper for one in on_dataset} & {paper.key for paper in asked}:
        expected = f"one on which {', '.join(paper.title for paper in asked)} print numbers"
        raise SettingsError(field="data set", value=dataset, expected=f"{expected}: {', '.join(PRINTED_DATASETS)}")
    numbers = [one for one in on_dataset if one.sites and one.ours == method]
    numbers = [one for one in numbers if one.sites and (one.sites[0] > one.sites[1]) is many]
    by_paper = [(paper, _varied([one for one in numbers if one.paper == paper.key], settings)) for paper in asked]
    return tuple(_row(paper, of_paper) for paper, of_paper in by_paper if of_paper)


def _varied(numbers: Sequence[PrintedNumber], settings: Mapping[str, Any]) -> list[PrintedNumber]:
    own = [one for one in numbers if one.settings and one.settings.items() <= settings.items()]
    return own or [one for one in numbers if not one.settings]


def _row(paper: Paper, numbers: Sequence[PrintedNumber]) -> PrintedRow:
    """Return one paper's row: its fullest table, completed by numbers and deviations from its other tables."""
    sizes = Counter(number.table for number in numbers)
    taken: dict[str, PrintedNumber] = {}
    for number in sorted(numbers, key=lambda number: (-sizes[number.table], number.table)):
        known = taken.setdefault(number.test_domain, number)
        if known.std is None and number.std is not None and known.mean == number.mean:
            taken[number.test_domain] = number
    remark = [REMARKS[at]] if (at := (paper.key, numbers[0].dataset)) in REMARKS else []
    cells = {
        domain: Estimate(number.mean, number.std, paper.runs, notes=(*number.notes, *remark))
        for domain, number in taken.items()
    }
    if numbers[0].dataset == "rotatedmnist":
        cells = {domain if domain == AVERAGE else ANGLE + domain: cell for domain, cell in cells.items()}
    sites = numbers[0].sites
    assert sites is not None
    return PrintedRow(paper, tuple(sorted({one.table for one in taken.values()})), numbers[0].backbone, sites, cells)


def _read(name: str) -> list[dict[str, Any]]:
    with (files("fdg_plugins.lab.analysis") / "data" / name).open(encoding="utf-8") as file:
        return list(csv.DictReader(file))
