# SPDX-License-Identifier: Apache-2.0
"""Mean and variance of a layer's inputs over several sites, pooled exactly from sums, sums of squares and counts.

With ``n`` elements of a channel at all sites together, the pooled mean is ``sum x / n`` and the pooled variance
``(sum x^2 - (sum x)^2 / n) / (n - 1)``: unbiased, as torch's running variance is. Both equal those of the concatenated
inputs, whatever the sites' shares. All sums are float64, and sites are added in the order of their names, so the result
is bit-identical for any order of arrival.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import reduce
from operator import add

import torch

IMAGES_AT_A_TIME = 8  # of a batch, converted to float64 together, which bounds the memory


@dataclass(frozen=True)
class ChannelSums:
    """Sums over the elements of each channel: ``sums [C]`` and ``squares [C]``, float64, and the number of elements."""

    sums: torch.Tensor
    squares: torch.Tensor
    count: int

    def __add__(self, other: "ChannelSums") -> "ChannelSums":
        """Return the sums over the elements of both."""
        return ChannelSums(self.sums + other.sums, self.squares + other.squares, self.count + other.count)

    def mean_and_variance(self) -> tuple[torch.Tensor, torch.Tensor]:
        """Return mean and unbiased variance ``[C]``, float64; the variance of a single element is zero."""
        mean = self.sums / self.count
        deviations = (self.squares - self.sums * mean).clamp(min=0)  # rounding may leave less than nothing
        return mean, deviations / max(self.count - 1, 1)


def channel_sums(inputs: torch.Tensor) -> ChannelSums:
    """Return the sums over a batch of a layer's inputs ``[B, C, ...]``, on the inputs' device."""
    flat = inputs.detach().flatten(2) if inputs.ndim > 2 else inputs.detach().unsqueeze(2)
    sums = torch.zeros(flat.shape[1], dtype=torch.float64, device=flat.device)
    squares = torch.zeros_like(sums)
    for part in flat.split(IMAGES_AT_A_TIME):
        exact = part.double()
        sums += exact.sum((0, 2))
        squares += exact.square().sum((0, 2))
    return ChannelSums(sums, squares, flat.shape[0] * flat.shape[2])


def pooled(by_site: Mapping[str, ChannelSums]) -> ChannelSums:
    """Return the sums over all sites, at least one, added in the order of their names.

    >>> a, b = torch.tensor([[1.0], [2.0]]), torch.tensor([[6.0]])
    >>> mean, variance = pooled({"a": channel_sums(a), "b": channel_sums(b)}).mean_and_variance()
    >>> mean.item(), variance.item()
    (3.0, 7.0)
    """
    return reduce(add, (by_site[site] for site in sorted(by_site)))
