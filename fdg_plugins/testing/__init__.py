# SPDX-License-Identifier: Apache-2.0
"""Assertions for authors of methods: the contract of every aggregator, weighting and objective.

The contract suite of this package calls them for every member of its registries; a plug-in's tests call them for its
own classes, with any test runner:

    >>> from fdg_plugins.methods.fedavg import FedAvgAggregator
    >>> from fdg_plugins.testing import AGGREGATOR_CONTRACT
    >>> for promise in AGGREGATOR_CONTRACT:
    ...     promise(FedAvgAggregator)

Each assertion takes the class and raises ``AssertionError`` on a violation. A class is exempt from an assertion only by
its own declarations, such as ``neutral`` or ``whole_updates``. A run loads nothing from here.
"""

from fdg_plugins.testing.aggregators import AGGREGATOR_CONTRACT
from fdg_plugins.testing.objectives import OBJECTIVE_CONTRACT
from fdg_plugins.testing.weightings import WEIGHTING_CONTRACT

__all__ = ["AGGREGATOR_CONTRACT", "OBJECTIVE_CONTRACT", "WEIGHTING_CONTRACT"]
