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
from typing import NamedTuple, Protocol

from fdg_plugins.data.catalogue import dataset_spec
from fdg_plugins.plugins.method import Default, Method
from fdg_plugins.plugins.methods import METHODS
from fdg_plugins.settings.families import Settings

PLAIN_MEAN = "fedavg"  # the direction under which the server settings of an objective or a weighting apply


class MadeOf(Protocol):
    """The parts of a method, by name: see ``fdg_plugins.plugins.composition``."""

    @property
    def direction(self) -> str:
        """The aggregator that computes the step."""

    @property
    def weighting(self) -> str | None:
        """The weighting that learns, if there is one."""

    @property
    def objective(self) -> str:
        """The local objective."""


class MethodDefaults(NamedTuple):
    """Settings by the part of the job that owns them: aggregator, weighting, objective, and protocol."""

    server: Settings
    weighting: Settings
    objective: Settings
    protocol: Settings


def method_defaults(method: MadeOf, dataset: str) -> MethodDefaults:
    """Return the defaults of a method on a data set; raise ``SettingsError`` if it is not in the catalogue."""
    spec = dataset_spec(dataset)
    records = [METHODS.find(part) for part in (method.direction, method.objective, method.weighting)]
    direction, objective, weighting = (
        Default() if record is None else record.defaults_on(*spec.families, spec.name, beside=_others(record, records))
        for record in records
    )
    server = dict(direction.server)
    if method.direction == PLAIN_MEAN:
        server |= {**weighting.server, **objective.server}
    protocol = {**direction.protocol, **objective.protocol, **weighting.protocol}
    return MethodDefaults(server, weighting.weighting, objective.objective, protocol)


def _others(record: Method, parts: Iterable[Method | None]) -> list[str]:
    return [other.key for other in parts if other is not None and other.key != record.key]
