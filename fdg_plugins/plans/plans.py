# SPDX-License-Identifier: Apache-2.0
"""The plans of a run, made from the job's config and the server's environment."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from nvflare.apis.filter import Filter

from fdg_plugins.aggregators import UpdateAggregator
from fdg_plugins.aggregators.compatibility import check_fit
from fdg_plugins.data import DatasetSpec, dataset_spec
from fdg_plugins.data.presets import check_preset
from fdg_plugins.errors import SettingsError, shorten
from fdg_plugins.filters import ExchangeCheckFilter, GapCheckFilter, RoundedUpdateReceiveFilter
from fdg_plugins.messages import REPORT_GAP, TASK_PROBE, TASK_TRAIN
from fdg_plugins.models import NETWORKS
from fdg_plugins.objectives import OBJECTIVES, make_objective, objective_settings, read_settings
from fdg_plugins.settings.protocol import (
    PREFIX,
    Overrides,
    Protocol,
    check_unshared,
    environment_settings,
    make_protocol,
    part_settings,
)

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
    """Return the plans by the job's two settings objects and the ``FDG_*`` variables, which override both."""
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
    return Plan(protocol, {**layer.aggregator, **operator.aggregator})


def _check_fits(protocol: Protocol, spec: DatasetSpec) -> None:
    network, task, size = NETWORKS.get(protocol.model), protocol.learned, protocol.image_size
    by_image = task.one_class_per_image
    takes = network.channels in (None, spec.channels) and (spec.dims == 2 or "dims" in network.arguments)
    images = f"images of {spec.channels} channels and {spec.dims} dimensions"
    norms = " or ".join(map(repr, ("default", *(network.norms or ()))))
    scores = (task.score.name, *(kind.name for kind in task.summary_kinds))
    fits = {
        "target": (protocol.target in spec.domains, f"a domain of {spec.name}: {', '.join(spec.domains)}"),
        "task": (task.name == spec.task, f"{spec.task!r}, for which the images of {spec.name} are labelled"),
        "selected_by": (protocol.selected_by in ("", *scores), f"one of {', '.join(scores)}; ask for it in scores"),
        "partition": (by_image or protocol.partition not in BY_CLASS, "'equal' or 'iid': images have no class each"),
        "model": (
            takes and network.dense is task.by_pixel,
            f"a network that takes {images} and has one feature vector per {'pixel' if task.by_pixel else 'image'}",
        ),
        "image_size": (
            size >= network.smallest and size % network.multiple == 0,
            f"at least {network.smallest} and a multiple of {network.multiple} for model {protocol.model!r}",
        ),
        "normalization": (network.has_norm(protocol.normalization), f"{norms} for model {protocol.model!r}"),
    }
    for name, (is_met, expected) in fits.items():
        if not is_met:
            field = f"{name} ({PREFIX}{name.upper()})"
            raise SettingsError(field=field, value=getattr(protocol, name), expected=expected)


def check_settings(aggregator: UpdateAggregator, plans: Plans) -> None:
    """Raise ``SettingsError`` if either plan has settings that the aggregator refuses or incompatible parts."""
    for plan in plans:
        check_fit(plan.protocol, aggregator.configured(plan.aggregator))


def check_filters(
    plans: Plans, filters_of: Callable[[str], Sequence[Filter] | None], aggregator: UpdateAggregator
) -> None:
    """Raise ``SettingsError`` if the job's configs have other filters at the server than a plan needs.

    ``filters_of``: the server's filters for the results of a task; None, because FLARE does not tell, passes.
    """
    for plan in plans:
        objective = make_objective(plan.protocol.objective)
        reporting = filters_of(TASK_PROBE if objective.probes else TASK_TRAIN)
        of_updates, precision = filters_of(TASK_TRAIN), plan.protocol.update_precision
        checked = reporting is None or any(isinstance(one, ExchangeCheckFilter) for one in reporting)
        rounded = any(isinstance(one, RoundedUpdateReceiveFilter) for one in of_updates or ())
        by_gap = aggregator.configured(plan.aggregator).rule().shares == REPORT_GAP
        gaps = of_updates is None or any(isinstance(one, GapCheckFilter) for one in of_updates)
        fits = {
            "objective": (objective.name, objective.report is None or checked),
            "weighting": (REPORT_GAP, gaps or not by_gap),
            "update_precision": (precision, of_updates is None or rounded == (precision == "bfloat16")),
        }
        for name, (value, is_met) in fits.items():
            if not is_met:
                expected = "a job whose configs have the filters that it needs: one made with this setting (fdg export)"
                raise SettingsError(field=f"{name} ({PREFIX}{name.upper()})", value=value, expected=expected)
