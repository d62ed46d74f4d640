# SPDX-License-Identifier: Apache-2.0
"""Sums of tensors that are stored elsewhere: the bits of those in memory, with a small part in memory at a time."""

from dataclasses import dataclass, field

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fdg_plugins.core import combine, gram, gram_matrix, inner_product, linear
from fdg_plugins.core.stored import Stored

REPEATABLE = settings(derandomize=True, deadline=None)
PANEL, SEGMENT = 8, 32
DTYPES = (torch.bfloat16, torch.float32, torch.float64)


@dataclass
class Shelf(Stored):
    """A tensor that is handed out in parts, and notes how long these were."""

    values: torch.Tensor
    lengths: list[int] = field(default_factory=list)

    @property
    def shape(self) -> torch.Size:  # type: ignore[override]
        return self.values.shape

    @property
    def dtype(self) -> torch.dtype:  # type: ignore[override]
        return self.values.dtype

    def read(self, start: int, stop: int) -> torch.Tensor:
        self.lengths.append(stop - start)
        return self.values.reshape(-1)[start:stop].clone()


def updates(sizes: list[int], count: int, dtype: torch.dtype, seed: int) -> list[dict[str, torch.Tensor]]:
    generator = torch.Generator().manual_seed(seed)
    return [
        {f"w{k}": torch.randn(size, generator=generator).to(dtype).view(-1, 1) for k, size in enumerate(sizes)}
        for _ in range(count)
    ]


def shelved(update: dict[str, torch.Tensor]) -> dict[str, Shelf]:
    return {name: Shelf(value) for name, value in update.items()}


@REPEATABLE
@given(
    sizes=st.lists(st.integers(0, 5 * SEGMENT), min_size=1, max_size=4),
    count=st.integers(1, 5),
    dtype=st.sampled_from(DTYPES),
    loaded=st.integers(1, 20 * PANEL),
    seed=st.integers(0, 2**31),
)
def test_stored_sums_have_same_bits(sizes: list[int], count: int, dtype: torch.dtype, loaded: int, seed: int) -> None:
    held = updates(sizes, count, dtype, seed)
    kept = [shelved(update) for update in held]
    coefficients = torch.linspace(-0.3, 1.7, count, dtype=torch.float64)
    with pytest.MonkeyPatch.context() as patch:
        for module, name, value in (
            (gram, "PANEL", PANEL),
            (gram, "PANELS", SEGMENT // PANEL),
            (gram, "LOADED", loaded),
            (linear, "BLOCK", PANEL),
            (linear, "CHUNK", 2 * PANEL),
        ):
            patch.setattr(module, name, value)
        assert torch.equal(gram_matrix(kept), gram_matrix(held))
        assert torch.equal(gram_matrix([*held[:1], *kept[1:]]), gram_matrix(held))
        assert inner_product(kept[0], held[-1]) == inner_product(held[0], held[-1])
        for name in held[0]:
            total = combine(coefficients, [update[name] for update in kept])
            expected = combine(coefficients, [update[name] for update in held])
            assert (total.shape, total.dtype) == (expected.shape, expected.dtype)
            assert torch.equal(total, expected)


@pytest.mark.parametrize("count", [1, 3, 40])
def test_a_part_of_what_is_stored_is_in_memory_at_a_time(count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gram, "LOADED", 64 * gram.PANEL)
    vector = torch.ones(gram.PANELS * gram.PANEL + 3)
    rows = [Shelf(vector) for _ in range(count)]
    gram_matrix([{"w": row} for row in rows])
    longest = max(length for row in rows for length in row.lengths)
    assert count * longest <= max(gram.LOADED, count * gram.PANEL)
    assert all(sum(row.lengths) == len(vector) for row in rows), "read once"
    for row in rows:
        row.lengths.clear()
    combine(torch.ones(count), rows)
    assert max(length for row in rows for length in row.lengths) <= linear.CHUNK * torch.get_num_threads()
    assert all(sum(row.lengths) == len(vector) for row in rows), "read once"
