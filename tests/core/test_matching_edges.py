# SPDX-License-Identifier: Apache-2.0
"""The edges of FedOMG's matching: damping, sites that hardly move, and updates that can be averaged to zero."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fdg_plugins.core import gram_matrix, invariant_coefficients, match, matching_objective
from fdg_plugins.core.matching import RELEASED_DAMPING, moving_sites
from tests.random_tensors import normal_double as normal

REPEATABLE = settings(derandomize=True, deadline=None, max_examples=30)
SEEDS = st.integers(0, 2**31)
KAPPAS = st.sampled_from((0.1, 0.5, 2.0))
LENGTH = 30


def agreeing(seed: int, count: int) -> torch.Tensor:
    """Updates ``[U, P]`` of length about one with a common part, so that no direction lies between opposites."""
    updates = 2 * normal(seed, 1, LENGTH) + normal(seed + 1, count, LENGTH)
    return updates / updates.norm(dim=1, keepdim=True)


def uniform(count: int) -> torch.Tensor:
    return torch.full((count,), 1 / count, dtype=torch.float64)


def direction(updates: torch.Tensor, kappa: float, damping: float = 0.0, idle_below: float = 0.0) -> torch.Tensor:
    gram, p = gram_matrix(updates), uniform(len(updates))
    gamma = match(gram, p, kappa, damping, moving_sites(gram, idle_below)).weights
    return invariant_coefficients(gram, p, kappa, gamma, damping=damping) @ updates


# --- damping ---


@REPEATABLE
@given(SEEDS, st.integers(2, 6), KAPPAS)
def test_no_point_of_the_simplex_is_better_than_the_damped_optimum(seed: int, count: int, kappa: float) -> None:
    gram, p = gram_matrix(normal(seed, count, LENGTH)), uniform(count)
    found = match(gram, p, kappa, RELEASED_DAMPING)
    assert found.gap <= 1e-8
    assert found.objective == pytest.approx(matching_objective(gram, p, kappa, found.weights, RELEASED_DAMPING))
    for other in torch.distributions.Dirichlet(torch.ones(count, dtype=torch.float64)).sample((50,)):
        assert matching_objective(gram, p, kappa, other / other.sum(), RELEASED_DAMPING) >= found.objective * (1 - 1e-9)


@REPEATABLE
@given(SEEDS, st.integers(2, 6), KAPPAS)
def test_with_damping_the_direction_is_continuous(seed: int, count: int, kappa: float) -> None:
    """Also where the undamped one jumps: next to updates that cancel, and to a site that does not move."""
    updates = normal(seed, count, LENGTH)
    updates[-1] = -updates[:-1].sum(dim=0) * (seed % 2)  # cancels, or stands still
    before = direction(updates, kappa, damping=1e-2)
    changes = [
        float((direction(updates + size * normal(seed + 1, count, LENGTH), kappa, damping=1e-2) - before).norm())
        for size in (1e-3, 1e-5, 1e-7)
    ]
    scale = float(updates.norm())
    assert changes[0] <= scale
    assert changes[2] <= 1e-3 * scale
    assert changes[2] <= changes[0]


@REPEATABLE
@given(SEEDS, st.integers(1, 5), KAPPAS, st.sampled_from((1e-6, 1.0, 1e6)))
def test_damping_keeps_the_exact_cases(seed: int, count: int, kappa: float, scale: float) -> None:
    updates = normal(seed, count, LENGTH)
    damped = direction(updates, kappa, damping=1e-2)
    torch.testing.assert_close(direction(scale * updates, kappa, damping=1e-2), scale * damped, rtol=1e-6, atol=0)
    equal = updates[:1].repeat(count, 1)
    torch.testing.assert_close(direction(equal, kappa, damping=1e-2), (1 + kappa) * updates[0])
    torch.testing.assert_close(direction(updates, 0.0, damping=1e-2), updates.mean(dim=0))


# --- sites that hardly move ---


@REPEATABLE
@given(SEEDS, st.integers(2, 5), KAPPAS)
def test_a_site_that_hardly_moves_changes_only_the_mean(seed: int, count: int, kappa: float) -> None:
    """The direction is the same for any length below the limit, zero included, but for that site's part of the mean."""
    moving, still = agreeing(seed, count), normal(seed + 2, 1, LENGTH)
    directions = [
        direction(torch.cat([moving, length * still / still.norm()]), kappa, idle_below=1e-3)
        for length in (1e-4, 1e-6, 1e-7, 1e-8, 0.0)
    ]
    for found in directions:
        torch.testing.assert_close(found, directions[-1], rtol=0, atol=1e-3)
    # Matched like any other, it has the whole matched direction, or turns matching off.
    alone = direction(torch.cat([moving, 1e-5 * still / still.norm()]), kappa)
    assert (alone - directions[-1]).norm() > 0.05 * kappa * moving.mean(dim=0).norm()
    assert (direction(torch.cat([moving, 0 * still]), kappa) - moving.sum(dim=0) / (count + 1)).norm() < 1e-9


# --- updates that can be averaged to zero ---
