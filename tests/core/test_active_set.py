# SPDX-License-Identifier: Apache-2.0
"""The active set against the cone program: never worse, certified, and replaced where its certificate falls short."""

import dataclasses
import itertools
from collections.abc import Callable

import numpy as np
import pytest
import torch

from fdg_plugins.core import Matching, active_set, match, matching, uniform_weights
from fdg_plugins.core.active_set import minimise
from fdg_plugins.core.cone_program import ConeProgram

KAPPAS = (1e-3, 0.5, 5.0)
CERTIFIED = 1e-6
LENGTH = 400  # P of the random updates; more than most tests have sites, as in a federation


# --- a family of updates [U, P], none of which sum to zero with weights on the simplex ---


def normal(seed: int, *shape: int) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=shape)


def independent(seed: int, count: int) -> np.ndarray:
    return normal(seed, count, LENGTH)


def agreeing(seed: int, count: int) -> np.ndarray:
    return normal(seed, 1, LENGTH) + normal(seed + 1, count, LENGTH)


def of_many_lengths(seed: int, count: int) -> np.ndarray:
    return independent(seed, count) * np.exp(0.5 * normal(seed + 2, count, 1))


def rank_deficient(seed: int, count: int) -> np.ndarray:
    """Combinations of two updates, on one side of the origin."""
    return np.abs(normal(seed, count, 2)) @ agreeing(seed + 1, 2)


def twice_the_same(seed: int, count: int) -> np.ndarray:
    return np.concatenate([agreeing(seed, count)] * 2)[:count]


def nearly_collinear(seed: int, count: int) -> np.ndarray:
    """Groups of five updates that differ by a hundredth."""
    return np.repeat(independent(seed, count), 5, axis=0)[:count] + 1e-2 * independent(seed + 1, count)


def nearly_equal(seed: int, count: int) -> np.ndarray:
    return normal(seed, 1, LENGTH) + 1e-7 * normal(seed + 1, count, LENGTH)


def with_a_zero(seed: int, count: int) -> np.ndarray:
    updates = agreeing(seed, count)
    updates[0] = 0.0
    return updates


def dominated(seed: int, count: int) -> np.ndarray:
    updates = agreeing(seed, count)
    updates[0] *= 1e4
    return updates


FAMILY = (
    independent,
    agreeing,
    of_many_lengths,
    rank_deficient,
    twice_the_same,
    nearly_collinear,
    nearly_equal,
    with_a_zero,
    dominated,
)
REGULAR = (independent, agreeing, of_many_lengths, nearly_collinear, dominated)
Sampler = Callable[[int, int], np.ndarray]


def with_an_opposite(seed: int, count: int) -> np.ndarray:
    updates = independent(seed, count)
    updates[-1] = -updates[0]
    return updates


def on_simplex(seed: int, count: int) -> np.ndarray:
    weights = np.random.default_rng(seed).exponential(size=count)
    return weights / weights.sum()


def solved(updates: np.ndarray, p: np.ndarray, kappa: float) -> Matching:
    return match(updates @ updates.T, torch.from_numpy(p), kappa)


def by_cone_program(updates: np.ndarray, p: np.ndarray, kappa: float) -> Matching:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(matching, "minimise", lambda *problem: None)
        return solved(updates, p, kappa)


@pytest.fixture
def without_cone_program(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(self: ConeProgram) -> None:
        raise AssertionError("the active set gave up")

    monkeypatch.setattr(ConeProgram, "solve", refuse)


@pytest.fixture
def cone_programs(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The numbers of sites of the cone programs solved during the test."""
    sizes: list[int] = []
    solve = ConeProgram.solve

    def counted(self: ConeProgram) -> tuple[np.ndarray, np.ndarray]:
        sizes.append(len(self.linear))
        return solve(self)

    monkeypatch.setattr(ConeProgram, "solve", counted)
    return sizes


# --- against the cone program ---


def test_the_objective_is_certified_and_never_above_that_of_the_cone_program() -> None:
    cases_2: list[Sampler] = [*FAMILY, with_an_opposite]
    for count in [2, 3, 10, 100]:
        for sampler in cases_2:
            updates, p = sampler(count, count), on_simplex(count, count)
            for kappa in KAPPAS:
                ours, cone = solved(updates, p, kappa), by_cone_program(updates, p, kappa)
                mean, longest = np.linalg.norm(p @ updates), np.linalg.norm(updates, axis=1).max()
                # The root of a float64 near zero is known to half its digits.
                rounding = 1e-9 * abs(cone.objective) + 1e-12 * (1 + kappa) * mean * longest
                assert ours.gap <= CERTIFIED
                assert ours.objective <= cone.objective + rounding
                assert ours.objective >= cone.objective - cone.gap * abs(cone.objective) - rounding


@pytest.mark.parametrize("sampler", [independent, twice_the_same])
def test_three_hundred_sites_are_no_worse_off_than_with_the_cone_program(sampler: Sampler) -> None:
    updates, p = sampler(0, 300), on_simplex(0, 300)
    ours, cone = solved(updates, p, 0.5), by_cone_program(updates, p, 0.5)
    assert ours.gap <= CERTIFIED
    assert ours.objective == pytest.approx(cone.objective, rel=1e-9)


@pytest.mark.usefixtures("without_cone_program")
def test_updates_that_do_not_cancel_need_no_cone_program() -> None:
    for count in [1, 2, 3, 10, 100, 300]:
        for sampler in FAMILY:
            references = (on_simplex(count, count), np.full(count, 1 / count), np.eye(count)[-1])
            updates = sampler(count, count)
            for p, kappa in itertools.product(
                references[: 1 if count == 300 else 3], (0.0, 1e-100, 1e-12, *KAPPAS, 1e200)
            ):
                minimum = solved(updates, p, kappa)
                assert minimum.gap <= 1e-8
                assert bool((minimum.weights >= 0).all())
                assert abs(float(minimum.weights.sum()) - 1) <= 1e-12


@pytest.mark.usefixtures("without_cone_program")
def test_a_thousand_sites_are_certified_without_a_cone_program() -> None:
    updates = normal(0, 1, 1200) + normal(1, 1000, 1200)
    minimum = match(updates @ updates.T, uniform_weights(1000), 0.5)
    assert minimum.gap <= 1e-9
    assert 10 < int((minimum.weights > 0).sum()) < 1000


@pytest.mark.usefixtures("without_cone_program")
def test_all_of_two_hundred_orthogonal_updates_are_used() -> None:
    # Of orthogonal updates, with g_FL inside their hull, the nearest point to the origin weighs each by 1/|g|^2.
    squares = np.random.default_rng(0).uniform(1, 2, size=200)
    p = 1 / squares / (1 / squares).sum()
    minimum = match(np.diag(squares), torch.from_numpy(p), 0.5)
    np.testing.assert_allclose(minimum.weights, p, rtol=1e-9)
    assert minimum.gap <= 1e-12


# --- where it gives up ---


def test_updates_that_cancel_are_left_to_the_cone_program(cone_programs: list[int]) -> None:
    for kappa in [0.5, 1.0, 5.0]:
        for count in [3, 10]:
            minimum = solved(with_an_opposite(3, count), np.full(count, 1 / count), kappa)
            assert cone_programs == [count]
            cone_programs.clear()
            assert minimum.gap <= 1e-9
            assert minimum.weights[[0, -1]].tolist() == pytest.approx([0.5, 0.5], abs=1e-6)


def test_a_result_that_proves_too_little_is_left_to_the_cone_program(
    monkeypatch: pytest.MonkeyPatch, cone_programs: list[int]
) -> None:
    poor = active_set.Minimum(np.full(3, 1 / 3), value=1.0, bound=0.9)
    monkeypatch.setattr(matching, "minimise", lambda *problem: poor)
    minimum = solved(agreeing(0, 3), np.full(3, 1 / 3), 0.5)
    assert cone_programs == [3]
    assert minimum.gap <= 1e-9
    assert minimum.weights.tolist() != poor.weights.tolist()


def test_of_the_two_results_the_better_proven_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    def unproven(*problem: object) -> active_set.Minimum:
        minimum = minimise(*problem)  # type: ignore[arg-type]
        assert minimum is not None
        return dataclasses.replace(minimum, bound=minimum.value * (1 - 1e-7))

    def stopped_early(self: ConeProgram) -> tuple[np.ndarray, np.ndarray]:
        return np.full(4, 0.25), np.zeros(len(self.factor))

    updates, p = of_many_lengths(1, 4), np.full(4, 0.25)
    expected = solved(updates, p, 0.5)
    monkeypatch.setattr(matching, "minimise", unproven)
    monkeypatch.setattr(ConeProgram, "solve", stopped_early)
    minimum = solved(updates, p, 0.5)
    assert torch.equal(minimum.weights, expected.weights)
    assert minimum.gap == pytest.approx(1e-7, rel=1e-6)


def test_an_indefinite_matrix_is_left_to_the_cone_program(cone_programs: list[int]) -> None:
    gram = np.array([[1.0, 0.9, 0.9], [0.9, 1.0, 0.5], [0.9, 0.5, 1.0]])
    assert np.linalg.eigvalsh(gram).min() < -0.01
    assert minimise(gram, gram.mean(axis=1), 0.5) is None
    assert match(gram, [1 / 3] * 3, 0.5).gap <= CERTIFIED
    assert cone_programs == [3]


@pytest.mark.parametrize("limit", ["MAX_SUPPORTS", "MAX_SYSTEMS"])
def test_a_descent_cut_short_is_left_to_the_cone_program(
    limit: str, monkeypatch: pytest.MonkeyPatch, cone_programs: list[int]
) -> None:
    monkeypatch.setattr(active_set, limit, 1)
    cut = solved(independent(2, 50), on_simplex(2, 50), 5.0)
    assert cone_programs == [50]
    assert cut.gap <= CERTIFIED


@pytest.mark.parametrize("kappa", KAPPAS)
@pytest.mark.parametrize("sampler", REGULAR)
def test_the_bound_of_a_descent_cut_short_still_holds(
    sampler: Sampler, kappa: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    updates = sampler(2, 20)
    gram = updates @ updates.T
    gram /= gram.diagonal().max()
    linear = gram.mean(axis=1)
    full = minimise(gram, linear, kappa)
    monkeypatch.setattr(active_set, "MAX_SUPPORTS", 1)
    cut = minimise(gram, linear, kappa)
    assert full is not None
    assert cut is not None
    assert cut.bound <= full.value + 1e-12
    assert cut.value >= full.value - 1e-12


# --- symmetries, and weights that equal sites share ---


def test_permuting_the_sites_permutes_the_weights() -> None:
    for kappa in KAPPAS:
        for sampler in REGULAR:
            updates, p = sampler(4, 30), on_simplex(4, 30)
            order = np.random.default_rng(0).permutation(30)
            weights, permuted = solved(updates, p, kappa).weights, solved(updates[order], p[order], kappa).weights
            np.testing.assert_allclose(permuted, weights[order], atol=1e-7)


def test_scaling_all_updates_leaves_the_weights() -> None:
    for scale in [1e-6, 1e6]:
        for sampler in REGULAR:
            updates, p = sampler(4, 30), on_simplex(4, 30)
            one, scaled = solved(updates, p, 0.5), solved(scale * updates, p, 0.5)
            np.testing.assert_allclose(scaled.weights, one.weights, atol=1e-7)
            assert scaled.objective == pytest.approx(scale**2 * one.objective, rel=1e-10)


@pytest.mark.parametrize("kappa", KAPPAS)
def test_sites_with_equal_updates_share_their_weight_equally(kappa: float) -> None:
    updates = np.repeat(agreeing(1, 4), 3, axis=0)
    weights = solved(updates, on_simplex(1, 12), kappa).weights.reshape(4, 3)
    assert bool((weights == weights[:, :1]).all())
    single = solved(updates[::3], on_simplex(1, 12).reshape(4, 3).sum(axis=1), kappa).weights
    np.testing.assert_allclose(weights.sum(dim=1), single, atol=1e-7)


def test_updates_of_length_zero_take_all_weight_where_every_other_would_add_to_f() -> None:
    updates = np.concatenate([np.zeros((2, LENGTH)), agreeing(0, 3)])
    minimum = solved(updates, np.full(5, 0.2), 0.5)
    assert minimum.weights.tolist() == [0.5, 0.5, 0, 0, 0]
    assert (minimum.objective, minimum.gap) == (0.0, 0.0)


@pytest.mark.usefixtures("without_cone_program")
def test_updates_of_length_zero_take_no_weight_where_another_lowers_f() -> None:
    # g_FL = (1, 0) and kappa = 1/2: F at (-1, 0) is -1 + 1/2, below F at zero.
    updates = np.array([[0.0, 0.0], [-1.0, 0.0], [4.0, 0.0]])
    minimum = solved(updates, np.array([0.0, 0.6, 0.4]), 0.5)
    assert minimum.weights.tolist() == [0, 1, 0]
    assert minimum.objective == pytest.approx(-0.5)
