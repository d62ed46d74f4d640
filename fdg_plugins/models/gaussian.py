# SPDX-License-Identifier: Apache-2.0
"""A layer whose output is a Gaussian with independent coordinates instead of a vector, for FedSR."""

import torch
from torch import nn
from torch.nn.functional import softplus

SMALLEST_SCALE = 1e-6  # small, but its logarithm and its inverse square are moderate numbers in float32


class GaussianLayer(nn.Module):
    """Features ``[B, D]`` -> N(mean, scale^2) over ``[B, D']``, from one linear layer with ``2 D'`` outputs.

    The output of the layer is the mean, in both modes, so a network that contains it is deterministic. A method that
    trains on samples draws them from :meth:`distribution`.

    Args:
        inputs: D.
        outputs: D'.
    """

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.linear = nn.Linear(inputs, 2 * outputs)

    @property
    def out_features(self) -> int:
        """``D'``, the number of coordinates."""
        return self.linear.out_features // 2

    def distribution(self, features: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Return mean and scale (standard deviation), ``[B, D']`` each, of ``features: [B, D]``; every scale is > 0.

        Computed in the parameters' precision, even under autocast.
        """
        with torch.autocast(features.device.type, enabled=False):
            mean, raw = self.linear(features.to(self.linear.weight.dtype)).chunk(2, dim=1)
            return mean, positive(raw)

    def forward(self, features: torch.Tensor) -> torch.Tensor:
        """Return the mean ``[B, D']`` of ``features: [B, D]``."""
        return self.distribution(features)[0]


def positive(raw: torch.Tensor) -> torch.Tensor:
    """Return ``softplus(raw) = log(1 + exp(raw))``, but at least ``SMALLEST_SCALE``; same shape as ``raw``.

    Below that bound (raw < -13.8), the gradient is zero.
    """
    return softplus(raw).clamp_min(SMALLEST_SCALE)
