# SPDX-License-Identifier: Apache-2.0
"""Lengths and cosines of a round: by hand, with and without a Gram matrix that is known, and beside zero."""

from typing import Any

import pytest
import torch

from fdg_plugins.core.gram import gram_matrix, inner_products
from fdg_plugins.core.measures import divergence, measure_step

UPDATES = [{"a": torch.tensor([7.0]), "b": torch.tensor([0.0])}, {"a": torch.tensor([0.0]), "b": torch.tensor([7.0])}]
P = torch.tensor([3 / 7, 4 / 7], dtype=torch.float64)


@pytest.mark.parametrize("gram", [None, gram_matrix(UPDATES)])
def test_two_updates_and_a_step_by_hand(gram: Any) -> None:
    # The mean of (7, 0) and (0, 7) with p = (3, 4) / 7 is (3, 4), of length 5; the step (4, 3) is half the direction.
    step = {"a": torch.tensor([4.0]), "b": torch.tensor([3.0])}
    found = measure_step(UPDATES, step, P, 0.5, gram)
    assert found["update_norms"] == pytest.approx([7.0, 7.0])
    assert found["mean_norm"] == pytest.approx(5.0)
    assert found["gradient_divergence"] == pytest.approx(98**0.5)
    assert found["direction_norm"] == pytest.approx(10.0)
    assert found["cosines_with_mean"] == pytest.approx([0.6, 0.8])
    assert found["cosines_with_direction"] == pytest.approx([0.8, 0.6])


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
