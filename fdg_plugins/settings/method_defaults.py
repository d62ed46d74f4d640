# SPDX-License-Identifier: Apache-2.0
"""The single definition of a default: what a job runs unless told otherwise, from the records of its method's parts.

A setting that no record names takes the default of its class and is omitted from jobs.

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

from fdg_plugins.data.catalogue import dataset_spec
from fdg_plugins.plugins.composition import BASE, Composition
from fdg_plugins.plugins.method import Default, Method
from fdg_plugins.plugins.methods import METHODS
from fdg_plugins.plugins.own_dataset import DatasetRef
from fdg_plugins.settings.families import Settings


class MethodDefaults(NamedTuple):
    """Settings by the part of the job that owns them: aggregator, weighting, objective, and protocol.

    ``demanded``: the fields of ``protocol`` whose values are those of a method's paper or code, and no choice of ours.
    """

    server: Settings
    weighting: Settings
    objective: Settings
    protocol: Settings
    demanded: Collection[str] = ()


def method_defaults(method: Composition, dataset: DatasetRef) -> MethodDefaults:
    """Return the defaults of a method on a data set; raise ``SettingsError`` if it is not in the catalogue."""
    spec = dataset_spec(dataset)
    records = [METHODS.find(part) for part in (method.direction, method.objective, method.weighting)]
    parts = [
        [] if record is None else record.entries_on(*spec.families, spec.name, beside=_others(record, records))
        for record in records
    ]
    direction, objective, weighting = (reduce(or_, entries, Default()) for entries in parts)
    server = dict(direction.server)
    if method.direction == BASE:  # the plain mean, under which an objective's or a weighting's server settings apply
        server |= {**weighting.server, **objective.server}
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


def _others(record: Method, parts: Iterable[Method | None]) -> list[str]:
    return [other.key for other in parts if other is not None and other.key != record.key]
