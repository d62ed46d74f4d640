# SPDX-License-Identifier: Apache-2.0
"""The matching problem of FedOMG: solved to optimality, certified, with the degenerate cases exact."""

from fractions import Fraction

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fdg_plugins.core import (
    gram_matrix,
    invariant_coefficients,
    invariant_direction,
    match,
    matching,
    matching_objective,
)
from fdg_plugins.core.matching import RELEASED_DAMPING, ConeProgram, moving_sites
from tests.random_tensors import normal_double as normal

REPEATABLE = settings(derandomize=True, deadline=None, max_examples=30)
KAPPAS = (0.01, 0.1, 0.5, 1.0, 2.0, 10.0)
SEEDS = st.integers(0, 2**31)
MODERATE = st.sampled_from((0.1, 0.5, 2.0))
LENGTH = 40  # P of the random updates


# --- a family of updates, and references that know nothing of cones ---


def independent(seed: int, count: int) -> torch.Tensor:
    return normal(seed, count, LENGTH)


def agreeing(seed: int, count: int) -> torch.Tensor:
    """Updates of one common part, of lengths that differ by orders of magnitude."""
    return (normal(seed, 1, LENGTH) + normal(seed + 1, count, LENGTH)) * normal(seed + 2, count, 1).mul(2).exp()


def rank_deficient(seed: int, count: int) -> torch.Tensor:
    return normal(seed, count, 2) @ normal(seed + 1, 2, LENGTH)


def nearly_equal(seed: int, count: int) -> torch.Tensor:
    return normal(seed, 1, LENGTH) + 1e-7 * normal(seed + 1, count, LENGTH)


def with_a_zero(seed: int, count: int) -> torch.Tensor:
    updates = independent(seed, count)
    updates[0] = 0.0
    return updates


def with_an_opposite(seed: int, count: int) -> torch.Tensor:
    updates = independent(seed, count)
    updates[-1] = -updates[0]
    return updates


FAMILY = (independent, agreeing, rank_deficient, nearly_equal, with_a_zero, with_an_opposite)


def on_simplex(seed: int, count: int) -> torch.Tensor:
    weights = -torch.rand(count, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).log()
    return weights / weights.sum()


def objective(updates: torch.Tensor, p: torch.Tensor, kappa: float, gamma: torch.Tensor) -> torch.Tensor:
    """Eq. 15 as printed, on the vectors: ``<Gamma g, g_FL> + kappa |g_FL| |Gamma g|``, for ``gamma [..., U]``."""
    matched, mean = gamma @ updates, p @ updates
    return matched @ mean + kappa * mean.norm() * matched.norm(dim=-1)


def size(updates: torch.Tensor, p: torch.Tensor, kappa: float) -> float:
    """The largest size that F can have: the measure of its rounding errors."""
    return float((1 + kappa) * (p @ updates).norm() * updates.norm(dim=1).max())


def grid(count: int, steps: int) -> torch.Tensor:
    """All points of the simplex of two or three sites whose coordinates are multiples of ``1 / steps``."""
    first = torch.arange(steps + 1, dtype=torch.float64) / steps
    if count == 2:
        return torch.stack([first, 1 - first], dim=1)
    points = torch.cartesian_prod(first, first)
    points = points[points.sum(dim=1) <= 1]
    return torch.cat([points, 1 - points.sum(dim=1, keepdim=True)], dim=1)


@st.composite
def problems(draw: st.DrawFn, largest: int = 6) -> tuple[torch.Tensor, torch.Tensor, float]:
    """Updates ``[U, P]`` of the family, reference weights and a radius."""
    count, seed = draw(st.integers(2, largest)), draw(SEEDS)
    updates = draw(st.sampled_from(FAMILY))(seed, count)
    return updates, on_simplex(seed, count), draw(st.sampled_from(KAPPAS))


@REPEATABLE
@given(problem=problems(largest=3))
def test_no_point_of_a_fine_grid_is_better(problem: tuple[torch.Tensor, torch.Tensor, float]) -> None:
    updates, p, kappa = problem
    gamma = match(gram_matrix(updates), p, kappa).weights
    best = objective(updates, p, kappa, grid(len(updates), 1000 if len(updates) == 2 else 100)).min()
    assert objective(updates, p, kappa, gamma) <= best + 1e-8 * size(updates, p, kappa)


@REPEATABLE
@given(problem=problems(largest=3), seed=SEEDS)
def test_gap_bounds_the_distance(problem: tuple[torch.Tensor, torch.Tensor, float], seed: int) -> None:
    updates, p, kappa = problem
    gram = gram_matrix(updates)
    gamma, dual = on_simplex(seed, len(p)), normal(seed, len(np.linalg.eigvalsh(gram.numpy())))

    def stopped(problem: ConeProgram) -> tuple[np.ndarray, np.ndarray]:
        return gamma.numpy(), dual.numpy()[: len(problem.factor)]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(matching, "minimise", lambda *problem: None)
        patch.setattr(ConeProgram, "solve", stopped)
        solved = match(gram, p, kappa)
    best = objective(updates, p, kappa, grid(len(p), 1000 if len(p) == 2 else 100)).min()
    distance = solved.objective - float(best)
    assert solved.objective == pytest.approx(matching_objective(gram, p, kappa, gamma), rel=1e-6, abs=1e-6)
    assert distance <= solved.gap * max(abs(solved.objective), size(updates, p, kappa)) + 2e-8 * size(updates, p, kappa)
    if distance > 1e-6 * abs(solved.objective) > 1e-6 * size(updates, p, kappa):
        assert solved.gap >= 0.999 * distance / abs(solved.objective)


def test_a_hand_sized_example_of_two_sites() -> None:
    # g_1 = (7, 0), g_2 = (0, 7), p = (3/7, 4/7), kappa = 1: g_FL = (3, 4) has length 5, so d = (3, 4) + 5 u with u the
    # unit vector along Gamma g = 7 (gamma_1, gamma_2). With both weights positive, the slope of F along the simplex is
    # <g_1, d> - <g_2, d> = 0, so d = (s, s) and u = (s - 3, s - 4) / 5: s = 7, u = (4, 3) / 5. Hence d = (7, 7),
    # gamma = (4/7, 3/7), Gamma g = (4, 3), and F = <(4, 3), (3, 4)> + 5 * 5 = 24 + 25 = 49.
    updates = torch.tensor([[7.0, 0.0], [0.0, 7.0]], dtype=torch.float64)
    p = torch.tensor([3.0, 4.0], dtype=torch.float64) / 7
    gram = gram_matrix(updates)
    solved = match(gram, p, 1.0)
    np.testing.assert_allclose(solved.weights, [4 / 7, 3 / 7], atol=1e-6)
    assert solved.objective == pytest.approx(49.0, rel=1e-10)
    assert solved.gap <= 1e-9
    np.testing.assert_allclose(invariant_direction(updates, p, 1.0), [7.0, 7.0], atol=1e-5)
    np.testing.assert_allclose(invariant_direction(updates, p, 1.0, rescale=True), [3.5, 3.5], atol=1e-5)  # 1 + 1**2
    # Exact at gamma = (4/7, 3/7): p + kappa * 5 / 5 * gamma = (1, 1).
    coefficients = invariant_coefficients(gram, p, 1.0, [float(Fraction(4, 7)), float(Fraction(3, 7))])
    np.testing.assert_allclose(coefficients, [1.0, 1.0], rtol=1e-12)


def test_opposite_updates_cancel_and_leave_the_mean_update() -> None:
    cases_2: list[list[float]] = [[0.7, 0.3], [0.3, 0.7], [0.9, 0.1]]
    for kappa in [1.5, 2.0, 10.0]:
        for p in cases_2:
            # With x = gamma_1 - gamma_2 and g_FL = (p_1 - p_2) g, F is |g|^2 ((p_1 - p_2) x + kappa |p_1 - p_2| |x|):
            # for kappa > 1 least at x = 0, where Gamma g vanishes.
            update = independent(6, 1)
            updates = torch.cat([update, -update])
            solved = match(gram_matrix(updates), p, kappa)
            np.testing.assert_allclose(solved.weights, [0.5, 0.5], atol=1e-7)
            assert solved.gap <= 1e-9
            direction = invariant_direction(updates, p, kappa)
            torch.testing.assert_close(direction, (p[0] - p[1]) * update[0], rtol=1e-12, atol=1e-12)


def of_one_length(seed: int, count: int) -> torch.Tensor:
    """Updates ``[U, P]`` of length one with a common part, so that no direction lies between opposites."""
    updates = 2 * normal(seed, 1, LENGTH) + normal(seed + 1, count, LENGTH)
    return updates / updates.norm(dim=1, keepdim=True)


def uniform(count: int) -> torch.Tensor:
    return torch.full((count,), 1 / count, dtype=torch.float64)


def damped_direction(
    updates: torch.Tensor, kappa: float, damping: float = 0.0, idle_below: float = 0.0
) -> torch.Tensor:
    gram, p = gram_matrix(updates), uniform(len(updates))
    gamma = match(gram, p, kappa, damping, moving_sites(gram, idle_below)).weights
    return invariant_coefficients(gram, p, kappa, gamma, damping=damping) @ updates


@REPEATABLE
@given(SEEDS, st.integers(2, 6), MODERATE)
def test_no_point_of_the_simplex_is_better_than_the_damped_optimum(seed: int, count: int, kappa: float) -> None:
    gram, p = gram_matrix(normal(seed, count, LENGTH)), uniform(count)
    found = match(gram, p, kappa, RELEASED_DAMPING)
    assert found.gap <= 1e-8
    assert found.objective == pytest.approx(matching_objective(gram, p, kappa, found.weights, RELEASED_DAMPING))
    for other in torch.distributions.Dirichlet(torch.ones(count, dtype=torch.float64)).sample((50,)):
        assert matching_objective(gram, p, kappa, other / other.sum(), RELEASED_DAMPING) >= found.objective * (1 - 1e-9)


@REPEATABLE
@given(SEEDS, st.integers(2, 6), MODERATE)
def test_with_damping_the_direction_is_continuous(seed: int, count: int, kappa: float) -> None:
    """Also where the undamped one jumps: next to updates that cancel, and to a site that does not move."""
    updates = normal(seed, count, LENGTH)
    updates[-1] = -updates[:-1].sum(dim=0) * (seed % 2)  # cancels, or stands still
    before = damped_direction(updates, kappa, damping=1e-2)
    changes = [
        float((damped_direction(updates + size * normal(seed + 1, count, LENGTH), kappa, damping=1e-2) - before).norm())
        for size in (1e-3, 1e-5, 1e-7)
    ]
    scale = float(updates.norm())
    assert changes[0] <= scale
    assert changes[2] <= 1e-3 * scale
    assert changes[2] <= changes[0]


@REPEATABLE
@given(SEEDS, st.integers(2, 5), MODERATE)
def test_a_site_that_hardly_moves_changes_only_the_mean(seed: int, count: int, kappa: float) -> None:
    """The direction is the same for any length below the limit, zero included, but for that site's part of the mean."""
    moving, still = of_one_length(seed, count), normal(seed + 2, 1, LENGTH)
    directions = [
        damped_direction(torch.cat([moving, length * still / still.norm()]), kappa, idle_below=1e-3)
        for length in (1e-4, 1e-6, 1e-7, 1e-8, 0.0)
    ]
    for found in directions:
        torch.testing.assert_close(found, directions[-1], rtol=0, atol=1e-3)
    # Matched like any other, it has the whole matched direction, or turns matching off.
    alone = damped_direction(torch.cat([moving, 1e-5 * still / still.norm()]), kappa)
    assert (alone - directions[-1]).norm() > 0.05 * kappa * moving.mean(dim=0).norm()
    assert (damped_direction(torch.cat([moving, 0 * still]), kappa) - moving.sum(dim=0) / (count + 1)).norm() < 1e-9
