# SPDX-License-Identifier: Apache-2.0
"""The squared norm of a list of tensors, on their own device and with the same bits for any number of threads."""

import math
from collections.abc import Iterable

import torch

from fdg_plugins.core.linear import BLOCK

ROW = 64  # squares added in float32; of many more, rounding errors of one sign would exceed 1e-6 of the sum
SMALLEST = 1e-18  # of a sum in which squares that are too small for float32, below 1e-37 each, do not count


@torch.no_grad()
def squared_norm(tensors: Iterable[torch.Tensor]) -> torch.Tensor:
    """Return the sum of the squares of all elements of one or more tensors, a float64 scalar on their device.

    It has no graph, and a relative error below 1e-6. The sums are over rows and blocks of fixed length, so the result
    has the same bits for any number of threads. It does not synchronise with an accelerator.

    >>> squared_norm([torch.tensor([3.0]), torch.tensor([[4.0]])]).item()
    25.0
    """
    flat = [tensor.reshape(-1) for tensor in tensors]
    if all(values.dtype == torch.float32 and values.device.type == "cpu" for values in flat):
        # Converting each element to float64 takes a CPU many times longer.
        norms = torch.cat([torch.linalg.vector_norm(row, dim=1) for values in flat for row in _rows(values, ROW)])
        total = _total(norms.to(torch.float64).square())
        if SMALLEST < total.item() < math.inf:
            return total
    return _total(torch.cat([_block_sums(values.to(torch.float64).square()) for values in flat]))


def _total(sums: torch.Tensor) -> torch.Tensor:
    """Return the sum of ``sums`` ``[P]``, a scalar."""
    while len(sums) > 1:
        sums = _block_sums(sums)
    return sums[0]


def _block_sums(values: torch.Tensor) -> torch.Tensor:
    """Return the sums of the blocks of ``values`` ``[P]``, each computed within one thread."""
    return torch.cat([rows.sum(dim=1) for rows in _rows(values, BLOCK)])


def _rows(values: torch.Tensor, length: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Return ``values`` ``[P]`` as rows of ``length``, and the rest as a single row."""
    whole = len(values) // length * length
    return values[:whole].view(-1, length), values[whole:].view(1, -1)
