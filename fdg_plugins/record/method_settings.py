# SPDX-License-Identifier: Apache-2.0
"""A run's method as its record tells it: name and label, its settings as plain values, and their defaults."""

import inspect
import json
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any

from fdg_plugins.aggregators import AGGREGATORS, WEIGHTINGS
from fdg_plugins.aggregators.weightings import PLAIN_WEIGHTINGS
from fdg_plugins.errors import SettingsError
from fdg_plugins.objectives import OBJECTIVES
from fdg_plugins.plugins.classes import parameters_of, read_spec
from fdg_plugins.plugins.composition import (
    BASE,
    Composition,
    find_method,
    parse_method,
    parts,
    published,
    title_of,
)
from fdg_plugins.plugins.method import Method as Published
from fdg_plugins.plugins.methods import METHODS
from fdg_plugins.record.round_record import Method
from fdg_plugins.record.run_record import RunRecord
from fdg_plugins.settings.defaults import method_defaults
from fdg_plugins.settings.protocol import Protocol

GAP_SPLIT = "gap_split"
# Settings of 0.2.0, with the values that remain.
_RETIRED = {"cancelled": "mean", "idle_below": 0.001, "variant": "paper", "norm": "norm", "generator_target": 0}.items()


def federated_name(method: Method) -> str:
    """Return the name of aggregator, weighting and objective together: ``fedomg``, ``fedomg+ga+dim``, ``fediir``.

    Compositions of FedAvg that were published under a name have that name. An aggregator that is not known here is
    named by its class, a weighting or objective by the name in the record: ``fedomg+root``. So a run of a plug-in that
    is not loaded never has the name of a published method.
    """
    aggregators = {one.aggregator.__name__: one.key for one in METHODS.loaded() if one.aggregator is not None}
    key = aggregators.get(method.aggregator)
    made = Composition(method.aggregator) if key is None else published()[key]
    name, _ = read_spec("weighting", method.settings.get("weighting", ""))
    known = (one.part_name for one in METHODS.loaded() if one.weighting is not None and name in one.names)
    weighting = next(known, None if name in {"", *PLAIN_WEIGHTINGS} else name)
    over, _ = read_spec("over", method.settings.get("over", BASE))
    made = replace(made, over=None if over == BASE else over, objective=read_spec("objective", method.objective)[0])
    return replace(made, weighting=weighting or made.weighting).name


def name_of_run(record: RunRecord) -> str:
    """Return method, data set, held-out domain and seed, safe for a file: ``fedomg-pacs-sketch-seed0``."""
    protocol = record.protocol
    parts = [federated_name(record.method), str(protocol.dataset), protocol.target, f"seed{protocol.seed}"]
    return re.sub(r"[^A-Za-z0-9_.+-]+", "_", "-".join([*parts, *(["STAND-IN"] if record.stand_in else [])]))


def method_label(record: RunRecord) -> str:
    """Return the display name of a federated method, with the settings that differ from its defaults."""
    own, default = method_settings(record), federated_defaults(record)
    name = federated_name(record.method)
    shown = sorted(own if default is None else differing([own, default]))
    words = ", ".join(f"{setting} {own[setting]}" for setting in shown)
    return (name if default is None else title_of(name)) + (f" ({words})" if words else "")


def method_settings(record: RunRecord) -> dict[str, Any]:
    """Return all settings of a run's method as plain values, including those of weighting and objective.

    A setting of the objective that shares its name with one of the aggregator or the protocol is called
    ``objective <name>``. Defaults of aggregator, weighting and objective are included, so neither specifying them
    explicitly nor a record from before a setting was added makes a difference.
    """
    aggregators = (AGGREGATORS[key] for key in AGGREGATORS)
    aggregator = next((each for each in aggregators if each.__name__ == record.method.aggregator), None)
    own = {name: value for name, value in record.method.settings.items() if (name, value) not in _RETIRED}
    settings = {**_defaults(aggregator), **own}
    if "weighting" in settings:
        name, own = read_spec("weighting", settings.pop("weighting"))
        settings |= {} if name in parts("weighting") else {"weighting": name}  # the method is named after it
        settings |= {**_defaults(WEIGHTINGS.get(name)), **own}
    objective, given = read_spec("objective", record.method.objective)
    taken = {*settings, *Protocol.model_fields}
    loaded = {name: OBJECTIVES[name] for name in OBJECTIVES}
    known = _defaults(loaded.get(objective))
    of_objective = known | {name: one for name, one in given.items() if name in known or (name, one) not in _RETIRED}
    settings |= {f"objective {name}" if name in taken else name: value for name, value in of_objective.items()}
    settings |= {name: getattr(record.protocol, name) for name in method_fields(record)}
    return {name: _plain(value) for name, value in sorted(settings.items())}


def federated_defaults(record: RunRecord) -> dict[str, Any] | None:
    """Return the settings of a run's method with the values that a job on the run's data set has by default.

    None for a method or a data set that is not at hand. Fields of the protocol, such as ``batch_norm``, have the run's
    values, since named protocols set them too; except ``gap_split``, which none does.
    """
    try:
        composition = parse_method(federated_name(record.method))
        defaults = method_defaults(composition, record.protocol.dataset)
    except SettingsError:
        return None
    server, weighting = dict(defaults.server), record.method.settings.get("weighting")
    if composition.weighting is not None and weighting is not None:
        server["weighting"] = {"name": read_spec("weighting", weighting)[0], **defaults.weighting}
    elif composition.weighting is not None:
        server |= defaults.weighting
    objective = {"name": read_spec("objective", record.method.objective)[0], **defaults.objective}
    method = record.method.model_copy(update={"settings": server, "objective": objective})
    found = method_settings(record.model_copy(update={"method": method}))
    found |= {GAP_SPLIT: defaults.protocol.get(GAP_SPLIT, Protocol.model_fields[GAP_SPLIT].default)}
    return {setting: found.get(setting, value) for setting, value in method_settings(record).items()}


def method_fields(record: RunRecord) -> list[str]:
    """Return the fields of a run's protocol that are settings of its method."""
    found = [find_method(part) for part in federated_name(record.method).split("+")]
    records = [one for one in found if one is not None]
    of_defaults = [name for one in records for entry in one.defaults for name in entry.protocol]
    return list(dict.fromkeys([*(name for one in records for name in protocol_settings(one)), *of_defaults]))


def protocol_settings(record: Published) -> tuple[str, ...]:
    """Return the fields of the protocol that only such methods read: the settings in a record that no class has."""
    own = {name for class_ in record.classes for name in parameters_of(class_)}
    return tuple(one.name for one in record.settings if one.name in Protocol.model_fields and one.name not in own)


def differing(settings: Sequence[Mapping[str, Any]], apart_from: Collection[str] = ()) -> set[str]:
    """Return the names of the settings that do not have the same value, or lack of one, in all of ``settings``."""
    names = {name for own in settings for name in own}.difference(apart_from)
    return {name for name in names if any(own.get(name) != settings[0].get(name) for own in settings)}


def _defaults(made: Callable[..., Any] | None) -> dict[str, Any]:
    parameters = {} if made is None else inspect.signature(made).parameters
    return {name: value.default for name, value in parameters.items() if value.default is not inspect.Signature.empty}


def _plain(value: Any) -> Any:
    return value if value is None or isinstance(value, str | int | float) else json.dumps(value, sort_keys=True)
