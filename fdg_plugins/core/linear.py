# SPDX-License-Identifier: Apache-2.0
"""Inner products and linear combinations of updates; with their Gram matrix, the only work that grows with P.

Every sum of many terms is taken in float64 over blocks of fixed length, and the blocks' sums are
added exactly. The result therefore has the same bits for any number of threads and for any order in
which the updates arrived, which BLAS does not promise. All operands are widened to float64 a chunk at a
time, small enough to stay in a core's cache: the memory is read once, and never written. What is stored
elsewhere is read a chunk at a time too, with the same bits.
"""

import math
from collections.abc import Iterator, Mapping, Sequence

import torch

from fdg_plugins.core.stored import Stored, Values, flattened, part_of

Update = Values | Mapping[str, Values]

BLOCK = 1 << 14  # terms added into one float64 sum
LARGEST_SQUARABLE = 1e140  # beyond it the squared length of a float64 update overflows
CHUNK = BLOCK << 1  # terms widened to float64 at a time, for each thread: 256 KiB per operand


def inner_product(first: Update, second: Update) -> float:
    """Return ``<first, second>`` over all parameters, in float64; of a mapping, over its names in sorted order.

    Raises ``ValueError`` if the two have different names or numbers of elements.
    """
    sums: list[torch.Tensor] = []
    for left, (right,) in aligned(first, [second]):
        sums.extend(_block_sums(left, right))
    return math.fsum(torch.cat(sums).tolist()) if sums else 0.0


def combine(coefficients: torch.Tensor, tensors: Sequence[Values]) -> torch.Tensor:
    """Return ``sum_u coefficients[u] * tensors[u]``, accumulated in float64 in the order given, in their dtype."""
    first = tensors[0]
    if any(tensor.shape != first.shape for tensor in tensors):
        raise ValueError(f"Tensors to be combined have shapes {sorted({tuple(tensor.shape) for tensor in tensors})}.")
    flat = [flattened(tensor) for tensor in tensors]
    device = first.device if isinstance(first, torch.Tensor) else None
    total = torch.empty(first.shape.numel(), dtype=first.dtype, device=device)
    for part in _chunks(len(total)):
        accumulated = torch.zeros(len(total[part]), dtype=torch.float64, device=device)
        widened = torch.empty_like(accumulated)
        for coefficient, values in zip(coefficients.tolist(), flat, strict=True):
            accumulated.add_(widened.copy_(part_of(values, part)), alpha=coefficient)
        total[part] = accumulated
    return total.view(first.shape)


def aligned(update: Update, others: Sequence[Update]) -> Iterator[tuple[Values, list[Values]]]:
    """Yield each parameter of ``update``, by name in sorted order, with that of all ``others``.

    Raises ``ValueError`` if two have different names or shapes.
    """
    if any(isinstance(update, Mapping) != isinstance(other, Mapping) for other in others):
        raise ValueError("Of two updates, one is a mapping of parameters and the other is one tensor.")
    if not isinstance(update, Mapping):
        yield _of_one_shape(_single(update), [_single(other) for other in others])
        return
    mappings = [other for other in others if isinstance(other, Mapping)]
    for other in mappings:
        if update.keys() != other.keys():
            name = min(set(update) ^ set(other))
            raise ValueError(f"Two updates differ in their parameters: {name!r} is in only one of them.")
    for name in sorted(update):
        yield _of_one_shape(update[name], [other[name] for other in mappings])


def _single(update: Update) -> Values:
    return update if isinstance(update, Stored) else torch.as_tensor(update)


def _of_one_shape(tensor: Values, others: list[Values]) -> tuple[Values, list[Values]]:
    for other in others:
        if tensor.shape != other.shape:
            raise ValueError(f"Two updates differ in shape: {list(tensor.shape)} and {list(other.shape)}.")
    return tensor, others


def _block_sums(left: Values, right: Values) -> Iterator[torch.Tensor]:
    length, left, right = left.shape.numel(), flattened(left), flattened(right)
    for part in _chunks(length):
        product = part_of(left, part).to(torch.float64) * part_of(right, part).to(torch.float64)
        whole = len(product) // BLOCK * BLOCK
        # A sum along the inner dimension stays within one thread; a sum over everything would not.
        if whole:
            yield product[:whole].view(-1, BLOCK).sum(dim=1)
        if whole < len(product):
            yield product[whole:].sum(dim=0, keepdim=True)


def _chunks(length: int) -> Iterator[slice]:
    """Yield the parts in which ``length`` terms are worked through; where they begin changes no block."""
    step = CHUNK * torch.get_num_threads()
    return (slice(start, min(start + step, length)) for start in range(0, length, step))
