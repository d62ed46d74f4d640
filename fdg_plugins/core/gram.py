# SPDX-License-Identifier: Apache-2.0
"""The Gram matrix of the updates, by BLAS, at the cost of reading each update once; and what a record measures by it.

Parameters are cut into segments whose length depends only on the parameter's size and the number of updates. A segment
is converted to float64 panel by panel; each panel is one matrix product, computed by a single thread. Threads work on
different segments, and the segments' Gram matrices are added in order. The result therefore is bit-identical for any
number of threads. Updates that are stored in files are read a few panels at a time, bit-identically.

Shapes: U updates of P values in all; panels ``[U, K]`` in float64 with K values of each update; the result
``[U, U]``, float64. Lengths are L2 norms over the trainable parameters.
"""

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from typing import Any, NamedTuple

import torch

from fdg_plugins.core.linear import Update, aligned
from fdg_plugins.core.stored import Values, flattened, part_of

PANEL = 1 << 15  # the longest panel, in terms per update
PANEL_VALUES = 1 << 19  # values in a panel over all updates, in float64: 4 MiB
SHORTEST_PANEL = 1 << 8
LOADED = 1 << 20  # approximate number of values that one thread loads at a time from stored updates
PANELS = 8  # fewest panels in a segment
MOST_SEGMENTS = 64  # of one parameter; each may have to wait as a matrix [U, U]

Right = Callable[[torch.Tensor], torch.Tensor]  # from a panel [U, L] to the right factor [L, V] of its product


class _Segment(NamedTuple):
    """Part of one parameter: its flattened values at all sites, and the range of terms."""

    values: Sequence[Values]
    start: int
    stop: int


def gram_matrix(updates: torch.Tensor | Sequence[Update]) -> torch.Tensor:
    """Return the Gram matrix ``G[u, v] = <g_u, g_v>`` as float64 ``[U, U]``, from ``updates [U, P]`` or U updates.

    The result is exactly symmetric. The updates are not copied. BLAS makes no promise about the order of summation, so
    the bits may depend on the order of the updates: pass them in a fixed order. Raises ``ValueError`` if two updates
    have different names or numbers of elements.

    >>> gram_matrix(torch.tensor([[3.0, 4.0], [0.0, 2.0]])).tolist()
    [[25.0, 8.0], [8.0, 4.0]]
    """
    rows = list(updates)
    total = torch.zeros(len(rows), len(rows), dtype=torch.float64)
    _add_products(total, rows, lambda panel: panel.T)
    upper = total.triu()
    return upper + upper.triu(1).T


def inner_products(update: Update, others: Sequence[Update]) -> torch.Tensor:
    """Return ``<update, other>`` for each of V others, float64 ``[V]``; each update is read once.

    Raises ``ValueError`` if two updates have different names or numbers of elements.
    """
    total = torch.zeros(len(others) + 1, 1, dtype=torch.float64)
    _add_products(total, [update, *others], lambda panel: panel[:1].T)
    return total[1:, 0]


def _add_products(total: torch.Tensor, updates: Sequence[Update], right: Right) -> None:
    """Add to ``total`` the products of the updates' panels ``[U, L]``, in order, each with what ``right`` makes of it.

    ``total`` has the shape of such a product.
    """
    # OpenMP keeps the number of threads per thread, so it is set in every worker too.
    with (
        _one_thread_each() as threads,
        ThreadPoolExecutor(threads, initializer=torch.set_num_threads, initargs=(1,)) as pool,
    ):
        compute = partial(_product_of, right=right)
        for product in _in_order(pool, threads, compute, _segments(updates)):
            total += product


def _segments(updates: Sequence[Update]) -> Iterator[_Segment]:
    if not updates:
        return
    for first, others in aligned(updates[0], updates[1:]):
        values = [flattened(tensor) for tensor in (first, *others)]
        length = first.shape.numel()
        step = max(PANELS * panel_length(len(values)), -(-length // MOST_SEGMENTS))
        for start in range(0, length, step):
            yield _Segment(values, start, min(start + step, length))


def _product_of(segment: _Segment, right: Right) -> torch.Tensor:
    count, panel = len(segment.values), panel_length(len(segment.values))
    widened = torch.empty(count, min(panel, segment.stop - segment.start), dtype=torch.float64)
    total = torch.zeros(count, right(widened).shape[1], dtype=torch.float64)
    for loaded in _loaded(segment, panel):
        for start in range(0, len(loaded[0]), panel):
            parts = [values[start : start + panel] for values in loaded]
            rows = widened[:, : len(parts[0])]
            for row, part in zip(rows, parts, strict=True):
                row.copy_(part)
            total.addmm_(rows, right(rows))
    return total


def panel_length(count: int) -> int:
    """Return the length of a panel for ``count`` updates: longer for few updates, to amortise the cost of a call."""
    fitting = 1 << max(0, (PANEL_VALUES // count).bit_length() - 1)
    return min(PANEL, max(SHORTEST_PANEL, fitting))


def _loaded(segment: _Segment, panel: int) -> Iterator[list[torch.Tensor]]:
    step = panel * max(1, LOADED // (panel * len(segment.values)))
    for start in range(segment.start, segment.stop, step):
        part = slice(start, min(start + step, segment.stop))
        yield [part_of(values, part) for values in segment.values]


def _in_order(
    pool: ThreadPoolExecutor, threads: int, compute: Callable[[_Segment], torch.Tensor], segments: Iterator[_Segment]
) -> Iterator[torch.Tensor]:
    waiting: deque[Future[torch.Tensor]] = deque()
    for segment in segments:
        waiting.append(pool.submit(compute, segment))
        if len(waiting) > 2 * threads:
            yield waiting.popleft().result()
    while waiting:
        yield waiting.popleft().result()


@contextmanager
def _one_thread_each() -> Iterator[int]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield threads
    finally:
        torch.set_num_threads(threads)


def measure_step(
    updates: Sequence[Update], step: Update, weights: torch.Tensor, scale: float, gram: torch.Tensor | None
) -> dict[str, Any]:
    """Return the lengths of the updates, of their mean and of the direction, and the cosines of the updates with both.

    With them, the mean distance of two updates, :func:`divergence`.

    Args:
        updates: of the U sites, each ``[P]`` or a mapping by name.
        step: the change of the model, which is ``scale`` times the direction.
        weights: of the mean, ``[U]``.
        scale: the server's learning rate, above zero.
        gram: the Gram matrix of the updates ``[U, U]``, if known; otherwise it is computed together with the step's
            row.
    """
    count = len(updates)
    if gram is None:
        extended = gram_matrix([*updates, step])
        gram, products = extended[:count, :count], extended[count]
    else:
        products = inner_products(step, [*updates, step])
    lengths = gram.diagonal().clamp_min(0).sqrt()
    mean_norm = float((weights @ gram @ weights).clamp_min(0).sqrt())
    step_norm = float(products[count].clamp_min(0).sqrt())
    return {
        "update_norms": lengths.tolist(),
        "gradient_divergence": divergence(gram),
        "mean_norm": mean_norm,
        "direction_norm": step_norm / scale,
        "cosines_with_mean": cosines(gram @ weights, lengths, mean_norm),
        "cosines_with_direction": cosines(products[:count], lengths, step_norm),
    }


def divergence(gram: torch.Tensor) -> float:
    """Return the mean of ``|g_u - g_v|`` over all pairs of U updates, from their Gram matrix ``[U, U]``; 0 for one.

    With updates as gradients, it is how far the gradients of the sites' risks diverge, which FedOMG's bound of the risk
    on another domain contains.

    >>> divergence(torch.tensor([[9.0, 0.0], [0.0, 16.0]]))
    5.0
    """
    squares = gram.diagonal()
    distances = (squares[:, None] + squares[None, :] - 2 * gram).clamp_min(0).sqrt()
    pairs = len(gram) * (len(gram) - 1)
    return float(distances.triu(1).sum()) * 2 / pairs if pairs else 0.0


def cosines(products: torch.Tensor, lengths: torch.Tensor, length: float) -> list[float]:
    """Return ``products [U]`` divided by ``lengths [U]`` and by ``length``, in [-1, 1]; zero where a length is zero.

    >>> cosines(torch.tensor([2.0, 0.0]), torch.tensor([2.0, 0.0]), 2.0)
    [0.5, 0.0]
    """
    scale = lengths * length
    safe = scale.clamp_min(torch.finfo(torch.float64).tiny)
    return torch.where(scale > 0, products / safe, 0.0).clamp(-1, 1).tolist()
