# SPDX-License-Identifier: Apache-2.0
"""From the job's config and the server's environment to the settings of a run, and its first record."""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from importlib.metadata import version
from typing import Any, NamedTuple

from nvflare.apis.filter import Filter

from fdg_plugins.aggregators import UpdateAggregator
from fdg_plugins.controllers.census import Federation
from fdg_plugins.controllers.record import InitialWeights, Method, RunRecord
from fdg_plugins.data import dataset_spec
from fdg_plugins.errors import SettingsError
from fdg_plugins.filters import RoundedUpdateReceiveFilter
from fdg_plugins.messages import REPORT_LOCAL_MODEL, shorten
from fdg_plugins.methods import OBJECTIVES, Objective, make_objective, objective_settings, read_settings
from fdg_plugins.models import check_model_name, input_channels
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
    for name, value in (("protocol", job), ("stand_in_protocol", stand_in)):
        if not isinstance(value, Mapping):
            raise SettingsError(f"config of the job: {name} is {shorten(value)}, expected an object of settings.")
    objective = sorted({setting for name in OBJECTIVES for setting in objective_settings(name)})
    base = part_settings(job, [], [], "config of the job, protocol")
    drawn = part_settings(stand_in, aggregator_settings, objective, "config of the job, stand_in_protocol")
    operator = part_settings(environment_settings(environment), aggregator_settings, objective, "environment, FDG_*")
    return Plans(*(_plan(base, layer, operator) for layer in (Overrides({}, {}, {}), drawn)))


def _plan(base: Overrides, layer: Overrides, operator: Overrides) -> Plan:
    protocol = make_protocol([base.protocol, layer.protocol, operator.protocol])
    protocol = _with_objective(protocol, {**layer.objective, **operator.objective})
    check_model_name(protocol.model)
    spec = dataset_spec(protocol.dataset)
    if protocol.target not in spec.domains:
        raise SettingsError(
            f"target (FDG_TARGET) is {protocol.target!r}, expected a domain of {spec.name}: {', '.join(spec.domains)}."
        )
    if input_channels(protocol.model) != spec.channels:
        raise SettingsError(
            f"model (FDG_MODEL) is {protocol.model!r}, which takes {input_channels(protocol.model)} channels, "
            f"but the images of {spec.name} have {spec.channels}."
        )
    return Plan(protocol, {**layer.aggregator, **operator.aggregator})


def _with_objective(protocol: Protocol, settings: Mapping[str, Any]) -> Protocol:
    """Return the protocol whose objective has all of its settings, those of ``settings`` in place of its own."""
    name = make_objective(protocol.objective).name
    for setting in settings:
        if setting not in objective_settings(name):
            known = ", ".join(objective_settings(name)) or "none"
            raise SettingsError(f"objective {name!r} has no setting {setting!r}; it has {known}.")
    objective = make_objective({**protocol.objective, **read_settings(name, settings)})
    return protocol.model_copy(update={"objective": objective.settings()})


def check_settings(aggregator: UpdateAggregator, plans: Plans) -> None:
    """Raise ``SettingsError`` for a value that the aggregator refuses, in either plan; its settings stay."""
    in_force = aggregator.settings()
    for plan in plans:
        aggregator.configure(plan.aggregator)
        _check_composition(plan.protocol, aggregator)
        aggregator.configure(in_force)


def _check_composition(protocol: Protocol, aggregator: UpdateAggregator) -> None:
    """Raise ``SettingsError`` for parts of a method that contradict each other, with the reason."""
    objective = make_objective(protocol.objective)
    if objective.name in aggregator.excludes:
        raise SettingsError(
            f"objective {objective.name!r} does not go with aggregator {type(aggregator).__name__}: "
            f"{aggregator.excludes[objective.name]}."
        )
    if objective.plain_sgd and protocol.momentum:
        raise SettingsError(
            f"momentum (FDG_MOMENTUM) is {protocol.momentum:g}, expected 0: objective {objective.name!r} is defined "
            "for plain SGD."
        )
    if protocol.enable_tensor_disk_offload:
        _check_offload(objective, aggregator)
    if aggregator.needs_training_loss and protocol.gap_split != "train":
        raise SettingsError(
            f"gap_split (FDG_GAP_SPLIT) is {protocol.gap_split!r}, expected 'train': the weighting follows from the "
            "loss on the training split."
        )


def _check_offload(objective: Objective, aggregator: UpdateAggregator) -> None:
    """Raise ``SettingsError`` for parts of a method that have whole updates of all sites in memory."""
    setting = "enable_tensor_disk_offload (FDG_ENABLE_TENSOR_DISK_OFFLOAD) is true, expected false:"
    if not aggregator.reads_parts:
        raise SettingsError(f"{setting} aggregator {type(aggregator).__name__} reads updates in memory only.")
    if objective.reports_parameters:
        raise SettingsError(
            f"{setting} objective {objective.name!r} keeps a number for each parameter and site in memory."
        )


def check_update_filters(plans: Plans, filters: Sequence[Filter] | None) -> None:
    """Raise ``SettingsError`` if a plan and the job's filters for updates at the server contradict each other.

    ``filters`` is None where FLARE does not say which they are; nothing is checked then.
    """
    if filters is None:
        return
    rounded = any(isinstance(one, RoundedUpdateReceiveFilter) for one in filters)
    for plan in plans:
        precision = plan.protocol.update_precision
        if rounded != (precision == "bfloat16"):
            raise SettingsError(
                f"update_precision (FDG_UPDATE_PRECISION) is {precision!r}, but the job's configs have "
                f"{'the' if rounded else 'no'} filters that round updates to bfloat16: expected a job that was made "
                "with this setting."
            )


def needed_reports(protocol: Protocol, aggregator: UpdateAggregator) -> dict[str, str]:
    """Return what the sites must report beside their updates, and which part of the method needs it."""
    objective = make_objective(protocol.objective)
    needed = {objective.report: f"objective {objective.name!r}"} if objective.report else {}
    if aggregator.shares is not None:
        needed[aggregator.shares] = "the weighting"
    if protocol.keep_local_models:
        needed[REPORT_LOCAL_MODEL] = "keep_local_models"
    return needed


def new_record(federation: Federation, protocol: Protocol, method: Method, weights: InitialWeights) -> RunRecord:
    """Return the record of a run that is about to start."""
    title = dataset_spec(protocol.dataset).title
    return RunRecord(
        stand_in=federation.stand_in,
        data=f"STAND-IN for {title}" if federation.stand_in else title,
        started=datetime.now(UTC).isoformat(timespec="seconds"),
        protocol=protocol,
        method=method,
        initial_weights=weights,
        versions={name: version(name) for name in PACKAGES},
        classes=federation.classes,
        sources=federation.sources,
        held_out=federation.held_out,
        census=federation.replies,
    )


def method_in_force(protocol: Protocol, aggregator: UpdateAggregator) -> Method:
    """Return what a record says of the method: aggregator with its settings, and objective."""
    return Method(aggregator=type(aggregator).__name__, settings=aggregator.settings(), objective=protocol.objective)
