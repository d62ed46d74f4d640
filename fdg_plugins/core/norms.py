# SPDX-License-Identifier: Apache-2.0
"""The squared norm of a list of tensors: differentiable, in float64, and on the tensors' own device."""

from collections.abc import Iterable

import torch

from fdg_plugins.core.linear import BLOCK


def squared_norm(tensors: Iterable[torch.Tensor]) -> torch.Tensor:
    """Return the sum of the squares of all elements of one or more tensors, as a float64 scalar on their device.

    Summed in float64 over blocks of fixed length, so the result has the same bits for any number of threads.
    It does not synchronise with an accelerator.

    >>> squared_norm([torch.tensor([3.0]), torch.tensor([[4.0]])]).item()
    25.0
    """
    sums = torch.cat([_block_sums(tensor.reshape(-1).to(torch.float64).square()) for tensor in tensors])
    while len(sums) > 1:
        sums = _block_sums(sums)
    return sums[0]


def _block_sums(values: torch.Tensor) -> torch.Tensor:
    """Return the sums of the blocks of ``values`` ``[P]``, each computed within one thread."""
    whole = len(values) // BLOCK * BLOCK
    return torch.cat([values[:whole].view(-1, BLOCK).sum(dim=1), values[whole:].view(1, -1).sum(dim=1)])
