# SPDX-License-Identifier: Apache-2.0
"""FedAvg: the weighted mean of the updates. The baseline for every other method.

Reference: McMahan, Moore, Ramage, Hampson, Agüera y Arcas, "Communication-Efficient Learning of Deep Networks from
Decentralized Data", AISTATS 2017.

Equation: ``theta+ = theta + server_lr * sum_u p_u g_u`` over the sites of the round, with ``p_u = n_u / sum_v n_v``
-> :class:`FedAvgAggregator`, :func:`fdg_plugins.core.weighting.sample_weights`.

Shapes: updates g ``[U, P]``, weights p and samples n ``[U]``.

Participation: the sites of the round only. With one site, the new global model is that site's model.

Buffers: float buffers are averaged with p; integer buffers move by the largest update.

Differences: weights are numbers of training samples; FLARE's own FedAvg uses numbers of steps if sites report them.
"""

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import torch

from fdg_plugins.aggregators.base import UpdateAggregator
from fdg_plugins.aggregators.contributions import Contribution
from fdg_plugins.aggregators.returned import Direction


class FedAvgAggregator(UpdateAggregator):
    """The weighted mean of the sites' updates.

    Args:
        weighting: reference weights p: ``"samples"`` (the paper), ``"uniform"``, or ``{"name": ..., settings}``.
        server_lr: eta_g > 0, the factor of the mean update; one is FedAvg.
    """

    reads_parts: ClassVar[bool] = True
    neutral: ClassVar[Mapping[str, Any] | None] = {}

    def direction(self, weights: torch.Tensor, contributions: Sequence[Contribution]) -> Direction:
        """Return p ``[U]`` as the coefficients; nothing to report."""
        return Direction(weights, {})
