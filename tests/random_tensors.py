# SPDX-License-Identifier: Apache-2.0
"""Random tensors that depend on their seed only."""

import torch


def normal(seed: int, *shape: int) -> torch.Tensor:
    """Return float32 numbers of the standard normal law."""
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def normal_double(seed: int, *shape: int) -> torch.Tensor:
    """Return float64 numbers of the standard normal law, which are not those of :func:`normal`."""
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
