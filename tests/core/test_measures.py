# SPDX-License-Identifier: Apache-2.0
"""Lengths and cosines of a round: by hand, with and without a Gram matrix that is known, and beside zero."""

import pytest
import torch

from fdg_plugins.core.gram import divergence, inner_products


def test_the_divergence_is_the_mean_distance_of_two_updates() -> None:
    rows = torch.randn(5, 30, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    distances = [float((rows[i] - rows[j]).norm()) for i in range(5) for j in range(i)]
    assert divergence(rows @ rows.T) == pytest.approx(sum(distances) / len(distances))
    assert divergence(rows[:1] @ rows[:1].T) == 0.0
    assert divergence(torch.ones(3, 3)) == 0.0, "equal updates"


def test_inner_products_are_those_of_the_gram_matrix() -> None:
    generator = torch.Generator().manual_seed(0)
    rows = torch.randn(4, 300_001, generator=generator)
    products = inner_products(rows[0], list(rows))
    torch.testing.assert_close(products, rows.double() @ rows[0].double())
    assert inner_products(rows[0], []).tolist() == []
