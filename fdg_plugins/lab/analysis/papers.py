# SPDX-License-Identifier: Apache-2.0
"""The numbers that papers print for a method on a data set, and this package's names of what they print.

The papers' names are those of ``data/paper-results.csv``, which are lower-case forms of the printed ones. Methods and
their parts have names there that this package understands, or has no counterpart for.
"""

import functools
import re
from collections.abc import Mapping
from importlib.resources import files
from typing import Any, NamedTuple

import pandas as pd

from fdg_plugins.errors import SettingsError, check_choice
from fdg_plugins.lab.analysis.estimates import Cell, cell_of
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
USUAL_SETTINGS = ("step=0.05,decay=linear", "weights=sample_ratio")
_SETTING = re.compile(r"clients=(\d+),sampled=(\d+),?(.*)")
_STEP = re.compile(r"step=([\d.]+)(?:,decay=(\w+))?")


class PrintedRow(NamedTuple):
    """The numbers of one paper for one method, by this package's domain names or ``average``; and their tables.

    ``sites``: the number of sites of the sources, and of those drawn for a round. A cell has ``notes`` on its number.
    """

    paper: Paper
    tables: tuple[int, ...]
    backbone: str
    sites: tuple[int, int]
    cells: dict[str, Cell]

    @property
    def protocol(self) -> str:
        """The name of the protocol of these numbers."""
        return self.paper.key if self.sites[0] == self.sites[1] else f"{self.paper.key}-many"


@functools.cache
def papers() -> dict[str, Paper]:
    """Return the papers by key, such as ``feddg-ga``."""
    found = (Paper(*row) for row in _read("papers.csv").astype({"runs": int}).itertuples(index=False, name=None))
    return {paper.key: paper for paper in found}


@functools.cache
def printed_numbers() -> pd.DataFrame:
    """Return all printed numbers, in the order of the data file.

    Mean and standard deviation are fractions, ``std`` is None if none is printed. ``ours`` is this package's name of
    the method in a federated table, None if it has no such method. ``sites``: the number of sites that share the source
    domains, and of those drawn for a round; None if there are none. ``settings``: those of the method, by our names, in
    which it differs from the paper's other tables.
    """
    text = _read("paper-results.csv").to_dict("list")
    federated = [_SETTING.fullmatch(setting) for setting in text["setting"]]
    varied = zip(text["method"], federated, strict=True)
    own = {
        "table": [int(table) for table in text["table"]],
        "ours": [method_of(ABLATIONS.get(printed, (printed,))[0]) for printed in text["method"]],
        "sites": [None if of is None else (int(of[1]), int(of[2])) for of in federated],
        "settings": [_settings(printed, "" if of is None else of[3]) for printed, of in varied],
        "notes": [tuple(filter(None, note.split("; "))) for note in text["note"]],
        **{name: [float(number) / 100 if number else None for number in text[name]] for name in ("mean", "std")},
    }
    return pd.DataFrame(text | own, dtype=object)


def _settings(printed: str, setting: str) -> Mapping[str, Any]:
    if (step := _STEP.match(setting)) is None or setting in USUAL_SETTINGS:
        return ABLATIONS.get(printed, ("", {}))[1]
    return {"step_size": float(step[1]), **({"decay": step[2]} if step[2] else {})}


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
    found = printed_numbers()
    found = found[found["dataset"] == PRINTED_DATASETS.get(dataset, "")]
    if not found["paper"].isin([paper.key for paper in asked]).any():
        expected = f"one on which {', '.join(paper.title for paper in asked)} print numbers"
        raise SettingsError(field="data set", value=dataset, expected=f"{expected}: {', '.join(PRINTED_DATASETS)}")
    found = found[(found["ours"] == method) & found["sites"].map(lambda of: of is not None and (of[0] > of[1]) is many)]
    rows = []
    for paper in asked:
        numbers = found[found["paper"] == paper.key]
        own = numbers["settings"].map(lambda of: bool(of) and of.items() <= settings.items()).astype(bool)
        numbers = numbers[own if own.any() else ~numbers["settings"].astype(bool)]
        rows += [] if numbers.empty else [_row(paper, numbers)]
    return tuple(rows)


def _row(paper: Paper, numbers: pd.DataFrame) -> PrintedRow:
    """Return one paper's row: its fullest table, completed by numbers and deviations from its other tables."""
    sizes, first = numbers["table"].value_counts(), numbers.iloc[0]
    taken: dict[str, Any] = {}
    for number in sorted(numbers.itertuples(), key=lambda number: (-sizes[number.table], number.table)):
        known = taken.setdefault(number.test_domain, number)
        if known.std is None and number.std is not None and known.mean == number.mean:
            taken[number.test_domain] = number
    remark = [REMARKS[at]] if (at := (paper.key, first["dataset"])) in REMARKS else []
    turned = ANGLE if first["dataset"] == "rotatedmnist" else ""
    cells = {
        domain if domain == AVERAGE else turned + domain: {
            **cell_of(number.mean, number.std, paper.runs),
            "notes": (*number.notes, *remark),
            "note": "; ".join((*number.notes, *remark)) or None,
        }
        for domain, number in taken.items()
    }
    tables = tuple(sorted({one.table for one in taken.values()}))
    return PrintedRow(paper, tables, first["backbone"], first["sites"], cells)


def _read(name: str) -> pd.DataFrame:
    with (files("fdg_plugins.lab.analysis") / "data" / name).open(encoding="utf-8") as file:
        return pd.read_csv(file, dtype=str, keep_default_na=False)
