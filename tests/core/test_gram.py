# SPDX-License-Identifier: Apache-2.0
"""Gram matrices against inner products, in any cut into segments and panels, order of names and number of threads."""

import pytest
import torch

from fdg_plugins.core import gram, gram_matrix, inner_product

PANEL, SEGMENT = 8, 32


def vectors(size: int, count: int, seed: int = 0, dtype: torch.dtype = torch.float32) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return [torch.randn(size, generator=generator, dtype=torch.float64).to(dtype) for _ in range(count)]


def by_pairs(updates: list[torch.Tensor]) -> torch.Tensor:
    return torch.tensor([[inner_product(row, column) for column in updates] for row in updates], dtype=torch.float64)


def test_it_holds_the_product_of_every_pair_in_float64() -> None:
    cases: list[torch.dtype] = [torch.float16, torch.bfloat16, torch.float32, torch.float64]
    for dtype in cases:
        updates = [100 * vector for vector in vectors(9 * gram.PANEL + 3, count=4, dtype=dtype)]
        product = gram_matrix(updates)
        assert product.dtype == torch.float64
        lengths = product.diagonal().sqrt()
        assert float(((product - by_pairs(updates)).abs() / lengths.outer(lengths)).max()) <= 1e-13


@pytest.mark.usefixtures("threads")
@pytest.mark.parametrize("count", [3, 5, 32])
def test_it_has_the_same_bits_for_any_number_of_threads_and_leaves_that_number(count: int) -> None:
    updates = [{"a": row, "b": row[:1000]} for row in vectors(2 * gram.PANELS * gram.panel_length(count) + 3, count)]
    products = []
    for number in (1, 2, 5):
        torch.set_num_threads(number)
        products.append(gram_matrix(updates))
        assert torch.get_num_threads() == number
    assert all(torch.equal(product, products[0]) for product in products)
