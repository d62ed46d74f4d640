# SPDX-License-Identifier: Apache-2.0
r"""On-server matching of updates that no single machine holds: coordinates are sharded, Gram matrices are added.

FedOMG needs of the updates ``g_u [P]`` only their Gram matrix, and a Gram matrix is a sum over coordinates. So each of
S machines takes one shard of the coordinates from every site, and

1. sends the Gram matrix ``[U, U]`` of its shard (:func:`fdg_plugins.core.gram.gram_matrix` of :func:`shard_of`);
2. one machine adds them (:func:`add_grams`) and finds the coefficients ``[U]`` from the sum, as from any Gram matrix;
3. each machine combines its shard of the updates with these coefficients (:func:`fdg_plugins.core.linear.combine`): its
   shard of the step.

This is exact: the steps of the shards are the parts of the whole step, bit for bit, for the same coefficients, and
the sum of the matrices differs from the whole one only by the rounding of sums in float64. What it costs is in
``docs/large-federations.md``.

Shapes: updates as mappings from parameter name to tensor, P coordinates in all, in the sorted order of names and then
in row-major order; Gram matrices ``[U, U]`` in float64.
"""

from collections.abc import Mapping, Sequence
from itertools import pairwise

import torch

from fdg_plugins.core.stored import Stored, Values

Shard = Mapping[str, slice]
"""For each parameter that a shard has a part of: the range of its coordinates."""


def make_shards(sizes: Mapping[str, int], count: int) -> list[dict[str, slice]]:
    """Cut the coordinates of parameters of the given ``sizes`` into ``count`` contiguous shards.

    Their lengths differ by at most one, the longer ones first. Raises ``ValueError`` for fewer coordinates than shards.

    >>> make_shards({"bias": 1, "weight": 5}, 2)
    [{'bias': slice(0, 1, None), 'weight': slice(0, 2, None)}, {'weight': slice(2, 5, None)}]
    """
    total = sum(sizes.values())
    if not 1 <= count <= total:
        raise ValueError(f"Expected from 1 to {total} shards of {total} coordinates, got {count}.")
    bounds = [number * (total // count) + min(number, total % count) for number in range(count + 1)]
    return [_between(sizes, start, stop) for start, stop in pairwise(bounds)]


def _between(sizes: Mapping[str, int], start: int, stop: int) -> dict[str, slice]:
    found, first = {}, 0
    for name in sorted(sizes):
        part = slice(max(start - first, 0), min(stop - first, sizes[name]))
        if part.start < part.stop:
            found[name] = part
        first += sizes[name]
    return found


def shard_of(update: Mapping[str, Values], shard: Shard) -> dict[str, Values]:
    """Return one shard of an update, flat tensors by name; tensors in memory are not copied, stored ones not read."""
    return {name: _cut(update[name], part) for name, part in shard.items()}


def _cut(values: Values, part: slice) -> Values:
    return values.detach().reshape(-1)[part] if isinstance(values, torch.Tensor) else _Part(values, part)


class _Part(Stored):
    """A range of the coordinates of a stored tensor."""

    def __init__(self, values: Stored, part: slice) -> None:
        self._values, self._start = values, part.start
        self.shape, self.dtype = torch.Size([part.stop - part.start]), values.dtype

    def read(self, start: int, stop: int) -> torch.Tensor:
        return self._values.read(self._start + start, self._start + stop)


def add_grams(grams: Sequence[torch.Tensor]) -> torch.Tensor:
    """Return the sum ``[U, U]`` of the Gram matrices of all shards, float64, with one rounding in all, or nearly so.

    The rounding errors of the additions are carried along (Neumaier, 1974), so the result hardly depends on the number
    of shards. It is exactly symmetric if they are.

    >>> add_grams([torch.tensor([[1.0]]), torch.tensor([[2.0**-60]]), torch.tensor([[-1.0]])]).item() == 2.0**-60
    True
    """
    total = torch.zeros(grams[0].shape, dtype=torch.float64)
    lost = torch.zeros_like(total)
    for one in grams:
        term = one.to(torch.float64)
        added = total + term
        larger = total.abs() >= term.abs()
        lost += torch.where(larger, (total - added) + term, (term - added) + total)
        total = added
    return total + lost
