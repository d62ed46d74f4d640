# SPDX-License-Identifier: Apache-2.0
"""Shards of coordinates: their Gram matrices add up to the whole one, and their steps are parts of the whole step."""

import numpy as np
import torch

from fdg_plugins.core import add_grams, combine, gram_matrix, make_shards, shard_of

EXACT, ROUNDED = 5e-16, 2e-15  # relative to the lengths of the updates; a whole Gram matrix is within the second
SHAPES = {"conv.weight": (16, 9, 5), "bias": (3,), "head.weight": (7, 101), "a": ()}
SIZES = {name: torch.Size(shape).numel() for name, shape in SHAPES.items()}
COUNTS = (1, 2, 7, 64)


def make_updates(count: int = 6, common: float = 1.0) -> list[dict[str, torch.Tensor]]:
    generator = torch.Generator().manual_seed(3)
    shared = {name: torch.randn(shape, generator=generator) for name, shape in SHAPES.items()}
    return [
        {name: common * value + torch.randn(value.shape, generator=generator) for name, value in shared.items()}
        for _ in range(count)
    ]


def in_long_doubles(updates: list[dict[str, torch.Tensor]]) -> torch.Tensor:
    rows = [np.concatenate([update[name].reshape(-1).numpy() for name in sorted(update)]) for update in updates]
    wide = np.stack(rows).astype(np.longdouble)
    return torch.from_numpy((wide @ wide.T).astype(np.float64))


def distance(first: torch.Tensor, second: torch.Tensor) -> float:
    lengths = second.diagonal().sqrt()
    return float(((first - second).abs() / lengths.outer(lengths)).max())


def test_the_sum_of_the_shards_is_the_gram_matrix() -> None:
    for common in [0.0, 1.0, 1e4]:
        for count in COUNTS:
            updates = make_updates(common=common)
            parts = [
                gram_matrix([shard_of(update, shard) for update in updates]) for shard in make_shards(SIZES, count)
            ]
            found = add_grams(parts)
            assert torch.equal(found, found.T)
            assert distance(found, in_long_doubles(updates)) <= (EXACT if count == max(COUNTS) else ROUNDED)
            assert distance(found, gram_matrix(updates)) <= ROUNDED


def test_the_steps_of_the_shards_are_the_parts_of_the_whole_step() -> None:
    for count in COUNTS:
        updates, coefficients = make_updates(), torch.linspace(-1, 2, 6, dtype=torch.float64)
        shards = make_shards(SIZES, count)
        for name in SHAPES:
            parts = [
                combine(coefficients, [shard_of(update, shard)[name] for update in updates])
                for shard in shards
                if name in shard
            ]
            whole = combine(coefficients, [update[name] for update in updates])
            assert torch.equal(torch.cat(parts), whole.reshape(-1))
