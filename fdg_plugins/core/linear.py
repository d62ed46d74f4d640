# SPDX-License-Identifier: Apache-2.0
"""Inner products and linear combinations of updates: with the Gram matrix, the only work that grows with P.

An inner product is summed in float64 over blocks of fixed length, and the sums of the blocks are added exactly; a
combination is accumulated in float64, element by element, in the order given. Both have the same bits for any number
of threads, which BLAS does not promise. Operands are converted to float64 one chunk at a time. A chunk fits into a
core's cache, so each operand is read from memory once. Updates that are stored in files are read chunk by chunk too,
with the same bits.

Shapes: an update is ``[P]``, or a mapping from parameter name to a tensor of the parameter's shape; coefficients
``[U]``, float64. Parameters are visited in the sorted order of their names.
"""

import math
from collections.abc import Iterator, Mapping, Sequence

import torch

from fdg_plugins.core.stored import Stored, Values, flattened, part_of

Update = Values | Mapping[str, Values]

BLOCK = 1 << 14  # terms added into one float64 sum
LARGEST_SQUARABLE = 1e140  # above this, the squared length of a float64 update overflows
CHUNK = BLOCK << 1  # terms converted to float64 at a time, per thread: 256 KiB per operand


def inner_product(first: Update, second: Update) -> float:
    """Return ``<first, second>`` over all parameters, in float64.

    Raises ``ValueError`` if the two have different names or numbers of elements.

    >>> inner_product({"weight": torch.tensor([1.0, 2.0])}, {"weight": torch.tensor([3.0, 4.0])})
    11.0
    """
    sums: list[torch.Tensor] = []
    for left, (right,) in aligned(first, [second]):
        sums.extend(_block_sums(left, right))
    return math.fsum(torch.cat(sums).tolist()) if sums else 0.0


def combine(coefficients: torch.Tensor, tensors: Sequence[Values]) -> torch.Tensor:
    """Return ``sum_u coefficients[u] * tensors[u]``, accumulated in float64 in the order given.

    ``coefficients [U]``; the U tensors have one shape, which is that of the result. The dtype is that of the first
    tensor. Raises ``ValueError`` if shapes differ.

    >>> combine(torch.tensor([0.5, 2.0]), [torch.tensor([2.0, 4.0]), torch.tensor([1.0, 0.0])]).tolist()
    [3.0, 2.0]
    """
    first = tensors[0]
    if any(tensor.shape != first.shape for tensor in tensors):
        raise ValueError(f"Tensors to be combined have shapes {sorted({tuple(tensor.shape) for tensor in tensors})}.")
    flat = [flattened(tensor) for tensor in tensors]
    device = first.device if isinstance(first, torch.Tensor) else None
    total = torch.empty(first.shape.numel(), dtype=first.dtype, device=device)
    for part in _chunks(len(total)):
        total[part] = _combined(coefficients, flat, part, device)
    return total.view(first.shape)


def _combined(
    coefficients: torch.Tensor, flat: Sequence[Values], part: slice, device: torch.device | None
) -> torch.Tensor:
    accumulated = torch.zeros(part.stop - part.start, dtype=torch.float64, device=device)
    widened = torch.empty_like(accumulated)
    for coefficient, values in zip(coefficients.tolist(), flat, strict=True):
        accumulated.add_(widened.copy_(part_of(values, part)), alpha=coefficient)
    return accumulated


def aligned(update: Update, others: Sequence[Update]) -> Iterator[tuple[Values, list[Values]]]:
    """Yield each parameter of ``update``, in the sorted order of names, with the same parameter of all ``others``.

    Raises ``ValueError`` if two updates have different names or shapes.
    """
    if any(isinstance(update, Mapping) != isinstance(other, Mapping) for other in others):
        raise ValueError("Of two updates, one is a mapping of parameters and the other is one tensor.")
    if not isinstance(update, Mapping):
        yield _of_one_shape(_single(update), [_single(other) for other in others])
        return
    mappings = _of_same_names(update, others)
    for name in sorted(update):
        yield _of_one_shape(update[name], [other[name] for other in mappings])


def _of_same_names(update: Mapping[str, Values], others: Sequence[Update]) -> list[Mapping[str, Values]]:
    mappings = [other for other in others if isinstance(other, Mapping)]
    for other in mappings:
        if update.keys() != other.keys():
            name = min(set(update) ^ set(other))
            raise ValueError(f"Two updates differ in their parameters: {name!r} is in only one of them.")
    return mappings


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
        # torch sums the inner dimension within one thread; a sum over all elements would be split among threads.
        if whole:
            yield product[:whole].view(-1, BLOCK).sum(dim=1)
        if whole < len(product):
            yield product[whole:].sum(dim=0, keepdim=True)


def _chunks(length: int) -> Iterator[slice]:
    step = CHUNK * torch.get_num_threads()
    return (slice(start, min(start + step, length)) for start in range(0, length, step))
