# SPDX-License-Identifier: Apache-2.0
"""From a method, a data set and flat settings to the contents of a job's config, with every name and value checked."""

from collections.abc import Mapping
from typing import Any, NamedTuple

from fdg_plugins.aggregators import (
    AGGREGATORS,
    WEIGHTINGS,
    UpdateAggregator,
    flat_names,
    make_aggregator,
    read_weighting,
    weighting_names,
)
from fdg_plugins.data import dataset_spec
from fdg_plugins.errors import SettingsError
from fdg_plugins.filters.gap import GapFilters, gap_filters
from fdg_plugins.messages import REPORT_GAP
from fdg_plugins.objectives import ERMObjective, Objective, make_objective, objective_settings, read_settings
from fdg_plugins.plans.plans import check_settings, make_plans
from fdg_plugins.plugins.composition import Composition, weighting_parts
from fdg_plugins.plugins.own_dataset import DatasetRef, plain_dataset
from fdg_plugins.settings.families import Settings, dataset_protocol
from fdg_plugins.settings.method_defaults import MethodDefaults, method_defaults
from fdg_plugins.settings.protocol import OTHER_VARIABLES, PREFIX, Overrides, Protocol, check_unshared, part_settings
from fdg_plugins.tasks import TASKS
from fdg_plugins.values import check_depth, check_settings_known, shorten

METRIC = "metric"  # the metric of the gap: a setting of the sites' filter, for methods that need gaps


class JobSettings(NamedTuple):
    """The contents of a job: the JSON values of its workflow's three objects, and the choices that select its filters.

    ``gap``: the filters of gaps, None if no gap is needed.
    """

    method: Composition
    aggregator_spec: dict[str, Any]
    protocol: dict[str, Any]
    stand_in: dict[str, Any]
    objective: Objective
    gap: GapFilters | None

    @property
    def gap_metric(self) -> str | None:
        """The metric whose difference sites report as the gap."""
        return None if self.gap is None else self.gap.report.metric


class _Named(NamedTuple):
    """A part given by name, or as an object with a name; empty if none was given."""

    name: str | None = None
    settings: Mapping[Any, Any] = {}


def setting_names(method: Composition) -> tuple[str, ...]:
    """Return the names of all flat settings that a recipe of ``method`` accepts in addition to its data set."""
    protocol = [name for name in Protocol.model_fields if name != "dataset"]
    own = [*_server_names(method), *objective_settings(method.objective), *([METRIC] if _needs_gaps(method) else [])]
    return tuple(dict.fromkeys([*protocol, *own]))


def job_settings(method: Composition, dataset: DatasetRef, given: Mapping[str, Any]) -> JobSettings:
    """Return the contents of a job: the values in ``given`` that are not None, else the defaults of the data set.

    ``given`` uses the flat names of the protocol, the aggregator, its weighting and the objective; a name that
    weighting and objective share is refused. ``weighting`` and ``objective`` are names or objects
    ``{"name": ..., <settings>}``; one whose place in the method is free becomes a part of the method. Given values also
    apply to the stand-in. Raises ``SettingsError``, in one sentence, for an invalid name or value.
    """
    chosen = {name: value for name, value in given.items() if value is not None}
    weighting = _named("weighting", chosen.pop("weighting", None))
    objective = _named("objective", chosen.pop("objective", None))
    method = _with_objective(_with_weighting(method, weighting), objective.name)
    metric = chosen.pop(METRIC, "loss") if _needs_gaps(method) else None
    parted = _part(method, chosen)
    defaults, domains = method_defaults(method, dataset), dataset_spec(dataset).domains
    server = {**_server_settings(method, defaults, weighting), **parted.aggregator}
    aggregator, spec = _aggregator(method, server)
    local, local_spec = _objective(method, {**defaults.objective, **objective.settings, **parted.objective})
    base = dataset_protocol(dataset)
    own = {**base.protocol, **defaults.protocol, **parted.protocol, **local_spec}
    protocol = {"dataset": plain_dataset(dataset), "target": domains[0], **own}
    open_names = {*Protocol.model_fields, *flat_names(aggregator.settings())} - chosen.keys()
    stand_in = {name: value for name, value in base.stand_in.items() if name in open_names}
    plans = make_plans(protocol, stand_in, {}, flat_names(aggregator.settings()))
    check_settings(aggregator, plans)
    checked = {**plans.real.protocol.model_dump(mode="json"), **local_spec}
    gap = None if metric is None else gap_filters(metric, TASKS.get(plans.real.protocol.task).score)
    return JobSettings(method, spec, {name: checked[name] for name in protocol}, stand_in, local, gap)


def _needs_gaps(method: Composition) -> bool:
    return method.weighting is not None and WEIGHTINGS[method.weighting].shares == REPORT_GAP


def _named(what: str, spec: Any) -> _Named:
    check_depth(what, spec)
    match spec:
        case None:
            return _Named()
        case str():
            return _Named(spec)
        case {"name": str(name), **settings}:
            return _Named(name, settings)
    raise SettingsError(f"{what} is {shorten(spec)}, expected a name or a mapping with a name.")


def _with_weighting(method: Composition, weighting: _Named) -> Composition:
    name = weighting.name
    if name is None:
        return method
    _check_weighting(method, name, weighting.settings)
    return method.plus(name) if name in weighting_parts() and method.weighting is None else method


def _check_weighting(method: Composition, name: str, settings: Mapping[str, Any]) -> None:
    if name not in WEIGHTINGS:
        raise SettingsError(f"weighting is {shorten(name)}, expected one of {', '.join(sorted(WEIGHTINGS))}.")
    check_settings_known(f"weighting {name!r}", sorted(map(str, settings)), weighting_names(name))
    if method.weighting not in (None, name):
        raise SettingsError(f"weighting is {name!r}, but that of method {method.name!r} is {method.weighting!r}.")


def _with_objective(method: Composition, name: str | None) -> Composition:
    if name is None or name == method.objective:
        return method
    make_objective(name)  # an unknown objective raises its own error
    if method.objective != ERMObjective.name:
        raise SettingsError(f"objective is {name!r}, but that of method {method.name!r} is {method.objective!r}.")
    return method.plus(name)


def _part(method: Composition, chosen: Mapping[str, Any]) -> Overrides:
    origin = f"recipe {method.name}"
    for variable in OTHER_VARIABLES:
        if (name := variable[len(PREFIX) :].lower()) in chosen:
            raise SettingsError(
                f"{origin}: {name} is a setting of a machine and of no job, expected in its environment as {variable}."
            )
    local = objective_settings(method.objective)
    parted = part_settings(chosen, _server_names(method), local, origin)
    check_unshared(parted.aggregator, local, origin)
    return parted


def _server_names(method: Composition) -> list[str]:
    """Return the names of the settings of the aggregator, and of the weighting that is part of the method."""
    names = AGGREGATORS[method.aggregator].setting_names()
    if method.weighting is None:
        return names
    return list(dict.fromkeys([*(name for name in names if name != "weighting"), *weighting_names(method.weighting)]))


def _server_settings(method: Composition, defaults: MethodDefaults, weighting: _Named) -> Settings:
    """Return the flat settings of aggregator and weighting that are given with the weighting or have a default."""
    settings = dict(defaults.server)
    if method.weighting is not None:
        settings.pop("weighting", None)
        settings |= {**defaults.weighting, **weighting.settings}
    elif weighting.name is not None:
        settings["weighting"] = weighting.name
    return settings


def _aggregator(method: Composition, settings: dict[str, Any]) -> tuple[UpdateAggregator, dict[str, Any]]:
    """Return the aggregator with ``settings``, and its object in the job, which contains only those settings."""
    if method.weighting is not None and method.aggregator == method.direction:  # the weighting itself is a setting
        own = {name: settings.pop(name) for name in weighting_names(method.weighting) if name in settings}
        settings["weighting"] = {"name": method.weighting, **read_weighting(method.weighting, own)}
    aggregator = make_aggregator(method.aggregator)
    aggregator.configure(settings)
    checked = aggregator.settings()
    return aggregator, {"name": method.aggregator, **{name: checked[name] for name in settings}}


def _objective(method: Composition, settings: Settings) -> tuple[Objective, dict[str, dict[str, Any]]]:
    """Return the objective, and its entry in the protocol (``objective``); no entry if the objective is plain."""
    spec = {"name": method.objective, **read_settings(method.objective, settings)}
    return make_objective(spec), {"objective": spec} if method.objective != ERMObjective.name else {}
