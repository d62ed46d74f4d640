# SPDX-License-Identifier: Apache-2.0
"""Where runs depart from a paper's protocol so far that a difference of scores would not show anything."""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

from fdg_plugins.data.splits import EQUAL
from fdg_plugins.lab.analysis.facts import MOST_NAMED, absences, missing_images, noised
from fdg_plugins.lab.analysis.papers import NETWORKS, OTHER_IMAGES, PRINTED_DATASETS, PrintedRow
from fdg_plugins.lab.analysis.runs import Run
from fdg_plugins.plugins.composition import parse_method
from fdg_plugins.record.method_settings import method_fields, method_settings
from fdg_plugins.record.run_record import RunRecord
from fdg_plugins.settings.defaults import dataset_protocol, method_defaults
from fdg_plugins.settings.protocol import SGD, Protocol
from fdg_plugins.settings.protocols import PAPER_PROTOCOLS, PLAIN_WEIGHTINGS

# Settings of a paper's protocol that its printed numbers depend on.
COMPARED = (
    "rounds",
    "local_epochs",
    "batch_size",
    "learning_rate",
    "weight_decay",
    "lr_decay_at",
    "lr_decay_factor",
    "head",
    "crop_scale",
    "color_jitter",
    "keep_momentum",
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
OF_IMAGENET = ("resnet18", "resnet50", "alexnet")  # the printed networks that start from ImageNet weights


def departures(runs: Sequence[Run], row: PrintedRow, chosen: Collection[str] = ()) -> list[str]:
    """Return how the ``runs`` of a method differ from the printed ones; empty if their numbers can be compared.

    Compared are the data set, where a paper has another number of its images; the size of the images with the protocol
    of the data set; network and initial weights with the printed backbone; whether all images were used, those of the
    held-out domain too; and for federated methods whether there are as many sites and as many took part in each round,
    what all these papers have in common (:data:`USUAL`), the method's own server learning rate unless it was
    ``chosen``, and what the paper's protocol says of training, as far as it says it and it is not the method's own.
    """
    record, paper, dataset = runs[0].record, row.paper.key, str(runs[0].dataset)
    published = {
        "model": NETWORKS.get(row.backbone),
        "image_size": dataset_protocol(dataset).protocol.get("image_size", record.protocol.image_size),
        "weights": "imagenet" if row.backbone in OF_IMAGENET else SCRATCH,
    }
    found = [other] if (other := OTHER_IMAGES.get((paper, dataset))) else []
    found += _of_material(runs, published)
    if runs[0].is_reference:
        return found
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
