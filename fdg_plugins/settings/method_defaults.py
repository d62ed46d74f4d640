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

from collections.abc import Iterable
from typing import NamedTuple

from fdg_plugins.data.catalogue import dataset_spec
from fdg_plugins.plugins.composition import BASE, Composition
from fdg_plugins.plugins.method import Default, Method
from fdg_plugins.plugins.methods import METHODS
from fdg_plugins.plugins.own_dataset import DatasetRef
from fdg_plugins.settings.families import Settings


class MethodDefaults(NamedTuple):
    """Settings by the part of the job that owns them: aggregator, weighting, objective, and protocol."""

    server: Settings
    weighting: Settings
    objective: Settings
    protocol: Settings


def method_defaults(method: Composition, dataset: DatasetRef) -> MethodDefaults:
    """Return the defaults of a method on a data set; raise ``SettingsError`` if it is not in the catalogue."""
    spec = dataset_spec(dataset)
    records = [METHODS.find(part) for part in (method.direction, method.objective, method.weighting)]
    direction, objective, weighting = (
        Default() if record is None else record.defaults_on(*spec.families, spec.name, beside=_others(record, records))
        for record in records
    )
    server = dict(direction.server)
    if method.direction == BASE:  # the plain mean, under which an objective's or a weighting's server settings apply
        server |= {**weighting.server, **objective.server}
    protocol = {**direction.protocol, **objective.protocol, **weighting.protocol}
    return MethodDefaults(server, weighting.weighting, objective.objective, protocol)


def _others(record: Method, parts: Iterable[Method | None]) -> list[str]:
    return [other.key for other in parts if other is not None and other.key != record.key]
