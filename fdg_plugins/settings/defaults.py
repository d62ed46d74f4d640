# SPDX-License-Identifier: Apache-2.0
"""What a job runs unless told otherwise: the one place that combines the layers of defaults.

From general to specific: the protocol of the data set's families, the values of the data set itself, the records of the
method's parts (``fdg_plugins.methods``), and a protocol by name, whose numbers are in :mod:`.protocols`. A setting in
no layer takes the default of its class and is omitted from jobs.

>>> from fdg_plugins.plugins.composition import parse_method
>>> method_defaults(parse_method("fedomg"), "pacs").server["server_lr"]
0.05
>>> method_defaults(parse_method("fediir"), "vlcs").objective["strength"]
0.005
>>> method_defaults(parse_method("fedomg+iir"), "vlcs").objective["strength"]
0.0001
"""

from collections.abc import Collection, Iterable, Sequence
from functools import reduce
from operator import or_
from typing import Any, NamedTuple

from fdg_plugins.core.partition import allot_sites
from fdg_plugins.data.catalogue import dataset_spec, known_images
from fdg_plugins.data.site_names import part_sites
from fdg_plugins.data.splits import EQUAL, MIX
from fdg_plugins.errors import SettingsError
from fdg_plugins.plugins.composition import BASE, Composition
from fdg_plugins.plugins.method import Default
from fdg_plugins.plugins.methods import METHODS
from fdg_plugins.plugins.own_dataset import DatasetRef
from fdg_plugins.settings.protocol import LARGEST_DOMAIN, make_protocol
from fdg_plugins.settings.protocols import (
    FAMILIES,
    PAPER,
    PAPER_PROTOCOLS,
    PLAIN_WEIGHTINGS,
    PROTOCOLS,
    QUICK,
    QUICK_MASKS,
    QUICK_PROTOCOLS,
    SEGMENTATION,
    DatasetProtocol,
    Settings,
)


class MethodDefaults(NamedTuple):
    """Settings by the part of the job that owns them: aggregator, weighting, objective, and protocol.

    ``demanded``: the fields of ``protocol`` whose values are those of a method's paper or code, and no choice of ours.
    """

    server: Settings
    weighting: Settings
    objective: Settings
    protocol: Settings
    demanded: Collection[str] = ()


def dataset_protocol(dataset: DatasetRef) -> DatasetProtocol:
    """Return the protocol of a data set: its families', from general to specific, then its own values."""
    spec = dataset_spec(dataset)
    layers = [*(FAMILIES[name] for name in spec.families if name in FAMILIES), (spec.protocol, spec.stand_in_protocol)]
    real, drawn = zip(*layers, strict=True)
    return DatasetProtocol(*(dict(reduce(or_, map(dict, layer))) for layer in (real, drawn)))


def method_defaults(method: Composition, dataset: DatasetRef) -> MethodDefaults:
    """Return the defaults of a method on a data set; raise ``SettingsError`` if it is not in the catalogue."""
    spec = dataset_spec(dataset)
    records = [METHODS.find(part) for part in (method.direction, method.objective, method.weighting)]
    keys = {record.key for record in records if record is not None}
    parts = [
        [] if record is None else record.entries_on(*spec.families, spec.name, beside=keys - {record.key})
        for record in records
    ]
    direction, objective, weighting = (reduce(or_, entries, Default()) for entries in parts)
    server = dict(direction.server)
    if method.direction == BASE:  # the plain mean, under which an objective's or a weighting's server settings apply
        server |= {**weighting.server, **objective.server}
    if (below := METHODS.find(method.over)) is not None:
        server["over"] = below.key
        parts.append(below.entries_on(*spec.families, spec.name, beside=keys))
    return MethodDefaults(server, weighting.weighting, objective.objective, *_protocol(parts))


def _protocol(parts: Iterable[Sequence[Default]]) -> tuple[Settings, Collection[str]]:
    """Return the fields of the protocol that the parts set, and which of them a paper or its code demands.

    Of two parts the later wins, except that a choice of ours never replaces what the paper of another part demands.
    """
    values: dict[str, Any] = {}
    demanded: set[str] = set()
    for entries in parts:
        own = {name: (value, entry.is_ours) for entry in entries for name, value in entry.protocol.items()}
        values |= {name: value for name, (value, is_ours) in own.items() if not (is_ours and name in demanded)}
        demanded |= {name for name, (_, is_ours) in own.items() if not is_ours}
    return values, frozenset(demanded)


def protocol_settings(protocol: str, dataset: DatasetRef, method: Composition | None = None) -> dict[str, Any]:
    """Return the settings of a protocol by name for a data set; a method ignores those that it does not have.

    ``method``: under a paper's protocol it keeps what its own paper or code demands of the sites' training; our own
    choices for it give way to what the protocol names.
    """
    spec = dataset_spec(dataset)
    if protocol == PAPER:
        return {}
    if protocol == QUICK:
        return _quick(dataset)
    if spec.name not in PAPER_PROTOCOLS.get(protocol, {}):
        known = [name for name in PROTOCOLS if spec.name in PAPER_PROTOCOLS.get(name, (spec.name,))]
        expected = f"one that has data set {spec.name}: {', '.join(known)}"
        raise SettingsError(field="protocol", value=protocol, expected=expected)
    found = dict(PAPER_PROTOCOLS[protocol][spec.name])
    if method is None:
        return found
    if protocol in PLAIN_WEIGHTINGS and method.is_plain_mean:
        found["weighting"] = PLAIN_WEIGHTINGS[protocol]
    demanded = method_defaults(method, dataset).demanded
    return {name: value for name, value in found.items() if name not in demanded}


def _quick(dataset: DatasetRef) -> dict[str, Any]:
    """Return the quick protocol of a data set; one with masks is not treated as digits, even if it is grey."""
    spec = dataset_spec(dataset)
    family = next((one for one in (SEGMENTATION, "label_skew", "digits") if one in spec.families), "photographs")
    found = dict(QUICK_PROTOCOLS["own_photographs" if spec.described and family == "photographs" else family])
    if family == SEGMENTATION:
        own = dataset_protocol(dataset).protocol
        found |= {name: min(value, own.get(name) or value) for name, value in QUICK_MASKS[spec.dims].items()}
    return found


def drawn_sites(share: float, sources: int) -> int | None:
    """Return ``sites_per_round`` for a share of the sources in (0, 1], at least two; None, all of them, for one.

    >>> drawn_sites(0.4, 100), drawn_sites(1.0, 100)
    (40, None)
    """
    return None if share == 1 else max(min(2, sources), round(share * sources))


def allotted_sites(dataset: DatasetRef, target: str, settings: Settings) -> dict[str, int]:
    """Return the number of sites of each source domain of a job by name, as settings or data set say.

    With ``sites``, so many in all are allotted by the published numbers of the domains' images, of a data set without
    such numbers equally (FedIIR, Algorithm 2). Raises ``SettingsError`` for fewer sites than source domains.

    >>> allotted_sites("vlcs", "caltech101", {"sites": 50})
    {'labelme': 14, 'sun09': 18, 'voc2007': 18}
    """
    names = ("sites", "sites_per_domain", "max_samples_per_domain")
    given = {**dataset_protocol(dataset).protocol, **settings}
    protocol = make_protocol([{name: given[name] for name in names if name in given}])
    sources = [domain for domain in dataset_spec(dataset).domains if domain != target]
    if protocol.sites is None:
        return dict.fromkeys(sources, protocol.sites_per_domain)
    known = {domain: known_images(dataset, domain, certain=False) for domain in sources}
    most = protocol.max_samples_per_domain or LARGEST_DOMAIN
    sizes = {domain: min(images[0], most) if all(known.values()) else most for domain, images in known.items()}
    try:
        return allot_sites(sizes, protocol.sites)
    except ValueError as error:
        expected = f"from {len(sources)}, the source domains, to {sum(sizes.values())}, their images"
        raise SettingsError(field="sites", value=protocol.sites, expected=expected) from error


def domains_of_sites(dataset: DatasetRef, settings: Settings) -> dict[str, str]:
    """Return the domain of each site of a job by name, in the order of the domains; the held-out one has one site."""
    spec = dataset_spec(dataset)
    counts = allotted_sites(dataset, settings.get("target", spec.domains[0]), settings)
    partition = settings.get("partition", EQUAL)
    if min(counts.values()) == 1 and partition not in (EQUAL, MIX):
        expected = f"{EQUAL!r} where a site has a domain to itself (sites, sites_per_domain)"
        raise SettingsError(field="partition", value=partition, expected=expected)
    named = zip(spec.domains, spec.sites, strict=True)
    return {name: domain for domain, site in named for name in part_sites(site, counts.get(domain, 1))}
