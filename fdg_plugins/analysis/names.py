# SPDX-License-Identifier: Apache-2.0
"""The names of methods in tables and figures: one name per method, in whatever form its job names it."""

import inspect
import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from fdg_plugins.aggregators import WEIGHTINGS
from fdg_plugins.centralised import ALGORITHMS
from fdg_plugins.plugins.composition import Composition, find_method, published, title_of, weighting_parts
from fdg_plugins.plugins.methods import METHODS
from fdg_plugins.plugins.target import public_path
from fdg_plugins.record.run_record import Method, RunRecord
from fdg_plugins.settings.protocol import Protocol


def method_name(method: Method) -> str:
    """Return the name of aggregator, weighting and objective together: ``fedomg``, ``fedomg+ga+dim``, ``fediir``.

    Compositions of FedAvg that were published under a name have that name. An aggregator that this package does not
    know is named by its class. A centralised run has its algorithm in the place of an aggregator.
    """
    for name, algorithm in ALGORITHMS.items():
        if method.aggregator == algorithm.__name__:
            return name
    weighting, _ = _named(method.settings.get("weighting", ""))
    objective, _ = _named(method.objective)
    made = _of_aggregator(method.aggregator)
    return replace(
        made, weighting=weighting if weighting in weighting_parts() else made.weighting, objective=objective
    ).name


def _of_aggregator(class_name: str) -> Composition:
    """Return the composition of an aggregator's method; an aggregator without a record is a direction of its own."""
    for record in METHODS.all():
        if record.aggregator is not None and public_path(record.aggregator).rpartition(".")[2] == class_name:
            return published()[record.key]
    return Composition(class_name)


def method_title(name: str) -> str:
    """Return a method's display name: ``FedOMG + GA`` for ``fedomg+ga``, ``V-REx`` for ``vrex``."""
    return ALGORITHMS[name].title if is_centralised(name) else title_of(name)


def is_centralised(name: str) -> bool:
    """Return whether the name is that of a centralised reference rather than a federated method."""
    return name in ALGORITHMS


def method_order(name: str) -> tuple[int, int, str]:
    """Return the sort key of methods in tables: FedAvg first, compositions after the methods that they extend.

    Centralised references come last, after unknown methods.
    """
    known, references = list(published()), list(ALGORITHMS)
    if is_centralised(name):
        return len(known) + 1 + references.index(name), 0, name
    base, *parts = name.split("+")
    return known.index(base) if base in known else len(known), len(parts), name


def method_settings(record: RunRecord) -> dict[str, Any]:
    """Return all settings of a run's method as plain values, including those of weighting and objective.

    A setting of the objective that shares its name with one of the aggregator or the protocol is called
    ``objective <name>``. Defaults of the weighting are included, so specifying them explicitly makes no difference.
    """
    settings = dict(record.method.settings)
    if "weighting" in settings:
        settings |= _weighting_settings(settings.pop("weighting"))
    _, own = _named(record.method.objective)
    taken = {*settings, *Protocol.model_fields}
    settings |= {f"objective {name}" if name in taken else name: value for name, value in own.items()}
    settings |= {name: getattr(record.protocol, name) for name in method_fields(record)}
    return {name: _plain(value) for name, value in sorted(settings.items())}


def method_fields(record: RunRecord) -> list[str]:
    """Return the fields of a run's protocol that are settings of its method."""
    found = [find_method(part) for part in method_name(record.method).split("+")]
    return list(dict.fromkeys(name for one in found if one is not None for name in one.protocol_fields))


def settings_label(name: str, own: Mapping[str, Any], siblings: Sequence[Mapping[str, Any]]) -> str:
    """Return a method's display name, with those of its ``own`` settings in which its ``siblings`` differ.

    ``siblings`` are the settings of all groups of runs of the method, its own included.
    """
    names = sorted({name for settings in siblings for name in settings})
    differing = [name for name in names if any(other.get(name) != own.get(name) for other in siblings)]
    words = ", ".join(f"{name} {own.get(name, 'unset')}" for name in differing)
    return method_title(name) + (f" ({words})" if words else "")


def _named(spec: Any) -> tuple[str, dict[str, Any]]:
    """Return name and settings of a part given as a name or as an object with a name."""
    if not isinstance(spec, dict):
        return str(spec), {}
    return str(spec.get("name", "")), {name: value for name, value in spec.items() if name != "name"}


def _weighting_settings(spec: Any) -> dict[str, Any]:
    """Return a weighting's settings, and its name unless the method is named after it."""
    name, own = _named(spec)
    rule = {} if name in weighting_parts() else {"weighting": name}
    return {**rule, **_weighting_defaults(name), **own}


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
