# SPDX-License-Identifier: Apache-2.0
"""Aggregators by name, as jobs name them.

The workflow builds the aggregator from its name, so that a wrong name or value is reported in one sentence. A component
that FLARE builds from a job's config can only fail below FLARE's own traceback.
"""

from collections.abc import Mapping
from typing import Any

from fdg_plugins.aggregators.base import UpdateAggregator
from fdg_plugins.plugins.classes import ClassesOf

AGGREGATORS: ClassesOf[UpdateAggregator] = ClassesOf("aggregator")


def make_aggregator(spec: str | Mapping[str, Any]) -> UpdateAggregator:
    """Return the aggregator that ``spec`` names: a name, or ``{"name": ..., <its settings>}``.

    >>> make_aggregator({"name": "fedomg", "kappa": 0.25}).kappa
    0.25
    """
    return AGGREGATORS.make(spec)
