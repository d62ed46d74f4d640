# SPDX-License-Identifier: Apache-2.0
"""ARFL's closed form: it solves its problem, by hand and by search, and its limits are known exactly."""

import math
from collections.abc import Sequence

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fdg_plugins.core import sample_weights
from fdg_plugins.core.robust_weighting import risk_weights

REPEATABLE = settings(derandomize=True, deadline=None)
LOSSES = st.floats(0, 1e3)
SITES = st.lists(st.tuples(LOSSES, st.integers(1, 10**6)), min_size=1, max_size=8)
STRENGTHS = st.floats(1e-9, 1e9)


def objective(alpha: np.ndarray, losses: Sequence[float], samples: Sequence[int], regularisation: float) -> float:
    """The problem, written out."""
    return float(alpha @ np.array(losses) + regularisation / 2 * (alpha**2 / np.array(samples)).sum())


def simplex_grid(points: int) -> np.ndarray:
    """All points of the simplex of three sites on a grid."""
    share = np.linspace(0, 1, points)
    first, second = (axis.ravel() for axis in np.meshgrid(share, share))
    third = 1 - first - second
    return np.stack([first, second, third], axis=1)[third >= -1e-12]


def test_three_sites_of_which_one_is_left_out_by_hand() -> None:
    # eta_1 = .2 + 1000/100 = 10.2, eta_2 = (20 + 150 + 1000)/400 = 2.925, eta_3 = 4170/1000 = 4.17 < 5: eta = 2.925.
    alpha = risk_weights([0.2, 0.5, 5.0], [100, 300, 600], 1000.0)
    assert alpha.tolist() == pytest.approx([100 * 2.725 / 1000, 300 * 2.425 / 1000, 0.0])
    assert alpha.tolist() == pytest.approx([0.2725, 0.7275, 0.0])


def test_no_point_of_a_grid_on_the_simplex_is_better() -> None:
    cases_2: list[tuple[float, ...]] = [(0.2, 0.5, 5.0), (1.0, 1.0, 1.2), (3.0, 0.1, 0.1), (0.0, 0.0, 0.0)]
    for regularisation in [1.0, 100.0, 1000.0, 1e5]:
        for losses in cases_2:
            samples = [100, 300, 600]
            alpha = risk_weights(losses, samples, regularisation).numpy()
            ours = objective(alpha, losses, samples, regularisation)
            grid = simplex_grid(101)
            values = grid @ np.array(losses) + regularisation / 2 * (grid**2 / np.array(samples)).sum(axis=1)
            assert ours <= values.min() + 1e-12
            assert values.min() <= ours + 0.05 * (max(losses) + regularisation / 100)  # the grid comes near it


@REPEATABLE
@given(sites=SITES, strength=STRENGTHS)
def test_the_weights_lie_on_the_simplex_and_fulfil_the_conditions_of_the_optimum(
    sites: list[tuple[float, int]], strength: float
) -> None:
    losses, samples = [loss for loss, _ in sites], [count for _, count in sites]
    regularisation = strength * sum(samples)
    alpha = risk_weights(losses, samples, regularisation)
    assert alpha.dtype == torch.float64
    assert alpha.shape == (len(sites),)
    assert bool((alpha >= 0).all())
    assert alpha.sum().item() == pytest.approx(1.0, abs=1e-12)
    # Where a site has weight, loss + lambda alpha / n is one value eta; elsewhere the loss alone is not below it.
    slopes = [loss + regularisation * a / n for loss, n, a in zip(losses, samples, alpha.tolist(), strict=True)]
    eta = min(slopes)
    tolerance = 1e-9 * (1 + max(losses) + strength)
    for slope, a in zip(slopes, alpha.tolist(), strict=True):
        assert slope >= eta
        assert slope <= eta + tolerance or a == 0


@REPEATABLE
@given(sites=SITES, strength=STRENGTHS, data=st.data())
def test_permuting_the_sites_permutes_the_weights_to_the_bit(
    sites: list[tuple[float, int]], strength: float, data: st.DataObject
) -> None:
    order = data.draw(st.permutations(range(len(sites))))
    regularisation = strength * sum(count for _, count in sites)
    alpha = risk_weights([loss for loss, _ in sites], [count for _, count in sites], regularisation).tolist()
    permuted = risk_weights([sites[i][0] for i in order], [sites[i][1] for i in order], regularisation).tolist()
    assert permuted == [alpha[i] for i in order]


@REPEATABLE
@given(loss=LOSSES, samples=st.lists(st.integers(1, 10**9), min_size=1, max_size=8), strength=STRENGTHS)
def test_equal_losses_weigh_by_samples_to_the_bit(loss: float, samples: list[int], strength: float) -> None:
    alpha = risk_weights([loss] * len(samples), samples, strength * sum(samples))
    assert alpha.tolist() == sample_weights(samples).tolist()


def test_with_lambda_the_number_of_samples_all_active_weights_are_shares_times_one_plus_the_mean_minus_the_loss() -> (
    None
):
    losses, samples = np.array([0.3, 0.6, 0.1, 0.45]), np.array([10, 20, 30, 40])
    p = samples / samples.sum()
    expected = p * (1 + p @ losses - losses)
    assert (expected > 0).all()
    assert risk_weights(losses.tolist(), samples.tolist(), 100.0).tolist() == pytest.approx(expected.tolist())


@pytest.mark.parametrize("regularisation", [1e30, math.inf])
def test_a_lambda_beyond_all_losses_weighs_by_samples_to_the_bit(regularisation: float) -> None:
    samples = [100, 300, 601]
    assert risk_weights([0.2, 0.5, 5.0], samples, regularisation).tolist() == sample_weights(samples).tolist()


@pytest.mark.parametrize("regularisation", [1e-3, 1e-30, 5e-324])
def test_a_lambda_near_zero_leaves_the_smallest_loss_alone_also_below_its_last_digit(regularisation: float) -> None:
    assert risk_weights([7.5, 0.3, 5.0], [100, 300, 600], regularisation).tolist() == [0.0, 1.0, 0.0]
    assert risk_weights([0.3, 0.3, 5.0], [100, 300, 600], regularisation).tolist() == [0.25, 0.75, 0.0]


def test_moving_all_losses_alike_changes_nothing_and_scaling_them_with_lambda_neither() -> None:
    losses, samples = [0.25, 0.5, 2.0], [100, 300, 600]
    alpha = risk_weights(losses, samples, 1000.0).tolist()
    assert risk_weights([loss + 4 for loss in losses], samples, 1000.0).tolist() == alpha
    for scale in (1e-10, 1e10):
        scaled = risk_weights([scale * loss for loss in losses], samples, scale * 1000.0).tolist()
        assert scaled == pytest.approx(alpha, rel=1e-12)
    assert risk_weights([10 * loss for loss in losses], samples, 1000.0).tolist() != pytest.approx(alpha, abs=0.05)


def test_what_has_no_solution_is_refused() -> None:
    cases: list[tuple[list[float], list[int], float, str]] = [
        ([], [], 1.0, "of each site, got 0 and 0"),
        ([1.0], [1, 2], 1.0, "of each site, got 1 and 2"),
        ([1.0, math.nan], [1, 2], 1.0, r"finite losses, got \[1.0, nan\]"),
        ([1.0, math.inf], [1, 2], 1.0, "finite losses"),
        ([1.0, 2.0], [1, 0], 1.0, r"positive number of samples from every site, got \[1, 0\]"),
        ([1.0, 2.0], [1, 2], 0.0, r"regularisation is 0.0, expected a number above 0"),
        ([1.0, 2.0], [1, 2], math.nan, "regularisation is nan"),
    ]
    for losses, samples, regularisation, message in cases:
        with pytest.raises(ValueError, match=message):
            risk_weights(losses, samples, regularisation)
