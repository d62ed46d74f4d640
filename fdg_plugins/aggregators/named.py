# SPDX-License-Identifier: Apache-2.0
"""Aggregators by name, as jobs specify them.

The workflow builds the aggregator from its name, so a wrong name or value is reported in one sentence. If FLARE built
the component from the job's config, the error would be buried in FLARE's own traceback.

Shapes are those of ``base``: U updates of P parameters, of shape ``[U, P]``, give a step of shape ``[P]``.
"""

from collections.abc import Mapping
from typing import Any

from fdg_plugins.aggregators.base import UpdateAggregator
from fdg_plugins.plugins.classes import ClassesOf

AGGREGATORS: ClassesOf[UpdateAggregator] = ClassesOf("aggregator", UpdateAggregator)


def make_aggregator(spec: str | Mapping[str, Any]) -> UpdateAggregator:
    """Return the aggregator that ``spec`` describes: a name, or ``{"name": ..., <its settings>}``.

    Raises ``SettingsError`` for an unknown name or setting, or a value out of range.

    >>> make_aggregator({"name": "fedomg", "kappa": 0.25}).kappa
    0.25
    """
    made = AGGREGATORS.make(spec)
    made.rule()  # looked up before the first round, so that a wrong setting of it is told now
    return made
