# SPDX-License-Identifier: Apache-2.0
"""Reference weights: on the simplex, in the order given, refused where they cannot be."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fdg_plugins.core import check_weights, sample_weights, uniform_weights

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


def test_sample_weights_of_a_count_that_is_not_positive_are_refused() -> None:
    cases: list[list[float]] = [[], [0], [3, 0], [3, -1], [3, float("nan")], [3, float("inf")]]
    for counts in cases:
        with pytest.raises(ValueError, match="positive number of samples from every site"):
            sample_weights(counts)  # type: ignore[arg-type]


@pytest.mark.parametrize("weights", [[0.25, 0.75], torch.tensor([0.25, 0.75]), torch.tensor([1.0, 0.0])])
def test_weights_on_the_simplex_come_back_as_float64(weights: list[float] | torch.Tensor) -> None:
    checked = check_weights(weights, 2)
    assert_on_simplex(checked, 2)
    assert checked.tolist() == torch.as_tensor(weights).tolist()


@pytest.mark.parametrize("total", [1 - 1e-8, 1.0, 1 + 1e-8])
def test_weights_that_sum_to_one_up_to_float32_are_taken(total: float) -> None:
    assert check_weights([total, 0.0], 2).tolist() == [total, 0.0]


def test_weights_off_the_simplex_are_refused() -> None:
    cases: list[list[float]] = [
        [0.5, 0.4],
        [0.5, 0.6],
        [1.5, -0.5],
        [float("nan"), 1.0],
        [float("inf"), 0.0],
        [0.5, 0.5 + 1e-5],
        [0.5, 0.5 - 1e-5],
    ]
    for weights in cases:
        with pytest.raises(ValueError, match="non-negative and sum to one"):
            check_weights(weights, 2)
