# SPDX-License-Identifier: Apache-2.0
"""The names of methods in tables and figures: one name per method, in whatever form its job names it."""

import logging
from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import cache
from typing import Any

from fdg_plugins.lab.centralised import ALGORITHMS, algorithm_settings
from fdg_plugins.plugins.composition import (
    BASE,
    published,
    title_of,
)
from fdg_plugins.plugins.methods import METHODS
from fdg_plugins.record.method_settings import differing, federated_defaults, method_settings
from fdg_plugins.record.names import federated_name
from fdg_plugins.record.run_record import Method, RunRecord


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


def default_settings(record: RunRecord) -> dict[str, Any] | None:
    """Return the settings of a run's method with the values that a job on the run's data set has by default.

    None for a method or a data set that is not at hand.
    """
    name = method_name(record.method)
    if not is_centralised(name):
        return federated_defaults(record)
    found = algorithm_settings(name)
    return {setting: found.get(setting, value) for setting, value in method_settings(record).items()}


def is_default_fedavg(record: RunRecord, apart_from: Collection[str] = ()) -> bool:
    """Return whether a run is FedAvg with its defaults on the run's data set, whatever its settings ``apart_from``."""
    if method_name(record.method) != BASE:
        return False
    own, default = method_settings(record), default_settings(record)
    if default is None:  # a data set that is not at hand
        default = method_settings(
            record.model_copy(update={"method": record.method.model_copy(update={"settings": {}})})
        )
    return not differing([own, default], apart_from)


def settings_label(
    name: str, own: Mapping[str, Any], shown: Iterable[str], chosen: Sequence[str] = (), *, named: bool = True
) -> str:
    """Return a method's display name, with those of its ``own`` settings that are to be ``shown``.

    ``chosen``: settings whose values were chosen among several, which have no value of their own here; ``named``:
    whether the name says so.
    """
    words = [f"{setting} {own.get(setting, 'unset')}" for setting in sorted(shown)]
    words += [f"{', '.join(chosen)} chosen"] if chosen and named else []
    return method_title(name) + (f" ({', '.join(words)})" if words else "")
