# SPDX-License-Identifier: Apache-2.0
"""Assertions for whoever writes a method: what every aggregator, weighting, objective and algorithm promises.

The contract suite of this package calls them for every member of its registries; a plug-in's tests call them for its
own classes, with a test runner of their choice:

    >>> from fdg_plugins.aggregators import FedAvgAggregator
    >>> from fdg_plugins.testing import AGGREGATOR_CONTRACT
    >>> for promise in AGGREGATOR_CONTRACT:
    ...     promise(FedAvgAggregator)

Each promise takes the class and raises ``AssertionError`` where it is broken. A class is excused from one only by what
it declares of itself, such as ``neutral`` or ``whole_updates``. Nothing here is loaded by a run.
"""

from fdg_plugins.testing.aggregators import AGGREGATOR_CONTRACT
from fdg_plugins.testing.algorithms import ALGORITHM_CONTRACT
from fdg_plugins.testing.objectives import OBJECTIVE_CONTRACT
from fdg_plugins.testing.weightings import WEIGHTING_CONTRACT

__all__ = ["AGGREGATOR_CONTRACT", "ALGORITHM_CONTRACT", "OBJECTIVE_CONTRACT", "WEIGHTING_CONTRACT"]
