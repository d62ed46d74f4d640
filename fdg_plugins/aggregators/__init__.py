# SPDX-License-Identifier: Apache-2.0
"""FLARE Aggregators: contributions in, one step of the global model out.

All share one contract (:class:`UpdateAggregator`): collect the sites' updates, weight the sites (*weighting*), turn
weights and updates into a step (*direction*), and treat buffers by a separate rule. They run in this package's
controller and in FLARE's own FedAvg and ScatterAndGather workflows.

    >>> from fdg_plugins.aggregators import make_aggregator, make_weighting
    >>> make_aggregator({"name": "fedavg", "server_lr": 0.5, "weighting": "ga"}).settings()
    {'weighting': 'ga', 'server_lr': 0.5}
    >>> make_weighting({"name": "ga", "step_size": 0.1}).shares
    'gap'

Shapes: U sites of the round, N known sites, P trainable parameters. Updates ``[U, P]`` are kept by name, each
parameter with its own shape; weights and coefficients ``[U]`` are float64, in the sorted order of the sites' names.
"""

from fdg_plugins.aggregators.base import AGGREGATORS, UpdateAggregator, make_aggregator, take_step
from fdg_plugins.aggregators.contributions import Contribution, Direction, RunFacts
from fdg_plugins.aggregators.weightings import ONLY_ROUND, WEIGHTINGS, RoundOf, Weighting, flat_names, make_weighting

__all__ = [
    "AGGREGATORS",
    "ONLY_ROUND",
    "WEIGHTINGS",
    "Contribution",
    "Direction",
    "RoundOf",
    "RunFacts",
    "UpdateAggregator",
    "Weighting",
    "flat_names",
    "make_aggregator",
    "make_weighting",
    "take_step",
]
