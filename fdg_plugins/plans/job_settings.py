# SPDX-License-Identifier: Apache-2.0
"""From a method, a data set and flat settings to the contents of a job's config, with every name and value checked."""

from collections.abc import Mapping
from typing import Any, NamedTuple

from fdg_plugins.aggregators import AGGREGATORS, WEIGHTINGS, UpdateAggregator, flat_names, make_aggregator
from fdg_plugins.aggregators.weightings import weighting_names
from fdg_plugins.data import dataset_spec
from fdg_plugins.errors import SettingsError, check_choice, check_settings_known
from fdg_plugins.filters.gap import LOSS
from fdg_plugins.messages import REPORT_GAP
from fdg_plugins.objectives import Objective, make_objective, objective_settings, read_settings
from fdg_plugins.plans.plans import Plans, check_settings, make_plans
from fdg_plugins.plugins.classes import parameters_of, read_spec
from fdg_plugins.plugins.composition import PLAIN, Composition, parse_method, parts
from fdg_plugins.plugins.own_dataset import DatasetRef, plain_dataset
from fdg_plugins.settings.defaults import dataset_protocol, method_defaults
from fdg_plugins.settings.protocol import Protocol, check_unshared, part_settings
from fdg_plugins.tasks import TASKS

METRIC = "metric"  # the metric of the gap: a setting of the sites' filter, for methods that need gaps


class JobSettings(NamedTuple):
    """The contents of a job: the JSON values of its workflow's three objects, and the choices that select its filters.

    ``gap_metric``: the metric whose difference sites report as the gap, None if no gap is needed.
    """

    method: Composition
    aggregator_spec: dict[str, Any]
    protocol: dict[str, Any]
    stand_in: dict[str, Any]
    objective: Objective
    gap_metric: str | None
    plans: Plans


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
    named = {what: read_spec(what, chosen.pop(what)) for what in ("weighting", "objective") if what in chosen}
    weighting, of_weighting = named.get("weighting", (None, {}))
    objective, of_objective = named.get("objective", (None, {}))
    method = _with_parts(method, weighting, of_weighting, objective)
    metric = chosen.pop(METRIC, LOSS) if _needs_gaps(method) else None
    names = objective_settings(method.objective)
    parted = part_settings(chosen, _server_names(method), names, f"recipe {method.name}")
    check_unshared(parted.aggregator, names, f"recipe {method.name}")
    defaults, base = method_defaults(method, dataset), dataset_protocol(dataset)
    server = dict(defaults.server)
    if method.weighting is not None:
        server = {**server, **defaults.weighting, **of_weighting}
        server.pop("weighting", None)
    elif weighting is not None:
        server["weighting"] = weighting
    aggregator, spec = _aggregator(method, {**server, **parted.aggregator})
    settings = read_settings(method.objective, {**defaults.objective, **of_objective, **parted.objective})
    local = make_objective({"name": method.objective, **settings})
    local_spec = {"objective": {"name": method.objective, **settings}} if method.objective != PLAIN else {}
    own = {**base.protocol, **defaults.protocol, **parted.protocol, **local_spec}
    protocol = {"dataset": plain_dataset(dataset), "target": dataset_spec(dataset).domains[0], **own}
    open_names = {*Protocol.model_fields, *flat_names(aggregator.settings())} - chosen.keys()
    stand_in = {name: value for name, value in base.stand_in.items() if name in open_names}
    plans = make_plans(protocol, stand_in, {}, flat_names(aggregator.settings()))
    check_settings(aggregator, plans)
    checked = {**plans.real.protocol.model_dump(mode="json"), **local_spec}
    if metric is not None:
        check_choice(METRIC, metric, (LOSS, TASKS.get(plans.real.protocol.task).score.name))
    return JobSettings(method, spec, {name: checked[name] for name in protocol}, stand_in, local, metric, plans)


def _needs_gaps(method: Composition) -> bool:
    return method.weighting is not None and WEIGHTINGS[method.weighting].shares == REPORT_GAP


def _with_parts(
    method: Composition, weighting: str | None, of_weighting: Mapping[str, Any], objective: str | None
) -> Composition:
    if weighting is not None:
        WEIGHTINGS.known(weighting)
        check_settings_known(f"weighting {weighting!r}", sorted(of_weighting), weighting_names(weighting))
    if objective is not None:
        make_objective(objective)  # an unknown objective raises its own error
    own = {"weighting": (weighting, method.weighting, None), "objective": (objective, method.objective, PLAIN)}
    for what, (name, of_method, free) in own.items():
        if name is not None and of_method not in (free, name):
            expected = f"{of_method!r}, which method {method.name!r} has"
            raise SettingsError(field=what, value=name, expected=expected)
    if weighting in parts("weighting") and method.weighting is None:
        method = parse_method(f"{method.name}+{weighting}")
    return method if objective in (None, method.objective) else parse_method(f"{method.name}+{objective}")


def _server_names(method: Composition) -> list[str]:
    names = parameters_of(AGGREGATORS[method.aggregator])
    if method.weighting is None:
        return names
    return list(dict.fromkeys([*(name for name in names if name != "weighting"), *weighting_names(method.weighting)]))


def _aggregator(method: Composition, settings: dict[str, Any]) -> tuple[UpdateAggregator, dict[str, Any]]:
    if method.weighting is not None and method.aggregator == method.direction:  # the weighting itself is a setting
        own = {name: settings.pop(name) for name in weighting_names(method.weighting) if name in settings}
        settings["weighting"] = {"name": method.weighting, **WEIGHTINGS.read(method.weighting, own)}
    aggregator = make_aggregator(method.aggregator).configured(settings)
    checked = aggregator.settings()
    return aggregator, {"name": method.aggregator, **{name: checked[name] for name in settings}}
