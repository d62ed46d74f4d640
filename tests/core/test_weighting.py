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


@pytest.mark.parametrize("count", [1, 2, 3, 7, 100])
def test_uniform_weights_are_equal_and_on_the_simplex(count: int) -> None:
    weights = uniform_weights(count)
    assert_on_simplex(weights, count)
    assert weights.tolist() == [1 / count] * count


@REPEATABLE
@given(counts=COUNTS)
def test_sample_weights_are_on_the_simplex_and_proportional(counts: list[int]) -> None:
    weights = sample_weights(counts)
    assert_on_simplex(weights, len(counts))
    torch.testing.assert_close(weights * sum(counts), torch.tensor(counts, dtype=torch.float64), rtol=1e-12, atol=0.0)


def test_sample_weights_follow_the_order_of_the_sites() -> None:
    assert sample_weights([1, 3]).tolist() == [0.25, 0.75]
    assert sample_weights([3, 1]).tolist() == [0.75, 0.25]


def test_the_weight_of_a_single_site_is_one() -> None:
    assert uniform_weights(1).tolist() == sample_weights([7]).tolist() == [1.0]


@pytest.mark.parametrize("count", [0, -1])
def test_uniform_weights_of_no_site_are_refused(count: int) -> None:
    with pytest.raises(ValueError, match=f"at least one site, got {count}"):
        uniform_weights(count)


@pytest.mark.parametrize("counts", [[], [0], [3, 0], [3, -1], [3, float("nan")], [3, float("inf")]])
def test_sample_weights_of_a_count_that_is_not_positive_are_refused(counts: list[float]) -> None:
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


@pytest.mark.parametrize(
    "weights",
    [
        [0.5, 0.4],
        [0.5, 0.6],
        [1.5, -0.5],
        [float("nan"), 1.0],
        [float("inf"), 0.0],
        [0.5, 0.5 + 1e-5],
        [0.5, 0.5 - 1e-5],
    ],
)
def test_weights_off_the_simplex_are_refused(weights: list[float]) -> None:
    with pytest.raises(ValueError, match="non-negative and sum to one"):
        check_weights(weights, 2)


def test_weights_given_as_numbers_keep_all_their_digits() -> None:
    assert check_weights([0.3, 0.7], 2).tolist() == [0.3, 0.7]


@pytest.mark.parametrize("weights", [[1.0], [0.5, 0.25, 0.25], [[0.5, 0.5]], [[0.5], [0.5]]])
def test_weights_of_another_number_of_sites_are_refused(weights: list[float]) -> None:
    with pytest.raises(ValueError, match="each of 2 sites, got shape"):
        check_weights(weights, 2)
