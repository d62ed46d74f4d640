# SPDX-License-Identifier: Apache-2.0
"""The aggregators by name, as a job names them: a wrong name or value then ends in one sentence of the workflow.

A component that FLARE builds from a job's config can only fail under FLARE's own tracebacks.
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
