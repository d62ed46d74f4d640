# SPDX-License-Identifier: Apache-2.0
"""Sums of tensors, in memory and stored elsewhere: against float64 sums, in any blocks, order, dtype and threads."""

import math
from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fdg_plugins.core import combine, gram, gram_matrix, inner_product, linear
from fdg_plugins.core.gram import divergence, inner_products
from fdg_plugins.core.linear import BLOCK, squared_norm
from fdg_plugins.core.stored import Stored
from tests.random_tensors import normal, normal_double

DTYPES = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
PANEL, SEGMENT = 8, 32


@pytest.fixture
def threads() -> Iterator[None]:
    """Give the number of threads back after a test that changes it."""
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


def vectors(size: int, count: int = 2, seed: int = 0, dtype: torch.dtype = torch.float32) -> list[torch.Tensor]:
    return [row.to(dtype) for row in normal_double(seed, count, size)]


def test_products_are_taken_in_float64_whatever_the_dtype() -> None:
    for size in (0, 1, BLOCK - 1, BLOCK, BLOCK + 1):
        assert inner_product(torch.ones(size), torch.arange(1.0, size + 1)) == size * (size + 1) / 2
    for dtype in DTYPES:
        # In float16 300 * 300 overflows, and 1e5 terms added in float32 or less lose digits.
        first, second = (100 * vector for vector in vectors(100_000, dtype=dtype))
        terms = (first.double() * second.double()).numpy()  # a few roundings of float64 in the sum of their sizes
        assert abs(inner_product(first, second) - math.fsum(terms)) <= 1e-14 * math.fsum(np.abs(terms))
        assert inner_product(torch.full((9,), 300.0, dtype=dtype), torch.full((9,), 300.0, dtype=dtype)) == 9 * 300.0**2


def test_updates_of_different_names_or_shapes_are_refused() -> None:
    for other in ({"b": torch.ones(2)}, {"a": torch.ones(3)}):
        with pytest.raises(ValueError, match="differ"):
            gram_matrix([{"a": torch.ones(2)}, other])
    with pytest.raises(ValueError, match="shapes"):
        combine(torch.ones(2), [torch.ones(2), torch.ones(3)])


def test_a_combination_keeps_dtype_and_shape_and_adds_in_float64() -> None:
    for dtype in DTYPES:
        tensors = [vector.view(4, 25) for vector in vectors(100, count=5, dtype=dtype)]
        coefficients = torch.tensor([0.1, 0.2, 0.3, 0.15, 0.25], dtype=torch.float64)
        total = combine(coefficients, tensors)
        assert total.dtype == dtype
        expected = sum(float(c) * tensor.double() for c, tensor in zip(coefficients, tensors, strict=True))
        assert isinstance(expected, torch.Tensor)
        # Half a unit in the last place of the dtype; of float64, in which the terms are added, a few units.
        tolerance = 4 * torch.finfo(dtype).eps if dtype == torch.float64 else torch.finfo(dtype).eps / 2
        torch.testing.assert_close(
            total.double(), expected, rtol=tolerance, atol=1e-15 if dtype != torch.float16 else 1e-7
        )


def test_a_squared_norm_is_the_sum_of_all_squares_of_all_tensors_whatever_their_sizes() -> None:
    for size in [1, 2, BLOCK - 1, BLOCK, BLOCK + 1, 3 * BLOCK + 7]:
        tensors = [normal(1, size), normal(2, 3, 2), torch.tensor(2.0)]
        expected = sum(float((tensor.double() ** 2).sum()) for tensor in tensors)
        result = squared_norm(tensors)
        assert (result.shape, result.dtype) == ((), torch.float64)
        assert result.item() == pytest.approx(expected, rel=1e-6)
        assert squared_norm([tensor.double() for tensor in tensors]).item() == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("scale", [1e-30, 1.0, 1e30])
def test_scales_at_which_float32_has_no_squares_are_legal(scale: float) -> None:
    assert squared_norm([torch.tensor([3.0, 4.0]) * scale]).sqrt().item() == pytest.approx(5 * scale, rel=1e-6)


def test_it_holds_the_product_of_every_pair_in_float64() -> None:
    for dtype in DTYPES:
        updates = [100 * vector for vector in vectors(9 * gram.PANEL + 3, count=4, dtype=dtype)]
        product = gram_matrix(updates)
        assert product.dtype == torch.float64
        lengths = product.diagonal().sqrt()
        pairs = torch.tensor([[inner_product(one, two) for two in updates] for one in updates], dtype=torch.float64)
        assert float(((product - pairs).abs() / lengths.outer(lengths)).max()) <= 1e-13
        torch.testing.assert_close(inner_products(updates[0], updates), pairs[0])
    assert inner_products(updates[0], []).tolist() == []


@pytest.mark.usefixtures("threads")
@pytest.mark.parametrize("count", [3, 5, 32])
def test_the_number_of_threads_changes_no_bit_and_stays(count: int) -> None:
    updates = [{"a": row, "b": row[:1000]} for row in vectors(2 * gram.PANELS * gram.panel_length(count) + 3, count)]
    norms, products = [], []
    for number in (1, 2, 3, 8):
        torch.set_num_threads(number)
        norms.append(squared_norm(updates[0].values()))
        products.append(gram_matrix(updates))
        assert torch.get_num_threads() == number
    assert all(torch.equal(one, found[0]) for found in (norms, products) for one in found)


def test_the_divergence_is_the_mean_distance_of_two_updates() -> None:
    rows = normal_double(0, 5, 30)
    distances = [float((rows[i] - rows[j]).norm()) for i in range(5) for j in range(i)]
    assert divergence(rows @ rows.T) == pytest.approx(sum(distances) / len(distances))
    assert divergence(rows[:1] @ rows[:1].T) == 0.0
    assert divergence(torch.ones(3, 3)) == 0.0, "equal updates"


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
    drawn = [normal(seed + k, count, size, 1).to(dtype) for k, size in enumerate(sizes)]
    return [{f"w{k}": rows[number] for k, rows in enumerate(drawn)} for number in range(count)]


@settings(derandomize=True, deadline=None)
@given(
    sizes=st.lists(st.integers(0, 5 * SEGMENT), min_size=1, max_size=4),
    count=st.integers(1, 5),
    dtype=st.sampled_from(DTYPES[1:]),
    loaded=st.integers(1, 20 * PANEL),
    seed=st.integers(0, 2**31),
)
def test_stored_sums_have_same_bits(sizes: list[int], count: int, dtype: torch.dtype, loaded: int, seed: int) -> None:
    held = updates(sizes, count, dtype, seed)
    kept = [{name: Shelf(value) for name, value in update.items()} for update in held]
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
