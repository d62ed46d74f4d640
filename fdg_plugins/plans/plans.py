# SPDX-License-Identifier: Apache-2.0
"""The plans of a run, made from the job's config and the server's environment."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from nvflare.apis.filter import Filter

from fdg_plugins.aggregators import UpdateAggregator, check_fit
from fdg_plugins.data import DatasetSpec, check_preset, dataset_spec
from fdg_plugins.errors import SettingsError, shorten
from fdg_plugins.filters import ExchangeCheckFilter, RoundedUpdateReceiveFilter
from fdg_plugins.messages import TASK_PROBE, TASK_TRAIN
from fdg_plugins.models import NETWORKS
from fdg_plugins.objectives import OBJECTIVES, make_objective, objective_settings, read_settings
from fdg_plugins.settings.protocol import (
    Overrides,
    Protocol,
    check_unshared,
    environment_settings,
    make_protocol,
    part_settings,
)
from fdg_plugins.tasks import TASKS

BY_CLASS = ("dirichlet", "shards")  # partitions by the classes of images


class Plan(NamedTuple):
    """A protocol, and the aggregator settings that override the job's."""

    protocol: Protocol
    aggregator: dict[str, Any]


class Plans(NamedTuple):
    """The plans for real data and for the stand-in; the census determines which one applies."""

    real: Plan
    stand_in: Plan


def make_plans(
    job: Mapping[str, Any],
    stand_in: Mapping[str, Any],
    environment: Mapping[str, str],
    aggregator_settings: list[str],
) -> Plans:
    """Return the plans given by the job's two settings objects and the ``FDG_*`` variables, which override both.

    Raises ``SettingsError`` for a setting that is unknown, out of range or inconsistent with the data set.
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
    name = make_objective(protocol.objective).name
    for part in (layer, operator):
        check_unshared(part.aggregator, objective_settings(name), "config of the job, or environment")
    overridden = read_settings(name, {**layer.objective, **operator.objective})
    objective = make_objective({**protocol.objective, **overridden}).settings()
    protocol = protocol.model_copy(update={"objective": objective})
    NETWORKS.get(protocol.model)
    spec = dataset_spec(protocol.dataset)
    check_preset(protocol.preset, spec)
    _check_fits(protocol, spec)
    _check_network(protocol, spec)
    return Plan(protocol, {**layer.aggregator, **operator.aggregator})


def _check_fits(protocol: Protocol, spec: DatasetSpec) -> None:
    """Raise ``SettingsError`` if the target, the task or the partition is not one of the data set's."""
    if protocol.target not in spec.domains:
        raise SettingsError(
            f"target (FDG_TARGET) is {protocol.target!r}, expected a domain of {spec.name}: {', '.join(spec.domains)}."
        )
    task = TASKS.get(protocol.task)
    if task.name != spec.task:
        raise SettingsError(
            f"task (FDG_TASK) is {protocol.task!r}, but the images of {spec.name} are labelled for {spec.task!r}."
        )
    if protocol.partition in BY_CLASS and not task.one_class_per_image:
        raise SettingsError(
            f"partition (FDG_PARTITION) is {protocol.partition!r}, expected 'equal' or 'iid' for the task "
            f"{protocol.task!r}, whose images have no class each."
        )


def _check_network(protocol: Protocol, spec: DatasetSpec) -> None:
    """Raise ``SettingsError`` if the network does not fit the data set's images, the task or the protocol."""
    network, task = NETWORKS.get(protocol.model), TASKS.get(protocol.task)
    model = f"model (FDG_MODEL) is {protocol.model!r}, which"
    if network.channels not in (None, spec.channels):
        raise SettingsError(
            f"{model} takes {network.channels} channels, but the images of {spec.name} have {spec.channels}."
        )
    if spec.dims != 2 and "dims" not in network.arguments:
        raise SettingsError(f"{model} takes images, but those of {spec.name} have {spec.dims} dimensions.")
    if network.dense is task.one_class_per_image:
        one, other = ("pixel", "image") if network.dense else ("image", "pixel")
        raise SettingsError(f"{model} has one feature vector per {one}, but task {task.name!r} needs one per {other}.")
    size, least, factor = protocol.image_size, network.smallest, network.multiple
    if size < least or size % factor:
        wanted = f"at least {least}" if size < least else f"a multiple of {factor}"
        raise SettingsError(
            field="image_size (FDG_IMAGE_SIZE)", value=size, expected=f"{wanted} for model {protocol.model!r}"
        )
    if not network.has_norm(norm := protocol.normalization):
        known = " or ".join(map(repr, ("default", *(network.norms or ()))))
        raise SettingsError(
            f"normalization (FDG_NORMALIZATION) is {norm!r}, expected {known}: model {protocol.model!r} has no other."
        )


def check_settings(aggregator: UpdateAggregator, plans: Plans) -> None:
    """Raise ``SettingsError`` if either plan has settings that the aggregator refuses or incompatible parts."""
    for plan in plans:
        check_fit(plan.protocol, aggregator.configured(plan.aggregator))


def check_filters(plans: Plans, filters_of: Callable[[str], Sequence[Filter] | None]) -> None:
    """Raise ``SettingsError`` if the job's configs have other filters at the server than a plan needs.

    ``filters_of``: the server's filters for the results of a task; if it returns None, because FLARE does not tell,
    nothing is checked.
    """
    for plan in plans:
        objective = make_objective(plan.protocol.objective)
        reporting = filters_of(TASK_PROBE if objective.probes else TASK_TRAIN)
        checked = reporting is None or any(isinstance(one, ExchangeCheckFilter) for one in reporting)
        if objective.report is not None and not checked:
            raise SettingsError(
                f"objective (FDG_OBJECTIVE) is {objective.name!r}, but the job's configs have no ExchangeCheckFilter "
                "for its reports: expected a job that was made for this objective (fdg export)."
            )
        of_updates, precision = filters_of(TASK_TRAIN), plan.protocol.update_precision
        rounded = any(isinstance(one, RoundedUpdateReceiveFilter) for one in of_updates or ())
        if of_updates is not None and rounded != (precision == "bfloat16"):
            raise SettingsError(
                f"update_precision (FDG_UPDATE_PRECISION) is {precision!r}, but the job's configs have filters for "
                "another: expected a job that was made with this setting (fdg export)."
            )
