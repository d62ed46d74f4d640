# SPDX-License-Identifier: Apache-2.0
"""The aggregators by name, as a job names them: a wrong name or value then ends in one sentence of the workflow.

A component that FLARE builds from a job's config can only fail under FLARE's own tracebacks.
"""

import inspect
from collections.abc import Mapping
from typing import Any

from fdg_plugins.aggregators.base import UpdateAggregator
from fdg_plugins.aggregators.fedavg import FedAvgAggregator
from fdg_plugins.aggregators.fedcsa import FedCSAAggregator
from fdg_plugins.aggregators.fedga import FedGAAggregator
from fdg_plugins.aggregators.fednova import FedNovaAggregator
from fdg_plugins.aggregators.fedomg import FedOMGAggregator
from fdg_plugins.errors import SettingsError
from fdg_plugins.values import check_depth, shorten

AGGREGATORS: dict[str, type[UpdateAggregator]] = {
    "fedavg": FedAvgAggregator,
    "fedga": FedGAAggregator,
    "fedomg": FedOMGAggregator,
    "fednova": FedNovaAggregator,
    "fedcsa": FedCSAAggregator,
}


def make_aggregator(spec: str | Mapping[str, Any]) -> UpdateAggregator:
    """Return the aggregator that ``spec`` names: a name, or ``{"name": ..., <its settings>}``.

    >>> make_aggregator({"name": "fedomg", "kappa": 0.25}).kappa
    0.25
    """
    if not isinstance(spec, str | Mapping):
        raise SettingsError(f"aggregator is {shorten(spec)}, expected a name or a mapping with a name.")
    check_depth("aggregator", spec)
    settings = {"name": spec} if isinstance(spec, str) else dict(spec)
    name = settings.pop("name", None)
    if not isinstance(name, str) or name not in AGGREGATORS:
        raise SettingsError(f"aggregator is {shorten(name)}, expected one of {', '.join(sorted(AGGREGATORS))}.")
    known = inspect.signature(AGGREGATORS[name]).parameters
    if unknown := sorted(str(setting) for setting in settings if setting not in known):
        raise SettingsError(f"aggregator {name!r} has no setting {shorten(unknown[0])}; it has {', '.join(known)}.")
    return AGGREGATORS[name](**settings)
