# SPDX-License-Identifier: Apache-2.0
"""The squared length of all parameters or gradients together, on the device where they are and differentiable."""

from collections.abc import Iterable

import torch

from fdg_plugins.core.linear import BLOCK


def squared_norm(tensors: Iterable[torch.Tensor]) -> torch.Tensor:
    """Return the sum of the squares of all elements of one or more tensors, as a float64 scalar on their device.

    Summed in float64 over blocks of fixed length, so that the result has the same bits for any number of threads.
    Nothing is read out: on an accelerator, nobody waits for it.
    """
    sums = torch.cat([_block_sums(tensor.reshape(-1).to(torch.float64).square()) for tensor in tensors])
    while len(sums) > 1:
        sums = _block_sums(sums)
    return sums[0]


def _block_sums(values: torch.Tensor) -> torch.Tensor:
    """Return the sums of the blocks of ``values`` ``[P]``, each taken within one thread."""
    whole = len(values) // BLOCK * BLOCK
    return torch.cat([values[:whole].view(-1, BLOCK).sum(dim=1), values[whole:].view(1, -1).sum(dim=1)])
