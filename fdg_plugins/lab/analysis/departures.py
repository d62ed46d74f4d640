# SPDX-License-Identifier: Apache-2.0
"""Where the runs of a table depart from a paper's protocol so far that a difference of scores would say nothing."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

from fdg_plugins.data import dataset_spec
from fdg_plugins.data.skew import EQUAL
from fdg_plugins.lab.analysis.absences import MOST_NAMED, absences, noised
from fdg_plugins.lab.analysis.papers import PrintedRow
from fdg_plugins.lab.analysis.printed_names import NETWORKS, OTHER_IMAGES, PRINTED_DATASETS
from fdg_plugins.lab.analysis.runs import Run
from fdg_plugins.lab.analysis.table import SERVER_LR, WEIGHTING, Facts, MethodRows
from fdg_plugins.lab.analysis.whole_data import images_in_words
from fdg_plugins.plugins.composition import parse_method
from fdg_plugins.record.method_settings import method_fields
from fdg_plugins.settings.families import dataset_protocol
from fdg_plugins.settings.method_defaults import method_defaults
from fdg_plugins.settings.paper_protocols import PAPER_PROTOCOLS, PLAIN_WEIGHTINGS
from fdg_plugins.settings.protocol import SGD, Protocol
from fdg_plugins.values import counted

IN_WORDS: Mapping[str, str | Mapping[Any, str]] = {
    "rounds": "rounds {}",
    "local_epochs": "local epochs {}",
    "batch_size": "batch size {}",
    "learning_rate": "learning rate {:g}",
    "weight_decay": "weight decay {:g}",
    "lr_decay_at": "learning rate lowered after {:g} of the rounds",
    "lr_decay_factor": "learning rate times {:g} in the end",
    "head": "head {}",
    "crop_scale": "crops of {:g} of the area or more",
    "color_jitter": "colours changed by up to {:g}",
    "keep_momentum": {True: "momentum kept over rounds", False: "momentum from zero in every round"},
}
"""Settings of a paper's protocol that its printed numbers depend on, and how a difference is put in words.

A text has a place for the value; otherwise there is a text for each value.
"""

USUAL: Mapping[str, Any] = {
    "partition": EQUAL,
    "optimizer": SGD,
    **{name: Protocol.model_fields[name].default for name in ("momentum", "batch_norm", "normalization", "travels")},
    "clip_to_median": None,
}
"""What the papers' tables by held-out domain have in common, unless a protocol says otherwise."""

PLAIN_SERVER_LR = 1.0  # of a method that names none
SCRATCH = "from scratch"
OF_SITES = "fedomg-fl"  # the protocol of the paper's tables of label-skewed sites
OF_IMAGENET = ("resnet18", "resnet50", "alexnet")  # the printed networks that start from ImageNet weights


def departures(facts: Facts, row: PrintedRow, method: MethodRows) -> tuple[str, ...]:
    """Return in words how the runs of a method differ from the printed ones; empty if their numbers can be compared.

    Compared are the data set, where a paper has another number of its images; the size of the images with the protocol
    of the data set; network and initial weights with the printed backbone; whether all images were used, those of the
    held-out domain too; and for federated methods whether there is one site per domain and all took part in all rounds,
    what all these papers have in common (:data:`USUAL`), the method's own server learning rate, and what the paper's
    protocol says of training (``settings.paper_protocols``), as far as it says it and it is not the method's own.
    """
    published = dataset_protocol(facts.dataset).protocol
    weights = "imagenet" if row.backbone in OF_IMAGENET else SCRATCH
    other = OTHER_IMAGES.get((row.paper.key, facts.dataset))
    found = (
        (other is not None, other or ""),
        (facts.model != NETWORKS.get(row.backbone), facts.model),
        (facts.image_size != published.get("image_size", facts.image_size), f"{facts.image_size} px"),
        (facts.initial_weights != weights, facts.initial_weights),
        (bool(facts.trained), facts.trained),
        (facts.max_samples is not None, f"at most {facts.max_samples} images per domain"),
        *((True, words) for words in method.parts),
    )
    of_training = () if method.is_reference else _of_training(facts, row.paper.key, method)
    return (*(words for differs, words in found if differs), *of_training)


def departures_of_sites(run: Run) -> tuple[str, ...]:
    """Return in words how a run of label-skewed sites differs from the protocol of FedOMG's Tables 1 and 5.

    Skew and participation are columns and rows of these tables, and how a site's images are split is not stated. That
    updates were missing, in vain, or noisy is a difference too.
    """
    protocol, weights = run.record.protocol, run.record.initial_weights.label
    published = PAPER_PROTOCOLS[OF_SITES][str(run.dataset)]
    sites = len(run.record.sources)
    found = (
        (sites != published["sites_per_domain"], f"{sites} sites"),
        (protocol.model != published["model"], protocol.model),
        (protocol.image_size != published["image_size"], f"{protocol.image_size} px"),
        (weights != SCRATCH, weights),
        (bool(protocol.trained), protocol.trained),
        *((True, words) for words in images_in_words(run)),
    )
    of_settings = _of_settings(protocol, {**published, "partition": protocol.partition}, method_fields(run.record))
    some = ("some sites",)  # which of a hundred, the notes on the run say
    without, noise = (some if found else () for found in (absences(run.record), noised(run.record)))
    of_updates = _of_updates(without, len(run.record.idle_rounds()), noise)
    cut = () if run.planned is None else (_of_more_rounds(run.planned),)
    return (*(words for differs, words in found if differs), *of_settings, *cut, *of_updates)


def _of_training(facts: Facts, paper: str, method: MethodRows) -> Iterator[str]:
    """Yield in words the settings of a method's runs that are not those of a paper's protocol."""
    protocol = method.protocol
    if protocol is None:
        return
    published = _published(paper, facts.dataset)
    defaults = method_defaults(parse_method(method.method), facts.dataset)
    own = {name for name in method.own_fields if name in defaults.demanded or name not in published}
    if method.server_lr not in (None, defaults.server.get(SERVER_LR, PLAIN_SERVER_LR)):
        yield f"server learning rate {method.server_lr:g}"
    yield from _of_weighting(paper, method, defaults.server.get(WEIGHTING))
    yield from _of_settings(protocol, published, own)
    yield from map(_of_more_rounds, method.planned)
    yield from _of_participation(facts, method, protocol)


def _of_weighting(paper: str, method: MethodRows, usual: str | None) -> Iterator[str]:
    """Yield in words how sites are weighed whose step is the plain mean, if not as in the paper.

    ``usual``: the method's default on the data set. Where that is the paper's, its domains are of one size, and weights
    by samples are the same.
    """
    expected = PLAIN_WEIGHTINGS.get(paper)
    if expected in (None, usual) or method.weighting in (None, expected):
        return
    if parse_method(method.method).is_plain_mean:
        yield f"weighting {method.weighting}"


def _of_more_rounds(planned: int) -> str:
    """Return in words that a run is looked at before its end, to which a learning rate that falls belongs."""
    return f"{planned} rounds planned"


def _of_settings(protocol: Protocol, published: Mapping[str, Any], own: Collection[str]) -> Iterator[str]:
    """Yield in words the settings, other than the method's ``own``, that are not those of a ``published`` protocol."""
    for name, words in IN_WORDS.items():
        value = getattr(protocol, name)
        if name in published and name not in own and value != published[name]:
            yield words.format(value) if isinstance(words, str) else words[value]
    for name, usual in USUAL.items():
        value = getattr(protocol, name)
        if name not in own and value != published.get(name, usual):
            yield f"{name} {value}"


def _published(paper: str, dataset: str) -> Mapping[str, Any]:
    """Return a paper's protocol for a data set, or for that of its numbers, which may be of more or fewer images."""
    protocols = PAPER_PROTOCOLS.get(paper, {})
    return protocols.get(dataset, protocols.get(PRINTED_DATASETS[dataset], {}))


def _of_participation(facts: Facts, method: MethodRows, protocol: Protocol) -> Iterator[str]:
    """Yield in words how the federation is not one site per source domain, all of which train in all rounds."""
    expected = len(dataset_spec(facts.dataset).domains) - 1
    if facts.sources != (expected,):
        yield f"{' or '.join(map(str, facts.sources))} source sites"
    if protocol.sites_per_round is not None:
        yield f"{protocol.sites_per_round} sites per round"
    yield from _of_updates(method.without, method.unchanged, method.noised)


def _of_updates(without: Sequence[str], unchanged: int, noised: Sequence[str]) -> Iterator[str]:
    """Yield in words whose updates lacked in some rounds, how many rounds were in vain, and whose updates had noise."""
    if without:
        yield f"rounds without {' and '.join(without[:MOST_NAMED])}"
    if unchanged:
        yield f"{counted(unchanged, 'round')} that left the model unchanged"
    if noised:
        yield f"noise on the updates of {' and '.join(noised[:MOST_NAMED])}"
