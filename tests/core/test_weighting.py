# SPDX-License-Identifier: Apache-2.0
"""Reference weights: on the simplex, in the order given, refused where they cannot be."""

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fdg_plugins.core import sample_weights, uniform_weights

REPEATABLE = settings(derandomize=True, deadline=None)
COUNTS = st.lists(st.integers(1, 10**9), min_size=1, max_size=50)


def assert_on_simplex(weights: torch.Tensor, count: int) -> None:
    assert weights.dtype == torch.float64
    assert weights.shape == (count,)
    assert bool((weights >= 0).all())
    assert abs(weights.sum().item() - 1) <= 1e-12


def test_uniform_weights_are_equal_and_on_the_simplex() -> None:
    for count in [1, 2, 3, 7, 100]:
        weights = uniform_weights(count)
        assert_on_simplex(weights, count)
        assert weights.tolist() == [1 / count] * count


@REPEATABLE
@given(counts=COUNTS)
def test_sample_weights_are_on_the_simplex_and_proportional(counts: list[int]) -> None:
    weights = sample_weights(counts)
    assert_on_simplex(weights, len(counts))
    torch.testing.assert_close(weights * sum(counts), torch.tensor(counts, dtype=torch.float64), rtol=1e-12, atol=0.0)
