# SPDX-License-Identifier: Apache-2.0
"""An aggregator of your own: FedAvg in which no update counts for more than the median length."""

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import torch

from fdg_plugins.aggregators import Contribution, Direction
from fdg_plugins.methods.fedavg import FedAvgAggregator
from fdg_plugins.plugins.method import Equation, Method, Reference


class ClippedFedAvgAggregator(FedAvgAggregator):
    """The weighted mean of the updates, each shortened to the median length of the round's updates.

    Args:
        weighting: reference weights p, as of FedAvg.
        server_lr: eta_g > 0, the factor of the step.
    """

    neutral: ClassVar[Mapping[str, Any] | None] = None  # no setting makes FedAvg of it

    def direction(self, weights: torch.Tensor, contributions: Sequence[Contribution]) -> Direction:
        """Return ``p_u * min(1, median length / |g_u|)`` as the coefficients."""
        lengths = self.gram(contributions).diagonal().sqrt()
        factors = (lengths.median() / lengths.clamp_min(torch.finfo(torch.float64).tiny)).clamp_max(1.0)
        return Direction(weights * factors, {})


METHOD = Method(
    key="clipped_fedavg",
    title="Clipped FedAvg",
    line="no update counts for more than the median length of the round's",
    reference=Reference(authors="fdg_plugins", title="an example", venue="custom/README.md", year=2026),
    classes=(ClippedFedAvgAggregator,),
    equations=(
        Equation(formula="Σᵤ pᵤ min(1, median ‖g‖ / ‖gᵤ‖) gᵤ", meaning="the step, of updates g with weights p"),
    ),
)
