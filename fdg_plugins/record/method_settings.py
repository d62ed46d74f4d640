# SPDX-License-Identifier: Apache-2.0
"""The settings of a run's method as plain values, those that a job has by default, and the method's label."""

import inspect
import json
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import MISSING, fields
from typing import Any

from fdg_plugins.aggregators import AGGREGATORS, WEIGHTINGS
from fdg_plugins.errors import SettingsError
from fdg_plugins.objectives import OBJECTIVES
from fdg_plugins.plugins.composition import find_method, parse_method, title_of, weighting_parts
from fdg_plugins.record.names import federated_name, named_part
from fdg_plugins.record.run_record import RunRecord
from fdg_plugins.settings.method_defaults import method_defaults
from fdg_plugins.settings.protocol import Protocol

GAP_SPLIT = "gap_split"
_RETIRED = {"cancelled": "mean", "idle_below": 0.001}.items()  # settings of 0.2.0, with the values that remain


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
    own = {name: value for name, value in record.method.settings.items() if (name, value) not in _RETIRED}
    settings = {**_aggregator_defaults(record.method.aggregator), **own}
    if "weighting" in settings:
        settings |= _weighting_settings(settings.pop("weighting"))
    objective, given = named_part(record.method.objective)
    taken = {*settings, *Protocol.model_fields}
    of_objective = {**_objective_defaults(objective), **given}.items()
    settings |= {f"objective {name}" if name in taken else name: value for name, value in of_objective}
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
    if composition.weighting is not None:
        server |= defaults.weighting if weighting is None else {"weighting": _with(weighting, defaults.weighting)}
    made = {"settings": server, "objective": _with(record.method.objective, defaults.objective)}
    found = method_settings(record.model_copy(update={"method": record.method.model_copy(update=made)}))
    found |= {GAP_SPLIT: defaults.protocol.get(GAP_SPLIT, Protocol.model_fields[GAP_SPLIT].default)}
    return {setting: found.get(setting, value) for setting, value in method_settings(record).items()}


def _with(part: Any, settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return a part, given as in :func:`named_part`, with other ``settings``."""
    return {"name": named_part(part)[0], **settings}


def method_fields(record: RunRecord) -> list[str]:
    """Return the fields of a run's protocol that are settings of its method."""
    found = [find_method(part) for part in federated_name(record.method).split("+")]
    return list(dict.fromkeys(name for one in found if one is not None for name in one.protocol_fields))


def differing(settings: Sequence[Mapping[str, Any]], apart_from: Collection[str] = ()) -> set[str]:
    """Return the names of the settings that do not have the same value, or lack of one, in all of ``settings``."""
    names = {name for own in settings for name in own}.difference(apart_from)
    return {name for name in names if any(own.get(name) != settings[0].get(name) for own in settings)}


def _weighting_settings(spec: Any) -> dict[str, Any]:
    """Return a weighting's settings, and its name unless the method is named after it."""
    name, own = named_part(spec)
    rule = {} if name in weighting_parts() else {"weighting": name}
    return {**rule, **_weighting_defaults(name), **own}


def _aggregator_defaults(name: str) -> dict[str, Any]:
    """Return the defaults of the aggregator whose class has that name; none if this package does not know it."""
    known = (AGGREGATORS[key] for key in AGGREGATORS)
    return next((_defaults(each) for each in known if each.__name__ == name), {})


def _weighting_defaults(name: str) -> dict[str, Any]:
    return _defaults(WEIGHTINGS[name]) if name in WEIGHTINGS else {}


def _objective_defaults(name: str) -> dict[str, Any]:
    """Return the defaults of the objective of that name; none if it is not at hand or cannot be loaded."""
    try:
        known = fields(OBJECTIVES[name])
    except (KeyError, SettingsError):
        return {}
    return {field.name: field.default for field in known if field.default is not MISSING}


def _defaults(made: Callable[..., Any]) -> dict[str, Any]:
    """Return the default of each argument that has one."""
    parameters = inspect.signature(made).parameters
    return {name: value.default for name, value in parameters.items() if value.default is not inspect.Signature.empty}


def _plain(value: Any) -> Any:
    """Return a value that can be compared and hashed; lists and objects become their JSON."""
    return value if value is None or isinstance(value, str | int | float) else json.dumps(value, sort_keys=True)
