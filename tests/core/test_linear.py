# SPDX-License-Identifier: Apache-2.0
"""Inner products and combinations against float64 sums of numpy, in any blocks, order and dtype."""

import math

import numpy as np
import pytest
import torch

from fdg_plugins.core import combine, inner_product, linear

SMALL_BLOCK, SMALL_CHUNK = 8, 32
AROUND_SMALL_BLOCKS = (0, 1, 7, 8, 9, 31, 32, 33, 40, 41, 63, 64, 65, 100)


@pytest.fixture
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(linear, "BLOCK", SMALL_BLOCK)
    monkeypatch.setattr(linear, "CHUNK", SMALL_CHUNK)


def vectors(size: int, count: int = 2, seed: int = 0, dtype: torch.dtype = torch.float32) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return [torch.randn(size, generator=generator, dtype=torch.float64).to(dtype) for _ in range(count)]


def products(first: torch.Tensor, second: torch.Tensor) -> np.ndarray:
    return (first.double() * second.double()).numpy().reshape(-1)


def assert_sum(value: float, terms: np.ndarray) -> None:
    """``value`` is the sum of ``terms`` to a few roundings of float64 in the sum of their sizes."""
    assert abs(value - math.fsum(terms)) <= 1e-14 * math.fsum(np.abs(terms))


# --- inner products ---


@pytest.mark.usefixtures("small_blocks")
def test_an_inner_product_counts_every_element_once_whatever_the_blocks() -> None:
    for size in AROUND_SMALL_BLOCKS:
        ones = torch.ones(size)
        assert inner_product(ones, torch.arange(1.0, size + 1)) == size * (size + 1) / 2
        first, second = vectors(size)
        assert_sum(inner_product(first, second), products(first, second))


@pytest.mark.parametrize("chunk", [1, 2, 7])
def test_an_inner_product_and_a_combination_have_the_same_bits_whatever_fits_a_cache(
    chunk: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    tensors = vectors(5 * linear.BLOCK + 3, count=3)
    coefficients = torch.tensor([0.1, 0.2, 0.7])
    product, total = inner_product(*tensors[:2]), combine(coefficients, tensors)
    monkeypatch.setattr(linear, "CHUNK", chunk * linear.BLOCK)
    assert inner_product(*tensors[:2]) == product
    assert torch.equal(combine(coefficients, tensors), total)


def test_products_are_taken_in_float64_whatever_the_dtype() -> None:
    cases: list[torch.dtype] = [torch.float16, torch.bfloat16, torch.float32, torch.float64]
    for dtype in cases:
        # In float16 300 * 300 overflows, and 1e5 terms added in float32 or less lose digits.
        first, second = (100 * vector for vector in vectors(100_000, dtype=dtype))
        assert_sum(inner_product(first, second), products(first, second))
        assert inner_product(torch.full((9,), 300.0, dtype=dtype), torch.full((9,), 300.0, dtype=dtype)) == 9 * 300.0**2


# --- combinations ---


def test_a_combination_pairs_each_coefficient_with_its_tensor() -> None:
    tensors = [torch.tensor([1.0, 10.0]), torch.tensor([100.0, 1000.0]), torch.tensor([-1.0, 0.5])]
    # 2 * 1 - 3 * 100 + 0.5 * (-1) = -298.5 and 2 * 10 - 3 * 1000 + 0.5 * 0.5 = -2979.75
    total = combine(torch.tensor([2.0, -3.0, 0.5]), tensors)
    assert torch.equal(total, torch.tensor([-298.5, -2979.75]))


def test_a_combination_keeps_dtype_and_shape_and_adds_in_float64() -> None:
    cases: list[torch.dtype] = [torch.float16, torch.bfloat16, torch.float32, torch.float64]
    for dtype in cases:
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
