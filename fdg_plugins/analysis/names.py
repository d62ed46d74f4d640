# SPDX-License-Identifier: Apache-2.0
"""What a method is called in tables and figures: one name for one method, however its job spelt it."""

import inspect
import json
from typing import Any

from fdg_plugins.aggregators import AGGREGATORS, WEIGHTINGS
from fdg_plugins.controllers.record import Method, RunRecord
from fdg_plugins.protocol import Protocol

# These weigh, but are no method of their own: they stay a setting of the method.
_PLAIN_WEIGHTINGS = ("uniform", "samples")
_PLAIN_OBJECTIVE = "erm"
_PUBLISHED_AS = {("fedavg", "ga"): "fedga", ("fedavg", "dim"): "feddim", ("fedavg", "iir"): "fediir"}
_TITLES = {
    "fedavg": "FedAvg",
    "fedga": "FedDG-GA",
    "feddim": "FedDIM",
    "fediir": "FedIIR",
    "fedomg": "FedOMG",
    "ga": "GA",
    "dim": "DIM",
    "iir": "IIR",
}


def method_name(method: Method) -> str:
    """Return the name of aggregator, weighting and objective together: ``fedomg``, ``fedomg+ga+dim``, ``fediir``.

    FedAvg's compositions that were published under a name have that one. An aggregator that this package does not
    know goes by the name of its class.
    """
    known = {aggregator.__name__: name for name, aggregator in AGGREGATORS.items()}
    name = known.get(method.aggregator, method.aggregator)
    weighting, _ = _named(method.settings.get("weighting", _PLAIN_WEIGHTINGS[0]))
    objective, _ = _named(method.objective)
    parts = [weighting] if weighting not in _PLAIN_WEIGHTINGS else []
    parts += [objective] if objective != _PLAIN_OBJECTIVE else []
    for part in parts:
        name = _PUBLISHED_AS.get((name, part), f"{name}+{part}")
    return name


def method_title(name: str) -> str:
    """Return a method's name for people: ``FedOMG + GA`` for ``fedomg+ga``."""
    return " + ".join(_TITLES.get(part, part) for part in name.split("+"))


def method_order(name: str) -> tuple[int, int, str]:
    """Return the key by which methods are sorted in tables: FedAvg first, compositions after what they extend."""
    base, *parts = name.split("+")
    titles = list(_TITLES)
    return titles.index(base) if base in titles else len(titles), len(parts), name


def method_settings(record: RunRecord) -> dict[str, Any]:
    """Return all settings of a run's method as plain values, those of weighting and objective among them.

    A setting of the objective that shares its name with one of the aggregator or the protocol is called
    ``objective <name>``. Defaults of the weighting are written out, so that saying them makes no difference.
    """
    settings = {name: value for name, value in record.method.settings.items() if name != "weighting"}
    if "weighting" in record.method.settings:
        weighting, own = _named(record.method.settings["weighting"])
        settings |= {"weighting": weighting} if weighting in _PLAIN_WEIGHTINGS else {}
        settings |= _weighting_defaults(weighting) | own
    _, own = _named(record.method.objective)
    for name, value in own.items():
        settings[f"objective {name}" if name in settings or name in Protocol.model_fields else name] = value
    if {"fedga", "ga"} & set(method_name(record.method).split("+")):  # no other method reads it
        settings["gap_split"] = record.protocol.gap_split
    return {name: _plain(value) for name, value in sorted(settings.items())}


def _named(spec: Any) -> tuple[str, dict[str, Any]]:
    """Return name and settings of a part that is spelt as a name or as an object with a name."""
    if not isinstance(spec, dict):
        return str(spec), {}
    return str(spec.get("name", "")), {name: value for name, value in spec.items() if name != "name"}


def _weighting_defaults(name: str) -> dict[str, Any]:
    parameters = inspect.signature(WEIGHTINGS[name]).parameters if name in WEIGHTINGS else {}
    return {
        parameter: value.default
        for parameter, value in parameters.items()
        if value.default is not inspect.Signature.empty
    }


def _plain(value: Any) -> Any:
    """Return a value that can be compared and hashed; lists and objects become their JSON."""
    return value if value is None or isinstance(value, str | int | float) else json.dumps(value, sort_keys=True)
