# SPDX-License-Identifier: Apache-2.0
"""Inner products and linear combinations of updates: with the Gram matrix, the only work that grows with P.

An inner product is summed in float64 over blocks of fixed length, and the sums of the blocks are added exactly; a
combination is accumulated in float64, element by element, in the order given. Both are bit-identical for any number
of threads, which BLAS does not promise. Operands are converted to float64 one chunk at a time. A chunk fits into a
core's cache, so each operand is read from memory once. Updates that are stored in files are read chunk by chunk too,
bit-identically.

Shapes: an update is ``[P]``, or a mapping from parameter name to a tensor of the parameter's shape; coefficients
``[U]``, float64. Parameters are visited in the sorted order of their names.
"""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence

import torch

from fdg_plugins.core.stored import Stored, Values, flattened, part_of

Update = Values | Mapping[str, Values]

BLOCK = 1 << 14  # terms added into one float64 sum
LARGEST_SQUARABLE = 1e140  # above this, the squared length of a float64 update overflows
CHUNK = BLOCK << 1  # terms converted to float64 at a time, per thread: 256 KiB per operand
ROW = 64  # squares added in float32; of many more, rounding errors of one sign would exceed 1e-6 of the sum
SMALLEST = 1e-18  # of a sum in which squares that are too small for float32, below 1e-37 each, do not count


def inner_product(first: Update, second: Update) -> float:
    """Return ``<first, second>`` over all parameters, which both have in the same shapes, in float64.

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
    tensor.

    >>> combine(torch.tensor([0.5, 2.0]), [torch.tensor([2.0, 4.0]), torch.tensor([1.0, 0.0])]).tolist()
    [3.0, 2.0]
    """
    first = tensors[0]
    flat = [flattened(tensor) for tensor in tensors]
    device = first.device if isinstance(first, torch.Tensor) else None
    total = torch.empty(first.shape.numel(), dtype=first.dtype, device=device)
    for part in _chunks(len(total)):
        accumulated = torch.zeros(part.stop - part.start, dtype=torch.float64, device=device)
        widened = torch.empty_like(accumulated)
        for coefficient, values in zip(coefficients.tolist(), flat, strict=True):
            accumulated.add_(widened.copy_(part_of(values, part)), alpha=coefficient)
        total[part] = accumulated
    return total.view(first.shape)


def aligned(update: Update, others: Sequence[Update]) -> Iterator[tuple[Values, list[Values]]]:
    """Yield each parameter of ``update``, in the sorted order of names, with the same parameter of all ``others``."""
    first, *rest = (_named(one) for one in (update, *others))
    for name in sorted(first):
        yield first[name], [other[name] for other in rest]


def _named(update: Update) -> Mapping[str, Values]:
    if isinstance(update, Mapping):
        return update
    return {"": update if isinstance(update, Stored) else torch.as_tensor(update)}


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


@torch.no_grad()
def squared_norm(tensors: Iterable[torch.Tensor]) -> torch.Tensor:
    """Return the sum of the squares of all elements of one or more tensors, a float64 scalar on their device.

    It has no graph, and a relative error below 1e-6. The sums are over rows and blocks of fixed length, so the result
    is bit-identical for any number of threads. It does not synchronise with an accelerator.

    >>> squared_norm([torch.tensor([3.0]), torch.tensor([[4.0]])]).item()
    25.0
    """
    flat = [tensor.reshape(-1) for tensor in tensors]
    if all(values.dtype == torch.float32 and values.device.type == "cpu" for values in flat):
        # Converting each element to float64 takes a CPU many times longer.
        norms = torch.cat([torch.linalg.vector_norm(row, dim=1) for values in flat for row in _as_rows(values, ROW)])
        total = _total(norms.to(torch.float64).square())
        if SMALLEST < total.item() < math.inf:
            return total
    return _total(torch.cat([_sums_of_blocks(values.to(torch.float64).square()) for values in flat]))


def _total(sums: torch.Tensor) -> torch.Tensor:
    while len(sums) > 1:
        sums = _sums_of_blocks(sums)
    return sums[0]


def _sums_of_blocks(values: torch.Tensor) -> torch.Tensor:
    """Return the sums of the blocks of ``values`` ``[P]``, each computed within one thread."""
    return torch.cat([rows.sum(dim=1) for rows in _as_rows(values, BLOCK)])


def _as_rows(values: torch.Tensor, length: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Return ``values`` ``[P]`` as rows of ``length``, and the rest as a single row."""
    whole = len(values) // length * length
    return values[:whole].view(-1, length), values[whole:].view(1, -1)
