# SPDX-License-Identifier: Apache-2.0
"""FedAvg: the weighted mean of the updates, the reference for every other method.

Reference: McMahan et al., "Communication-Efficient Learning of Deep Networks from Decentralized
Data", AISTATS 2017.

Equation: ``theta+ = theta + server_lr * sum_u p_u g_u`` over the sites of the round. *Participation*: one
site gives its own model back; an absent site has no weight. *Buffers*: float buffers averaged with p,
integer buffers moved by the largest update. *Differences*: the weights are the numbers of training
samples, not of steps as in FLARE's own FedAvg when sites report steps.
"""

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import torch

from fdg_plugins.aggregators.base import Direction, UpdateAggregator
from fdg_plugins.aggregators.contributions import Contribution


class FedAvgAggregator(UpdateAggregator):
    """The weighted mean of the sites' updates.

    Args:
        weighting: reference weights p: ``"samples"`` (the paper), ``"uniform"``, or ``{"name": ..., settings}``.
        server_lr: eta_g > 0, the factor of the mean update; one is FedAvg.
    """

    reads_parts: ClassVar[bool] = True
    neutral: ClassVar[Mapping[str, Any] | None] = {}

    def direction(self, weights: torch.Tensor, contributions: Sequence[Contribution]) -> Direction:
        """Return p as the coefficients."""
        return Direction(weights, {})
