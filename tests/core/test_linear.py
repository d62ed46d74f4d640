# SPDX-License-Identifier: Apache-2.0
"""Inner products and combinations against float64 sums of numpy, in any blocks, order and dtype."""

import math

import numpy as np
import pytest
import torch

from fdg_plugins.core import combine, inner_product
from fdg_plugins.core.linear import BLOCK, squared_norm
from tests.random_tensors import normal

SMALL_BLOCK, SMALL_CHUNK = 8, 32


def vectors(size: int, count: int = 2, seed: int = 0, dtype: torch.dtype = torch.float32) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return [torch.randn(size, generator=generator, dtype=torch.float64).to(dtype) for _ in range(count)]


def products(first: torch.Tensor, second: torch.Tensor) -> np.ndarray:
    return (first.double() * second.double()).numpy().reshape(-1)


def assert_sum(value: float, terms: np.ndarray) -> None:
    """``value`` is the sum of ``terms`` to a few roundings of float64 in the sum of their sizes."""
    assert abs(value - math.fsum(terms)) <= 1e-14 * math.fsum(np.abs(terms))


def test_products_are_taken_in_float64_whatever_the_dtype() -> None:
    for size in (0, 1, BLOCK - 1, BLOCK, BLOCK + 1):
        assert inner_product(torch.ones(size), torch.arange(1.0, size + 1)) == size * (size + 1) / 2
    cases: list[torch.dtype] = [torch.float16, torch.bfloat16, torch.float32, torch.float64]
    for dtype in cases:
        # In float16 300 * 300 overflows, and 1e5 terms added in float32 or less lose digits.
        first, second = (100 * vector for vector in vectors(100_000, dtype=dtype))
        assert_sum(inner_product(first, second), products(first, second))
        assert inner_product(torch.full((9,), 300.0, dtype=dtype), torch.full((9,), 300.0, dtype=dtype)) == 9 * 300.0**2


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


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.usefixtures("threads")
def test_the_number_of_threads_changes_no_bit(dtype: torch.dtype) -> None:
    tensors = [normal(1, 40 * BLOCK + 5), normal(2, 2 * BLOCK), normal(3, 300, 129), normal(4, 7)]
    tensors = [tensor.to(dtype) for tensor in tensors]
    results = []
    for threads in (1, 2, 3, 8):
        torch.set_num_threads(threads)
        results.append(squared_norm(tensors))
    assert all(torch.equal(result, results[0]) for result in results)
