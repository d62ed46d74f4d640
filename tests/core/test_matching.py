# SPDX-License-Identifier: Apache-2.0
"""The matching problem of FedOMG: solved to optimality, certified, with the degenerate cases exact."""

from collections.abc import Callable
from fractions import Fraction
from operator import mul

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fdg_plugins.core import (
    combine,
    cone_program,
    gram_matrix,
    invariant_coefficients,
    invariant_direction,
    invariant_weights,
    match,
    matching,
    matching_objective,
)
from fdg_plugins.core.cone_program import ConeProgram
from tests.random_tensors import normal_double as normal

REPEATABLE = settings(derandomize=True, deadline=None, max_examples=30)
KAPPAS = (0.01, 0.1, 0.5, 1.0, 2.0, 10.0)
SEEDS = st.integers(0, 2**31)
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
Sampler = Callable[[int, int], torch.Tensor]


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


def softmax_descent(updates: torch.Tensor, p: torch.Tensor, kappa: float) -> torch.Tensor:
    """What the authors' code does instead: 21 steps of SGD with momentum on the logits of gamma."""
    logits = torch.zeros(len(updates), dtype=torch.float64, requires_grad=True)
    optimizer = torch.optim.SGD([logits], lr=25.0, momentum=0.5)
    best = logits.detach().clone()
    for _ in range(21):
        optimizer.zero_grad()
        loss = objective(updates, p, kappa, logits.softmax(0))
        if loss < objective(updates, p, kappa, best.softmax(0)):
            best = logits.detach().clone()
        loss.backward()
        optimizer.step()
    return best.softmax(0)


def golden_section(function: Callable[[float], float]) -> float:
    """The least value of a convex function on [0, 1]."""
    ratio, low, high = (5**0.5 - 1) / 2, 0.0, 1.0
    for _ in range(60):
        left, right = high - ratio * (high - low), low + ratio * (high - low)
        low, high = (low, right) if function(left) < function(right) else (left, high)
    return min(function(point) for point in (0.0, (low + high) / 2, 1.0))


def brute_force(gram: np.ndarray, p: np.ndarray, kappa: float) -> float:
    """The optimum of two or three sites by nested searches: F is convex, and so is its minimum over a part."""

    rows, towards = gram.tolist(), (gram @ p).tolist()  # plain numbers: faster than arrays for so few sites
    radius = kappa * max(0.0, float(p @ gram @ p)) ** 0.5

    def value(*gamma: float) -> float:
        products = [sum(map(mul, row, gamma)) for row in rows]
        return sum(map(mul, gamma, towards)) + radius * max(0.0, sum(map(mul, gamma, products))) ** 0.5

    if len(p) == 2:
        return golden_section(lambda first: value(first, 1 - first))
    return golden_section(
        lambda first: golden_section(lambda share: value(first, (1 - first) * share, (1 - first) * (1 - share)))
    )


@st.composite
def problems(draw: st.DrawFn, largest: int = 6) -> tuple[torch.Tensor, torch.Tensor, float]:
    """Updates ``[U, P]`` of the family, reference weights and a radius."""
    count, seed = draw(st.integers(2, largest)), draw(SEEDS)
    updates = draw(st.sampled_from(FAMILY))(seed, count)
    return updates, on_simplex(seed, count), draw(st.sampled_from(KAPPAS))


def direction_of(
    updates: torch.Tensor, p: torch.Tensor | list[float], kappa: float, rescale: bool = False
) -> torch.Tensor:
    direction = invariant_direction(updates, p, kappa, rescale)
    assert isinstance(direction, torch.Tensor)
    return direction


# --- the minimiser ---


@REPEATABLE
@given(problem=problems())
def test_gamma_lies_on_the_simplex(problem: tuple[torch.Tensor, torch.Tensor, float]) -> None:
    updates, p, kappa = problem
    gamma = invariant_weights(gram_matrix(updates), p, kappa)
    assert gamma.dtype == torch.float64
    assert gamma.shape == (len(updates),)
    assert bool((gamma >= 0).all())
    assert abs(gamma.sum().item() - 1) <= 1e-12


@REPEATABLE
@given(problem=problems(largest=3))
def test_no_point_of_a_fine_grid_is_better(problem: tuple[torch.Tensor, torch.Tensor, float]) -> None:
    updates, p, kappa = problem
    gamma = invariant_weights(gram_matrix(updates), p, kappa)
    best = objective(updates, p, kappa, grid(len(updates), 1000 if len(updates) == 2 else 100)).min()
    assert objective(updates, p, kappa, gamma) <= best + 1e-8 * size(updates, p, kappa)


@REPEATABLE
@given(problem=problems(largest=12), seed=SEEDS)
def test_no_random_point_corner_or_reference_is_better(
    problem: tuple[torch.Tensor, torch.Tensor, float], seed: int
) -> None:
    updates, p, kappa = problem
    count = len(updates)
    gamma = invariant_weights(gram_matrix(updates), p, kappa)
    inner = torch.stack([on_simplex(seed + index, count) for index in range(500)])
    points = torch.cat([inner, torch.eye(count, dtype=torch.float64), p[None]])
    best = objective(updates, p, kappa, points).min()
    assert objective(updates, p, kappa, gamma) <= best + 1e-8 * size(updates, p, kappa)


@REPEATABLE
@given(problem=problems(largest=12))
def test_the_authors_softmax_descent_is_never_better(problem: tuple[torch.Tensor, torch.Tensor, float]) -> None:
    updates, p, kappa = problem
    gamma = invariant_weights(gram_matrix(updates), p, kappa)
    reached = objective(updates, p, kappa, softmax_descent(updates, p, kappa))
    assert objective(updates, p, kappa, gamma) <= reached + 1e-8 * size(updates, p, kappa)


@REPEATABLE
@given(problem=problems())
def test_every_site_agrees_with_the_direction_by_at_least_the_optimum(
    problem: tuple[torch.Tensor, torch.Tensor, float],
) -> None:
    # F is the least <g_u, d> over the sites (its dual): the direction maximises the agreement of the worst site.
    updates, p, kappa = problem
    gram = gram_matrix(updates)
    solved = match(gram, p, kappa)
    agreements = gram @ invariant_coefficients(gram, p, kappa, solved.weights)
    scale = size(updates, p, kappa)
    if (solved.weights @ updates).norm() > 1e-4 * updates.norm(dim=1).max():  # else Gamma g has no direction
        assert abs(agreements.min().item() - solved.objective) <= 1e-4 * scale
        used = solved.weights > 1e-3
        assert (agreements[used] - solved.objective).abs().max() <= 1e-4 * scale


# --- the certificate ---


def test_many_nearly_equal_updates_do_not_stop_the_solver() -> None:
    cases: list[tuple[int, float, int]] = [(30, 0.5, 6), (100, 1.1, 3), (100, 10.0, 5), (100, 10.0, 8)]
    for count, kappa, seed in cases:
        # Their Gram matrix has one eigenvalue near U and U - 1 of rounding error, on which a solver can give up.
        generator = torch.Generator().manual_seed(seed)
        common, own = (torch.randn(rows, 200, generator=generator, dtype=torch.float64) for rows in (1, count))
        updates = common + 1e-7 * own
        p = torch.rand(count, generator=generator, dtype=torch.float64)
        solved = match(updates @ updates.T, p / p.sum(), kappa)
        assert solved.gap <= 1e-8
        # All updates are g up to 1e-7, so that F is (1 + kappa) |g|^2 for every gamma.
        assert solved.objective == pytest.approx((1 + kappa) * float(common.square().sum()), rel=1e-5)


def test_the_gap_is_small_at_any_scale() -> None:
    for scale in [1e-20, 1e-10, 1e-3, 1e3, 1e10, 1e20]:
        for sampler in FAMILY:
            solved = match(gram_matrix(scale * sampler(7, 5)), on_simplex(7, 5), 0.5)
            assert solved.gap <= 1e-9
            assert solved.objective / scale**2 == pytest.approx(
                match(gram_matrix(sampler(7, 5)), on_simplex(7, 5), 0.5).objective, rel=1e-8, abs=1e-8
            )


def test_the_gap_bounds_the_distance_to_the_optimum() -> None:
    for kappa in [0.0, *KAPPAS]:
        for sampler in FAMILY:
            for count in [2, 3]:
                updates, p = sampler(11, count), on_simplex(11, count)
                gram = gram_matrix(updates)
                solved, optimum = match(gram, p, kappa), brute_force(gram.numpy(), p.numpy(), kappa)
                rounding = 2e-8 * size(updates, p, kappa)  # of a square root of a float64 near zero
                assert solved.objective - optimum <= solved.gap * abs(solved.objective) + rounding
                assert solved.objective >= optimum - rounding


@REPEATABLE
@given(problem=problems(largest=3), seed=SEEDS)
def test_the_gap_of_a_solver_that_stopped_anywhere_still_bounds_the_distance(
    problem: tuple[torch.Tensor, torch.Tensor, float], seed: int
) -> None:
    updates, p, kappa = problem
    gram = gram_matrix(updates)
    gamma, dual = on_simplex(seed, len(p)), normal(seed, len(np.linalg.eigvalsh(gram.numpy())))

    def stopped(problem: ConeProgram) -> tuple[np.ndarray, np.ndarray]:
        return gamma.numpy(), dual.numpy()[: len(problem.factor)]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(matching, "minimise", lambda *problem: None)
        patch.setattr(ConeProgram, "solve", stopped)
        solved = match(gram, p, kappa)
    distance = solved.objective - brute_force(gram.numpy(), p.numpy(), kappa)
    assert solved.objective == pytest.approx(matching_objective(gram, p, kappa, gamma), rel=1e-6, abs=1e-6)
    assert distance <= solved.gap * max(abs(solved.objective), size(updates, p, kappa)) + 2e-8 * size(updates, p, kappa)
    if distance > 1e-6 * abs(solved.objective) > 1e-6 * size(updates, p, kappa):
        assert solved.gap >= 0.999 * distance / abs(solved.objective)


def test_a_solver_that_finds_nothing_is_an_error_with_the_number_of_sites(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(matching, "minimise", lambda *problem: None)
    monkeypatch.setattr(cone_program, "_solved", lambda problem, tolerance: False)
    with pytest.raises(ArithmeticError, match="matching problem of 3 sites"):
        match(gram_matrix(independent(0, 3)), on_simplex(0, 3), 0.5)


# --- objective and direction as defined ---


@REPEATABLE
@given(problem=problems(), seed=SEEDS)
def test_the_objective_from_the_gram_matrix_is_eq_15_on_the_vectors(
    problem: tuple[torch.Tensor, torch.Tensor, float], seed: int
) -> None:
    updates, p, kappa = problem
    gamma = on_simplex(seed, len(p))
    expected = objective(updates, p, kappa, gamma).item()
    tolerance = 1e-8 * size(updates, p, kappa)
    assert matching_objective(gram_matrix(updates), p, kappa, gamma) == pytest.approx(expected, rel=0, abs=tolerance)
    solved = match(gram_matrix(updates), p, kappa)
    assert solved.objective == pytest.approx(objective(updates, p, kappa, solved.weights).item(), rel=0, abs=tolerance)


@REPEATABLE
@given(problem=problems())
def test_the_direction_lies_at_the_radius_from_the_mean_update(
    problem: tuple[torch.Tensor, torch.Tensor, float],
) -> None:
    updates, p, kappa = problem
    mean = p @ updates
    matched = invariant_weights(gram_matrix(updates), p, kappa) @ updates
    direction = direction_of(updates, p, kappa)
    if matched.norm() > 1e-5 * updates.norm(dim=1).max():
        assert (direction - mean).norm().item() == pytest.approx(kappa * mean.norm().item(), rel=1e-6)
        torch.testing.assert_close(
            direction - mean, kappa * mean.norm() * matched / matched.norm(), rtol=1e-5, atol=1e-9
        )
    else:
        torch.testing.assert_close(direction, mean)


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
    np.testing.assert_allclose(direction_of(updates, p, 1.0), [7.0, 7.0], atol=1e-5)
    np.testing.assert_allclose(direction_of(updates, p, 1.0, rescale=True), [3.5, 3.5], atol=1e-5)  # 1 + 1**2
    # Exact at gamma = (4/7, 3/7): p + kappa * 5 / 5 * gamma = (1, 1).
    coefficients = invariant_coefficients(gram, p, 1.0, [float(Fraction(4, 7)), float(Fraction(3, 7))])
    np.testing.assert_allclose(coefficients, [1.0, 1.0], rtol=1e-12)


def test_the_site_that_disagrees_gets_all_the_weight_within_a_small_radius() -> None:
    # g_1 = (2, 0), g_2 = (-1, 0), p = (1/2, 1/2): g_FL = (1/2, 0). F = x/2 + kappa/2 |x| with x = 2 gamma_1 - gamma_2
    # in [-1, 2]; for kappa = 1/2 least at x = -1, so gamma = (0, 1) and d = 1/2 + 1/2 * 1/2 * (-1) = 1/4.
    updates = torch.tensor([[2.0, 0.0], [-1.0, 0.0]])
    np.testing.assert_allclose(invariant_weights(gram_matrix(updates), [0.5, 0.5], 0.5), [0.0, 1.0], atol=1e-9)
    np.testing.assert_allclose(direction_of(updates, [0.5, 0.5], 0.5), [0.25, 0.0], atol=1e-7)


# --- degenerate cases ---


def test_a_radius_of_zero_is_fedavg() -> None:
    for sampler in FAMILY:
        updates, p = sampler(3, 5), on_simplex(3, 5)
        solved = match(gram_matrix(updates), p, 0.0)
        assert torch.equal(invariant_coefficients(gram_matrix(updates), p, 0.0, solved.weights), p)
        direction = direction_of(updates, p, 0.0)
        assert torch.equal(direction, combine(p, list(updates)))
        # F is linear: its minimum is at a corner, and the gap is exact.
        assert solved.objective == pytest.approx((updates @ (p @ updates)).min().item(), rel=1e-9, abs=1e-9)
        assert solved.gap <= 1e-9


def test_sites_that_tie_at_a_radius_of_zero_share_the_weight() -> None:
    updates = torch.tensor([[1.0, 1.0], [1.0, -1.0], [3.0, 0.0]])  # <g_u, g_FL> is 5/3, 5/3 and 5
    assert invariant_weights(gram_matrix(updates), [1 / 3] * 3, 0.0).tolist() == [0.5, 0.5, 0.0]
    # The same up to rounding: 0.2 * 3 - 0.3 * 2 is not zero in float64, but g_FL is (0.2, 0) all the same.
    updates = torch.tensor([[0.1, 3.0], [0.1, -2.0], [0.3, 0.0]], dtype=torch.float64)
    agreements = gram_matrix(updates) @ torch.tensor([0.2, 0.3, 0.5], dtype=torch.float64)
    assert agreements[0] != agreements[1]
    assert invariant_weights(gram_matrix(updates), [0.2, 0.3, 0.5], 0.0).tolist() == [0.5, 0.5, 0.0]


def test_a_single_site_moves_by_its_update_times_one_plus_kappa() -> None:
    for kappa in [0.0, *KAPPAS]:
        update = independent(5, 1)
        solved = match(gram_matrix(update), [1.0], kappa)
        assert solved.weights.tolist() == [1.0]
        assert solved.gap == 0.0
        assert solved.objective == pytest.approx((1 + kappa) * update.square().sum().item(), rel=1e-12)
        direction = direction_of(update, [1.0], kappa)
        torch.testing.assert_close(direction, (1 + kappa) * update[0], rtol=1e-12, atol=0.0)


def test_equal_updates_move_by_that_update_times_one_plus_kappa() -> None:
    for kappa in KAPPAS:
        for count in [2, 3, 10]:
            update = independent(5, 1)
            direction = direction_of(update.repeat(count, 1), on_simplex(5, count), kappa)
            torch.testing.assert_close(direction, (1 + kappa) * update[0], rtol=1e-9, atol=0.0)


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
            direction = direction_of(updates, p, kappa)
            torch.testing.assert_close(direction, (p[0] - p[1]) * update[0], rtol=1e-12, atol=1e-12)


def test_a_mean_update_of_zero_gives_no_step() -> None:
    for kappa in [0.0, *KAPPAS]:
        updates = torch.tensor([[1.0, 2.0], [-1.0, 0.0], [0.0, -2.0]])
        p = [1 / 3] * 3
        assert match(gram_matrix(updates), p, kappa).weights.tolist() == pytest.approx(p)
        direction = direction_of(updates, p, kappa)
        assert direction.norm() <= 1e-7


@pytest.mark.parametrize("count", [1, 2, 5])
def test_updates_that_are_all_zero_give_no_step(count: int) -> None:
    direction = direction_of(torch.zeros(count, 3), on_simplex(0, count), 0.5)
    assert direction.tolist() == [0.0, 0.0, 0.0]
    assert match(torch.zeros(count, count), on_simplex(0, count), 0.5).gap == 0.0


def test_a_slightly_indefinite_gram_matrix_is_legal() -> None:
    gram = torch.tensor([[1.0, 1.0 + 1e-9], [1.0 + 1e-9, 1.0]], dtype=torch.float64)
    solved = match(gram, [0.5, 0.5], 0.5)
    assert solved.objective == pytest.approx(1.5, rel=1e-8)
    assert invariant_coefficients(gram, [0.5, 0.5], 0.5, solved.weights).sum().item() == pytest.approx(1.5, rel=1e-8)


# --- symmetries ---


@REPEATABLE
@given(seed=SEEDS, kappa=st.sampled_from(KAPPAS))
def test_permuting_the_sites_permutes_gamma_and_leaves_the_direction(seed: int, kappa: float) -> None:
    updates, p = independent(seed, 5), on_simplex(seed, 5)
    order = torch.randperm(5, generator=torch.Generator().manual_seed(seed)).tolist()
    gamma = invariant_weights(gram_matrix(updates), p, kappa)
    permuted = invariant_weights(gram_matrix(updates[order]), p[order], kappa)
    np.testing.assert_allclose(permuted, gamma[order], atol=1e-5)
    before, after = direction_of(updates, p, kappa), direction_of(updates[order], p[order], kappa)
    torch.testing.assert_close(after, before, rtol=0.0, atol=1e-5 * before.norm().item())


def test_scaling_all_updates_scales_the_direction() -> None:
    cases_2: list[Sampler] = [independent, agreeing, nearly_equal, with_a_zero]
    for scale in [1e-20, 1e-10, 0.3, 1e10, 1e20]:
        for sampler in cases_2:
            updates, p = sampler(9, 4), on_simplex(9, 4)
            direction, scaled = (direction_of(factor * updates, p, 0.5) for factor in (1.0, scale))
            torch.testing.assert_close(scaled / scale, direction, rtol=0.0, atol=1e-5 * direction.norm().item())


def test_rescaling_divides_the_direction_by_one_plus_kappa_squared() -> None:
    for kappa in [0.0, *KAPPAS]:
        updates, p = independent(2, 4), on_simplex(2, 4)
        direction, rescaled = (direction_of(updates, p, kappa, rescale) for rescale in (False, True))
        torch.testing.assert_close(rescaled * (1 + kappa**2), direction, rtol=1e-12, atol=1e-12)


# --- forms of input ---


EYE = torch.eye(2, dtype=torch.float64)


def test_a_problem_that_is_none_is_refused_with_the_reason() -> None:
    cases: list[tuple[torch.Tensor, list[float], float, str]] = [
        (torch.ones(2, 3), [0.5, 0.5], 0.5, r"square, \[U, U\] with U >= 1; got shape \[2, 3\]"),
        (torch.ones(4), [0.5, 0.5], 0.5, r"got shape \[4\]"),
        (torch.empty(0, 0), [], 0.5, r"got shape \[0, 0\]"),
        (torch.tensor([[1.0, float("nan")], [float("nan"), 1.0]]), [0.5, 0.5], 0.5, "not finite"),
        (torch.tensor([[float("inf"), 0.0], [0.0, 1.0]]), [0.5, 0.5], 0.5, "not finite"),
        (torch.tensor([[1.0, 0.5], [0.4, 1.0]]), [0.5, 0.5], 0.5, "not symmetric"),
        (EYE, [0.5, 0.5], -0.1, "kappa must be a finite number that is not negative, got -0.1"),
        (EYE, [0.5, 0.5], float("nan"), "kappa must be a finite number that is not negative, got nan"),
        (EYE, [0.5, 0.5], float("inf"), "kappa must be a finite number that is not negative, got inf"),
        (EYE, [0.5, 0.6], 0.5, "non-negative and sum to one"),
        (EYE, [1.5, -0.5], 0.5, "non-negative and sum to one"),
        (EYE, [float("nan"), 1.0], 0.5, "non-negative and sum to one"),
        (EYE, [1.0], 0.5, r"each of 2 sites, got shape \[1\]"),
    ]
    for gram, p, kappa, message in cases:
        with pytest.raises(ValueError, match=message):
            match(gram, p, kappa)
        with pytest.raises(ValueError, match=message):
            invariant_coefficients(gram, p, kappa, [0.5, 0.5])
        with pytest.raises(ValueError, match=message):
            matching_objective(gram, torch.tensor(p), kappa, [0.5, 0.5])
