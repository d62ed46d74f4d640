# SPDX-License-Identifier: Apache-2.0
"""The matching problem of FedOMG: solved to optimality, certified, with the degenerate cases exact; and of groups."""

import dataclasses
from fractions import Fraction

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fdg_plugins.core import (
    Matching,
    active_set,
    gram_matrix,
    group_means,
    invariant_coefficients,
    invariant_direction,
    match,
    match_groups,
    matching,
    matching_objective,
    uniform_weights,
)
from fdg_plugins.core.active_set import minimise
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
    update = independent(6, 1)
    updates = torch.cat([update, -update])
    for kappa in (1.5, 2.0, 10.0):
        for p in ([0.7, 0.3], [0.3, 0.7], [0.9, 0.1]):
            # With x = gamma_1 - gamma_2 and g_FL = (p_1 - p_2) g, F is |g|^2 ((p_1 - p_2) x + kappa |p_1 - p_2| |x|):
            # for kappa > 1 least at x = 0, where Gamma g vanishes.
            solved = match(gram_matrix(updates), p, kappa)
            np.testing.assert_allclose(solved.weights, [0.5, 0.5], atol=1e-7)
            assert solved.gap <= 1e-9
            direction = invariant_direction(updates, p, kappa)
            torch.testing.assert_close(direction, (p[0] - p[1]) * update[0], rtol=1e-12, atol=1e-12)


def damped_direction(
    updates: torch.Tensor, kappa: float, damping: float = 0.0, idle_below: float = 0.0
) -> torch.Tensor:
    gram, p = gram_matrix(updates), uniform_weights(len(updates))
    gamma = match(gram, p, kappa, damping, moving_sites(gram, idle_below)).weights
    return invariant_coefficients(gram, p, kappa, gamma, damping=damping) @ updates


@REPEATABLE
@given(SEEDS, st.integers(2, 6), MODERATE)
def test_no_point_of_the_simplex_is_better_than_the_damped_optimum(seed: int, count: int, kappa: float) -> None:
    gram, p = gram_matrix(normal(seed, count, LENGTH)), uniform_weights(count)
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
    moving, still = 2 * normal(seed, 1, LENGTH) + normal(seed + 1, count, LENGTH), normal(seed + 2, 1, LENGTH)
    moving /= moving.norm(dim=1, keepdim=True)  # with a common part, so that no direction lies between opposites
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


# The active set against the cone program: never worse, certified, replaced where its certificate falls short.


def twice_the_same(seed: int, count: int) -> torch.Tensor:
    return torch.cat([agreeing(seed, count)] * 2)[:count]


def nearly_collinear(seed: int, count: int) -> torch.Tensor:
    """Groups of five updates that differ by a hundredth."""
    return independent(seed, count).repeat_interleave(5, dim=0)[:count] + 1e-2 * independent(seed + 1, count)


def dominated(seed: int, count: int) -> torch.Tensor:
    updates = normal(seed, 1, LENGTH) + independent(seed + 1, count)
    updates[0] *= 1e4
    return updates


def solved(updates: torch.Tensor, p: torch.Tensor, kappa: float) -> Matching:
    return match(updates @ updates.T, p, kappa)


def by_cone_program(updates: torch.Tensor, p: torch.Tensor, kappa: float) -> Matching:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(matching, "minimise", lambda *problem: None)
        return solved(updates, p, kappa)


def test_the_objective_is_certified_and_never_above_that_of_the_cone_program() -> None:
    for count in [3, 30]:
        for sampler in (*FAMILY, twice_the_same, nearly_collinear, dominated):
            updates, p = sampler(count, count), on_simplex(count, count)
            for kappa in (1e-3, 5.0):
                ours, cone = solved(updates, p, kappa), by_cone_program(updates, p, kappa)
                # The root of a float64 near zero is known to half its digits.
                rounding = 1e-9 * abs(cone.objective) + 1e-12 * size(updates, p, kappa)
                assert ours.gap <= 1e-6
                assert ours.objective <= cone.objective + rounding
                assert ours.objective >= cone.objective - cone.gap * abs(cone.objective) - rounding


def test_a_thousand_sites_are_certified_without_a_cone_program(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ConeProgram, "solve", None)
    updates = normal(0, 1, 1200) + normal(1, 1000, 1200)
    minimum = match(updates @ updates.T, uniform_weights(1000), 0.5)
    assert minimum.gap <= 1e-9
    assert 10 < int((minimum.weights > 0).sum()) < 1000


def test_updates_that_cancel_share_the_weight() -> None:
    for kappa in [0.5, 1.0, 5.0]:
        for count in [3, 10]:
            minimum = solved(with_an_opposite(3, count), uniform_weights(count), kappa)
            assert minimum.gap <= 1e-9
            assert minimum.weights[[0, -1]].tolist() == pytest.approx([0.5, 0.5], abs=1e-6)


def test_of_the_two_results_the_better_proven_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    def unproven(*problem: object) -> active_set.Minimum:
        minimum = minimise(*problem)  # type: ignore[arg-type]
        assert minimum is not None
        return dataclasses.replace(minimum, bound=minimum.value * (1 - 1e-7))

    def stopped_early(self: ConeProgram) -> tuple[np.ndarray, np.ndarray]:
        return np.full(4, 0.25), np.zeros(len(self.factor))

    updates, p = agreeing(1, 4), uniform_weights(4)
    expected = solved(updates, p, 0.5)
    monkeypatch.setattr(matching, "minimise", unproven)
    monkeypatch.setattr(ConeProgram, "solve", stopped_early)
    minimum = solved(updates, p, 0.5)
    assert torch.equal(minimum.weights, expected.weights)
    assert minimum.gap == pytest.approx(1e-7, rel=1e-6)


def test_updates_of_length_zero_take_all_weight_where_every_other_would_add_to_f() -> None:
    updates = torch.cat([torch.zeros(2, LENGTH, dtype=torch.float64), agreeing(0, 3)])
    minimum = solved(updates, uniform_weights(5), 0.5)
    assert minimum.weights.tolist() == [0.5, 0.5, 0, 0, 0]
    assert (minimum.objective, minimum.gap) == (0.0, 0.0)


# --- means of groups ---


@REPEATABLE
@given(seed=st.integers(0, 1000), damping=st.sampled_from([0.0, 1e-4]))
def test_one_site_per_group_is_the_matching_of_sites_bit_for_bit(seed: int, damping: float) -> None:
    gram, p = gram_matrix(normal(seed, 5, 20) + 0.3), on_simplex(seed, 5)
    found, moving = match_groups(gram, p, 0.5, group_means("abcde", p), damping)
    plain = match(gram, p, 0.5, damping)
    assert torch.equal(found.weights, plain.weights)
    assert (found.objective, found.gap) == (plain.objective, plain.gap)
    assert moving.tolist() == [True] * 5


@REPEATABLE
@given(seed=st.integers(0, 1000), damping=st.sampled_from([0.0, 1e-2]))
def test_gamma_is_on_the_simplex_and_never_below_the_optimum_over_all_sites(seed: int, damping: float) -> None:
    gram, p, groups = gram_matrix(normal(seed, 7, 20) + 0.3), on_simplex(seed, 7), "abacabc"
    found, _ = match_groups(gram, p, 0.5, group_means(groups, p), damping)
    assert bool((found.weights >= 0).all())
    assert float(found.weights.sum()) == pytest.approx(1.0)
    value = matching_objective(gram, p, 0.5, found.weights, damping)
    assert value == pytest.approx(found.objective, rel=1e-9)
    assert value >= match(gram, p, 0.5, damping).objective * (1 - 1e-8)


def test_a_group_of_weight_zero_has_the_plain_mean_and_an_idle_group_is_not_matched() -> None:
    p = torch.tensor([0.5, 0.5, 0.0, 0.0], dtype=torch.float64)
    means = group_means("aabb", p)
    assert means.tolist() == [[0.5, 0.5, 0.0, 0.0], [0.0, 0.0, 0.5, 0.5]]
    updates = torch.tensor([[1.0, 0.0], [1.0, 1.0], [1e-9, 0.0], [1e-9, 0.0]], dtype=torch.float64)
    found, moving = match_groups(gram_matrix(updates), p, 0.5, means, idle_below=1e-3)
    assert moving.tolist() == [True, False]
    assert found.weights.tolist() == [0.5, 0.5, 0.0, 0.0]
