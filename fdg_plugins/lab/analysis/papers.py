# SPDX-License-Identifier: Apache-2.0
"""The numbers that papers print for a method on a data set, and where runs depart so far from a paper's protocol that
a difference of scores would not show anything.

The papers' names are those of ``data/paper-results.csv``, which are lower-case forms of the printed ones. Methods and
their parts have names there that this package understands, or has no counterpart for.
"""

import functools
import json
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from importlib.resources import files
from typing import Any, NamedTuple

import pandas as pd

from fdg_plugins.data.splits import EQUAL
from fdg_plugins.errors import SettingsError, check_choice
from fdg_plugins.lab.analysis.estimates import Cell, cell_of
from fdg_plugins.lab.analysis.facts import MOST_NAMED, absences, missing_images, noised
from fdg_plugins.lab.analysis.runs import Run
from fdg_plugins.plugins.composition import parse_method
from fdg_plugins.record.method_settings import method_fields, method_settings
from fdg_plugins.record.run_record import RunRecord
from fdg_plugins.settings.defaults import dataset_protocol, method_defaults
from fdg_plugins.settings.protocol import SGD, Protocol
from fdg_plugins.settings.protocols import PAPER_PROTOCOLS, PLAIN_WEIGHTINGS

AVERAGE = "average"
ALL_PAPERS = "paper"

# From a data set of this package to the papers' name. The images may differ in number: OTHER_IMAGES.
PRINTED_DATASETS = {
    **{name: name for name in ("pacs", "vlcs", "officehome", "terraincognita", "domainnet", "rotatedmnist")},
    "domainnet10": "domainnet",
    "rotatedmnist_7k": "rotatedmnist",
}
ANGLE = "angle_"  # in this package's names of RotatedMNIST's domains
OF_IMAGENET = ("resnet18", "resnet50", "alexnet")  # the printed networks that start from ImageNet weights
# From a printed backbone to this package's network.
NETWORKS = {"convnet": "groupnorm_convnet", **{name: name for name in OF_IMAGENET}}
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
    own = {
        "table": list(map(int, text["table"])),
        "ours": list(map(method_of, text["method"])),
        "sites": [(int(of), int(n)) if of else None for of, n in zip(text["sites"], text["drawn"], strict=True)],
        "settings": [json.loads(one or "{}") for one in text["settings"]],
        "notes": [tuple(filter(None, note.split(" | "))) for note in text["note"]],
        **{name: [float(number) / 100 if number else None for number in text[name]] for name in ("mean", "std")},
    }
    return pd.DataFrame(text | own, dtype=object)


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
    turned = ANGLE if first["dataset"] == "rotatedmnist" else ""
    cells = {
        domain if domain == AVERAGE else turned + domain: {
            **cell_of(number.mean, number.std, paper.runs),
            "notes": number.notes,
            "note": "; ".join(number.notes) or None,
        }
        for domain, number in taken.items()
    }
    tables = tuple(sorted({one.table for one in taken.values()}))
    return PrintedRow(paper, tables, first["backbone"], first["sites"], cells)


def _read(name: str) -> pd.DataFrame:
    with (files("fdg_plugins.lab.analysis") / "data" / name).open(encoding="utf-8") as file:
        return pd.read_csv(file, dtype=str, keep_default_na=False)


# --- where runs depart from them ---

# Settings of a paper's protocol that its printed numbers depend on.
COMPARED = (
    *("rounds", "local_epochs", "batch_size", "learning_rate", "weight_decay", "lr_decay_at", "lr_decay_factor"),
    *("head", "crop_scale", "color_jitter", "keep_momentum"),
)
# What the papers' tables have in common, unless a protocol says otherwise.
USUAL: Mapping[str, Any] = {
    "partition": EQUAL,
    "optimizer": SGD,
    **{name: Protocol.model_fields[name].default for name in ("momentum", "batch_norm", "normalization", "travels")},
    "clip_to_median": None,
}
SERVER_LR, WEIGHTING = "server_lr", "weighting"
PLAIN_SERVER_LR = 1.0  # of a method that names none
SCRATCH = "from scratch"
OF_SITES = "fedomg-fl"  # the protocol of the paper's tables of label-skewed sites


def departures(runs: Sequence[Run], row: PrintedRow, chosen: Collection[str] = ()) -> list[str]:
    """Return how the ``runs`` of a method differ from the printed ones; empty if their numbers can be compared.

    Compared are the data set, where a paper has another number of its images; the size of the images with the protocol
    of the data set; network and initial weights with the printed backbone; whether all images were used, those of the
    held-out domain too; whether there are as many sites and as many took part in each round; what all these papers have
    in common (:data:`USUAL`), the method's own server learning rate unless it was ``chosen``, and what the paper's
    protocol says of training, as far as it says it and it is not the method's own.
    """
    record, paper, dataset = runs[0].record, row.paper.key, str(runs[0].dataset)
    published = {
        "model": NETWORKS.get(row.backbone),
        "image_size": dataset_protocol(dataset).protocol.get("image_size", record.protocol.image_size),
        "weights": "imagenet" if row.backbone in OF_IMAGENET else SCRATCH,
    }
    found = [other] if (other := OTHER_IMAGES.get((paper, dataset))) else []
    found += _of_material(runs, published)
    protocols = PAPER_PROTOCOLS.get(row.protocol, {})
    of_paper = protocols.get(dataset, protocols.get(PRINTED_DATASETS[dataset], {}))
    method, settings = parse_method(runs[0].method), method_settings(record)
    defaults = method_defaults(method, dataset)
    rate, weighting, plain = settings.get(SERVER_LR), settings.get(WEIGHTING), PLAIN_WEIGHTINGS.get(paper)
    usual_rates = (None, defaults.server.get(SERVER_LR, PLAIN_SERVER_LR))
    found += [f"{SERVER_LR} {rate:g}"] if SERVER_LR not in chosen and rate not in usual_rates else []
    # A default that is the paper's is of a data set whose domains are of one size: weights by samples are the same.
    if method.is_plain_mean and plain not in (None, defaults.server.get(WEIGHTING)) and weighting not in (None, plain):
        found.append(f"{WEIGHTING} {weighting}")
    own = {name for name in method_fields(record) if name in defaults.demanded or name not in of_paper}
    found += _of_settings(record.protocol, of_paper, own)
    sources, drawn = sorted({len(run.record.sources) for run in runs}), record.protocol.sites_per_round
    federation = {
        f"{' or '.join(map(str, sources))} source sites": sources != [row.sites[0]],
        f"{drawn or 'all'} sites per round": drawn != (None if len({*row.sites}) == 1 else row.sites[1]),
    }
    return [*found, *_where(federation), *_of_updates(runs, named=True)]


def departures_of_sites(runs: Sequence[Run]) -> list[str]:
    """Return how runs of label-skewed sites in one column differ from the protocol of FedOMG's Tables 1 and 5.

    Skew and participation are columns and rows of these tables, and how a site's images are split is not stated. That
    updates were missing, in vain, or noisy is a difference too.
    """
    published = PAPER_PROTOCOLS[OF_SITES][str(runs[0].dataset)]
    found: list[str] = []
    for run in runs:
        protocol, sites = run.record.protocol, len(run.record.sources)
        found += [f"{sites} sites"] * (sites != published["sites_per_domain"])
        found += _of_material([run], {**published, "weights": SCRATCH})
        found += _of_settings(protocol, {**published, "partition": protocol.partition}, method_fields(run.record))
        found += _of_updates([run], named=False)
    return list(dict.fromkeys(found))


def _of_material(runs: Sequence[Run], published: Mapping[str, Any]) -> list[str]:
    label, protocol = runs[0].record.initial_weights.label, runs[0].record.protocol
    material = {
        protocol.model: protocol.model != published["model"],
        f"{protocol.image_size} px": protocol.image_size != published["image_size"],
        label: label != published["weights"],
        protocol.trained: bool(protocol.trained),
        f"at most {protocol.max_samples_per_domain} images per domain": protocol.max_samples_per_domain is not None,
    }
    return [*_where(material), *missing_images(runs, certain=published.get("partition") is None).values()]


def _where(differs: Mapping[str, bool]) -> list[str]:
    return [text for text, does in differs.items() if does]


def _of_settings(protocol: Protocol, published: Mapping[str, Any], own: Collection[str]) -> Iterator[str]:
    expected = {name: published[name] for name in COMPARED if name in published}
    expected |= {name: published.get(name, usual) for name, usual in USUAL.items()}
    for name, value in expected.items():
        if name not in own and getattr(protocol, name) != value:
            yield f"{name} {getattr(protocol, name)}"


def _of_updates(runs: Sequence[Run], *, named: bool) -> Iterator[str]:
    def sites(of: Callable[[RunRecord], Iterable[str]]) -> str:
        found = sorted({site for run in runs for site in of(run.record)})
        return " and ".join(found[:MOST_NAMED]) if named or not found else "some sites"

    yield from (f"{planned} rounds planned" for planned in sorted({run.planned for run in runs if run.planned}))
    if without := sites(absences):
        yield f"rounds without {without}"
    if idle := max(len(run.record.idle_rounds()) for run in runs):
        yield f"{idle} rounds that left the model unchanged"
    if noise := sites(noised):
        yield f"noise on the updates of {noise}"
