# SPDX-License-Identifier: Apache-2.0
"""The names of methods in tables and figures: one name per method, in whatever form its job names it."""

import inspect
import json
import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import MISSING, fields
from functools import cache
from typing import Any

from fdg_plugins.aggregators import AGGREGATORS, WEIGHTINGS
from fdg_plugins.centralised import ALGORITHMS
from fdg_plugins.errors import SettingsError
from fdg_plugins.objectives import OBJECTIVES
from fdg_plugins.plugins.composition import BASE, find_method, parse_method, published, title_of, weighting_parts
from fdg_plugins.plugins.methods import METHODS
from fdg_plugins.record.names import federated_name, named_part
from fdg_plugins.record.run_record import Method, RunRecord
from fdg_plugins.settings.method_defaults import method_defaults
from fdg_plugins.settings.protocol import Protocol


def method_name(method: Method) -> str:
    """Return the name of aggregator, weighting and objective together: ``fedomg``, ``fedomg+ga+dim``, ``fediir``.

    Compositions of FedAvg that were published under a name have that name. Of a plug-in that is not at hand, an
    aggregator is named by its class, a weighting or objective as in the record. A centralised run has its algorithm in
    the place of an aggregator.
    """
    for name, algorithm in ALGORITHMS.items():
        if method.aggregator == algorithm.__name__:
            return name
    for problem in METHODS.load_usable():  # a record may be of any plug-in, which a user's own commands may load
        _warn_once(problem)
    return federated_name(method)


@cache
def _warn_once(text: str) -> None:
    logging.getLogger(__name__).warning(text)


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
    ``objective <name>``. Defaults of aggregator, weighting and objective are included, so neither specifying them
    explicitly nor a record from before a setting was added makes a difference.
    """
    settings = {**_aggregator_defaults(record.method.aggregator), **record.method.settings}
    if "weighting" in settings:
        settings |= _weighting_settings(settings.pop("weighting"))
    objective, own = named_part(record.method.objective)
    own = {**_objective_defaults(objective), **own}
    taken = {*settings, *Protocol.model_fields}
    settings |= {f"objective {name}" if name in taken else name: value for name, value in own.items()}
    settings |= {name: getattr(record.protocol, name) for name in method_fields(record)}
    return {name: _plain(value) for name, value in sorted(settings.items())}


def is_default_fedavg(record: RunRecord, apart_from: Collection[str] = ()) -> bool:
    """Return whether a run is FedAvg with its defaults on the run's data set, whatever its settings ``apart_from``."""
    if method_name(record.method) != BASE:
        return False
    try:
        defaults = method_defaults(parse_method(BASE), record.protocol.dataset).server
    except SettingsError:  # a data set that is not at hand
        defaults = {}
    plain = record.method.model_copy(update={"settings": dict(defaults)})
    own, default = (method_settings(one) for one in (record, record.model_copy(update={"method": plain})))
    return all(own.get(name) == default.get(name) for name in {*own, *default}.difference(apart_from))


def method_fields(record: RunRecord) -> list[str]:
    """Return the fields of a run's protocol that are settings of its method."""
    found = [find_method(part) for part in method_name(record.method).split("+")]
    return list(dict.fromkeys(name for one in found if one is not None for name in one.protocol_fields))


def settings_label(
    name: str,
    own: Mapping[str, Any],
    siblings: Sequence[Mapping[str, Any]],
    chosen: Sequence[str] = (),
    *,
    named: bool = True,
) -> str:
    """Return a method's display name, with those of its ``own`` settings in which its ``siblings`` differ.

    ``siblings`` are the settings of all groups of runs of the method, its own included. ``chosen``: settings whose
    values were chosen among several, which have no value of their own here; ``named``: whether the name says so.
    """
    names = sorted({name for settings in siblings for name in settings}.difference(chosen))
    differing = [name for name in names if any(other.get(name) != own.get(name) for other in siblings)]
    words = [f"{name} {own.get(name, 'unset')}" for name in differing]
    words += [f"{', '.join(chosen)} chosen"] if chosen and named else []
    return method_title(name) + (f" ({', '.join(words)})" if words else "")


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
