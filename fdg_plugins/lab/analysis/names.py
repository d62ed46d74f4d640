# SPDX-License-Identifier: Apache-2.0
"""The names of methods in tables and figures: one name per method, in whatever form its job names it."""

import logging
from functools import cache
from typing import Any

from fdg_plugins.lab.centralised import ALGORITHMS, algorithm_settings
from fdg_plugins.plugins.composition import published, title_of
from fdg_plugins.plugins.methods import METHODS
from fdg_plugins.record.method_settings import federated_defaults, federated_name, method_settings
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
