# SPDX-License-Identifier: Apache-2.0
"""Inner products, Gram matrices and linear combinations of updates: the only work that grows with P.

Every sum of many terms is taken in float64 over blocks of fixed length, and the blocks' sums are
added exactly. The result therefore has the same bits for any number of threads and for any order in
which the updates arrived, which BLAS does not promise.
"""

import math
from collections.abc import Iterator, Mapping, Sequence

import torch

Update = torch.Tensor | Mapping[str, torch.Tensor]

BLOCK = 1 << 14  # terms added into one float64 sum
CHUNK = BLOCK << 6  # terms widened to float64 at a time: 8 MiB per operand


def inner_product(first: Update, second: Update) -> float:
    """Return ``<first, second>`` over all parameters, in float64; of a mapping, over its names in sorted order.

    Raises ``ValueError`` if the two have different names or numbers of elements.
    """
    sums: list[float] = []
    for left, right in _aligned(first, second):
        sums.extend(_block_sums(left, right))
    return math.fsum(sums)


def gram_matrix(updates: torch.Tensor | Sequence[Update]) -> torch.Tensor:
    """Return the Gram matrix ``G[u, v] = <g_u, g_v>`` as float64 ``[U, U]``, from ``updates [U, P]`` or U updates.

    Each pair is computed once, so the matrix is symmetric to the bit. No copy of the updates is made.
    """
    count = len(updates)
    gram = torch.zeros(count, count, dtype=torch.float64)
    for row in range(count):
        for column in range(row + 1):
            gram[row, column] = gram[column, row] = inner_product(updates[row], updates[column])
    return gram


def combine(coefficients: torch.Tensor, tensors: Sequence[torch.Tensor]) -> torch.Tensor:
    """Return ``sum_u coefficients[u] * tensors[u]``, accumulated in float64 in the order given, in their dtype."""
    total = torch.zeros_like(tensors[0], dtype=torch.float64)
    for coefficient, tensor in zip(coefficients.tolist(), tensors, strict=True):
        total.add_(tensor.to(torch.float64), alpha=coefficient)
    return total.to(tensors[0].dtype)


def _aligned(first: Update, second: Update) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    if isinstance(first, Mapping) != isinstance(second, Mapping):
        raise ValueError("Of two updates, one is a mapping of parameters and the other is one tensor.")
    if not isinstance(first, Mapping):
        yield torch.as_tensor(first), torch.as_tensor(second)
        return
    assert isinstance(second, Mapping)
    if first.keys() != second.keys():
        name = min(set(first) ^ set(second))
        raise ValueError(f"Two updates differ in their parameters: {name!r} is in only one of them.")
    for name in sorted(first):
        yield first[name], second[name]


def _block_sums(left: torch.Tensor, right: torch.Tensor) -> list[float]:
    if left.shape != right.shape:
        raise ValueError(f"Two updates differ in shape: {list(left.shape)} and {list(right.shape)}.")
    left, right = left.detach().reshape(-1), right.detach().reshape(-1)
    sums: list[float] = []
    for start in range(0, left.numel(), CHUNK):
        product = left[start : start + CHUNK].to(torch.float64) * right[start : start + CHUNK].to(torch.float64)
        whole = product.numel() // BLOCK * BLOCK
        # A sum along the inner dimension stays within one thread; a sum over everything would not.
        sums.extend(product[:whole].view(-1, BLOCK).sum(dim=1).tolist())
        sums.extend(product[whole:].view(1, -1).sum(dim=1).tolist())
    return sums
