# SPDX-License-Identifier: Apache-2.0
"""From the job's config and the server's environment to the settings of a run, and its first record."""

from collections.abc import Mapping
from datetime import UTC, datetime
from importlib.metadata import version
from typing import Any, NamedTuple

from fdg_plugins.aggregators import UpdateAggregator
from fdg_plugins.controllers.census import Federation
from fdg_plugins.controllers.record import InitialWeights, Method, RunRecord
from fdg_plugins.data import dataset_spec
from fdg_plugins.errors import SettingsError
from fdg_plugins.models import check_model_name
from fdg_plugins.protocol import Overrides, Protocol, environment_settings, make_protocol, part_settings

PACKAGES = ("fdg-plugins", "nvflare", "torch", "torchvision", "numpy", "cvxpy", "clarabel")


class Plan(NamedTuple):
    """A protocol, and the settings of the aggregator that go with it."""

    protocol: Protocol
    aggregator: dict[str, Any]


class Plans(NamedTuple):
    """What the run will be on real data and on the stand-in; the census tells which."""

    real: Plan
    stand_in: Plan


def make_plans(
    job: Mapping[str, Any],
    stand_in: Mapping[str, Any],
    environment: Mapping[str, str],
    aggregator_settings: list[str],
) -> Plans:
    """Return the plans from the job's two objects of settings and the ``FDG_*`` variables, which win over both.

    Raises ``SettingsError`` for a setting that does not exist, is out of range, or names an unknown domain.
    """
    base = part_settings(job, [], "config of the job, protocol")
    drawn = part_settings(stand_in, aggregator_settings, "config of the job, stand_in_protocol")
    operator = part_settings(environment_settings(environment), aggregator_settings, "environment, FDG_*")
    return Plans(*(_plan(base, layer, operator) for layer in (Overrides({}, {}), drawn)))


def _plan(base: Overrides, layer: Overrides, operator: Overrides) -> Plan:
    protocol = make_protocol([base.protocol, layer.protocol, operator.protocol])
    check_model_name(protocol.model)
    spec = dataset_spec(protocol.dataset)
    if protocol.target not in spec.domains:
        raise SettingsError(
            f"target (FDG_TARGET) is {protocol.target!r}, expected a domain of {spec.name}: {', '.join(spec.domains)}."
        )
    return Plan(protocol, {**layer.aggregator, **operator.aggregator})


def new_record(
    federation: Federation, protocol: Protocol, aggregator: UpdateAggregator, weights: InitialWeights
) -> RunRecord:
    """Return the record of a run that is about to start."""
    title = dataset_spec(protocol.dataset).title
    return RunRecord(
        stand_in=federation.stand_in,
        data=f"STAND-IN for {title}" if federation.stand_in else title,
        started=datetime.now(UTC).isoformat(timespec="seconds"),
        protocol=protocol,
        method=Method(aggregator=type(aggregator).__name__, settings=aggregator.settings()),
        initial_weights=weights,
        versions={name: version(name) for name in PACKAGES},
        classes=federation.classes,
        sources=federation.sources,
        held_out=federation.held_out,
        census=federation.replies,
    )
