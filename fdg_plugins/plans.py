# SPDX-License-Identifier: Apache-2.0
"""The plan of a run: protocol and settings from config and environment, and checks that a method's parts fit.

And the way there: from a method, a data set and flat settings to the contents of a job's config.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from nvflare.apis.filter import Filter

from fdg_plugins.aggregators import AGGREGATORS, WEIGHTINGS, UpdateAggregator, flat_names, make_aggregator
from fdg_plugins.aggregators.compatibility import check_fit
from fdg_plugins.aggregators.weightings import weighting_names
from fdg_plugins.data import DatasetSpec, dataset_spec
from fdg_plugins.data.presets import check_preset
from fdg_plugins.errors import SettingsError, check_choice, parsed_object, shorten
from fdg_plugins.filters import ExchangeCheckFilter, GapCheckFilter, RoundedUpdateReceiveFilter
from fdg_plugins.filters.gap import LOSS
from fdg_plugins.messages import REPORT_GAP, TASK_PROBE, TASK_TRAIN
from fdg_plugins.models import NETWORKS
from fdg_plugins.objectives import OBJECTIVES, Objective, make_objective, objective_settings, read_settings
from fdg_plugins.plugins.classes import name_in, parameters_of, read_spec
from fdg_plugins.plugins.composition import PLAIN, Composition, parse_method, parts
from fdg_plugins.plugins.own_dataset import DatasetRef, plain_dataset
from fdg_plugins.settings.defaults import dataset_protocol, method_defaults
from fdg_plugins.settings.protocol import (
    NAMING,
    PREFIX,
    Overrides,
    Protocol,
    check_unshared,
    environment_settings,
    make_protocol,
    part_settings,
)
from fdg_plugins.tasks import TASKS

METRIC = "metric"  # the metric of the gap: a setting of the sites' filter, for methods that need gaps
BY_CLASS = ("dirichlet", "shards")  # partitions by the classes of images


class Plan(NamedTuple):
    """A protocol, and the aggregation rule that goes with it."""

    protocol: Protocol
    aggregator: UpdateAggregator


class Plans(NamedTuple):
    """The plans for real data and for the stand-in; the census determines which one applies."""

    real: Plan
    stand_in: Plan


def make_plans(
    job: Mapping[str, Any],
    stand_in: Mapping[str, Any],
    environment: Mapping[str, str],
    aggregator: UpdateAggregator,
) -> Plans:
    """Return the plans by the job's two settings objects and the ``FDG_*`` variables, which override both.

    Raises ``SettingsError`` for settings that ``aggregator`` or anything else refuses, and for incompatible parts.
    """
    for name, value in (("protocol", job), ("stand_in_protocol", stand_in)):
        if not isinstance(value, Mapping):
            raise SettingsError(f"config of the job: {name} is {shorten(value)}, expected an object of settings.")
    objective = sorted({setting for name in OBJECTIVES for setting in objective_settings(name)})
    given = environment_settings(environment)
    names = flat_names(aggregator.settings(), given)
    base = part_settings(job, [], [], "config of the job, protocol").protocol
    drawn = part_settings(stand_in, names, objective, "config of the job, stand_in_protocol")
    operator = part_settings(given, names, objective, "environment, FDG_*")
    both = Overrides(*(before | after for before, after in zip(drawn, operator, strict=True)))
    return Plans(_plan(base, operator, aggregator), _plan(base, both, aggregator))


def _plan(base: Mapping[str, Any], changes: Overrides, aggregator: UpdateAggregator) -> Plan:
    protocol = make_protocol([base, changes.protocol])
    name = make_objective(protocol.objective).name
    check_unshared(changes.aggregator, objective_settings(name), "config of the job, or environment")
    objective = make_objective({**protocol.objective, **read_settings(name, changes.objective)}).settings()
    protocol = protocol.model_copy(update={"objective": objective})
    NETWORKS.get(protocol.model)
    spec = dataset_spec(protocol.dataset)
    check_preset(protocol.preset, spec)
    _check_fits(protocol, spec)
    rule = aggregator.configured(changes.aggregator)
    check_fit(protocol, rule)
    return Plan(protocol, rule)


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


class Uses(NamedTuple):
    """Pairs of setting and name, such as ``("model", "resnet18")``, and the plug-in files that the job brings."""

    names: list[tuple[str, str]]
    files: list[str]


def uses_of(aggregator: Any, protocols: Iterable[Any], environment: Mapping[str, str]) -> Uses:
    """Return the names in a job that plug-ins may bring; an invalid one is reported later, where it is used.

    ``aggregator`` is its aggregation rule, a name or an object; ``protocols`` are its settings objects for real data
    and for the stand-in, which the server's ``environment`` overrides.
    """
    layers = [layer for layer in (*protocols, environment_settings(environment)) if isinstance(layer, Mapping)]
    given = [make_protocol([{name: layer[name] for name in (*NAMING, "plugins") if name in layer}]) for layer in layers]
    # As text, a weighting may be an object in JSON, as for whatever takes it.
    weightings = [parsed_object(one.get("weighting")) for one in (aggregator, *layers) if isinstance(one, Mapping)]
    specs = [("aggregator", aggregator), *(("weighting", weighting) for weighting in weightings)]
    names = [(setting, name) for setting, spec in specs if (name := name_in(spec)) is not None]
    names += [use for protocol in given for use in protocol.uses]
    return Uses(list(dict.fromkeys(names)), list(dict.fromkeys(name for one in given for name in one.plugins)))


def check_filters(plans: Plans, filters_of: Callable[[str], Sequence[Filter] | None]) -> None:
    """Raise ``SettingsError`` if the job's configs have other filters at the server than a plan needs.

    ``filters_of``: the server's filters for the results of a task; None, because FLARE does not tell, passes.
    """
    for plan in plans:
        objective = make_objective(plan.protocol.objective)
        reporting = filters_of(TASK_PROBE if objective.probes else TASK_TRAIN)
        of_updates, precision = filters_of(TASK_TRAIN), plan.protocol.update_precision
        checked = reporting is None or any(isinstance(one, ExchangeCheckFilter) for one in reporting)
        rounded = any(isinstance(one, RoundedUpdateReceiveFilter) for one in of_updates or ())
        by_gap = plan.aggregator.rule().shares == REPORT_GAP
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


# --- the contents of a job ---


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


def settings_of(method: str) -> tuple[str, ...]:
    """Return the names of all flat settings that a recipe of ``method`` accepts in addition to its data set."""
    made, protocol = parse_method(method), [name for name in Protocol.model_fields if name != "dataset"]
    own = [*_server_names(made), *objective_settings(made.objective), *([METRIC] if _needs_gaps(made) else [])]
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
    plans = make_plans(protocol, stand_in, {}, aggregator)
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
        WEIGHTINGS.read(weighting, of_weighting)  # an unknown weighting or setting raises its own error
    if objective is not None:
        make_objective(objective)
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
