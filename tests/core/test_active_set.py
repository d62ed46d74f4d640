# SPDX-License-Identifier: Apache-2.0
"""The active set against the cone program: never worse, certified, and replaced where its certificate falls short."""

import dataclasses

import numpy as np
import pytest
import torch

from fdg_plugins.core import Matching, active_set, match, matching, uniform_weights
from fdg_plugins.core.active_set import minimise
from fdg_plugins.core.matching import ConeProgram
from tests.core.test_matching import FAMILY, LENGTH, agreeing, independent, on_simplex, size, with_an_opposite
from tests.random_tensors import normal_double

KAPPAS = (1e-3, 5.0)
CERTIFIED = 1e-6


def twice_the_same(seed: int, count: int) -> torch.Tensor:
    return torch.cat([agreeing(seed, count)] * 2)[:count]


def nearly_collinear(seed: int, count: int) -> torch.Tensor:
    """Groups of five updates that differ by a hundredth."""
    return independent(seed, count).repeat_interleave(5, dim=0)[:count] + 1e-2 * independent(seed + 1, count)


def dominated(seed: int, count: int) -> torch.Tensor:
    updates = normal_double(seed, 1, LENGTH) + independent(seed + 1, count)
    updates[0] *= 1e4
    return updates


def solved(updates: torch.Tensor, p: torch.Tensor, kappa: float) -> Matching:
    return match(updates @ updates.T, p, kappa)


def by_cone_program(updates: torch.Tensor, p: torch.Tensor, kappa: float) -> Matching:
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


def test_the_objective_is_certified_and_never_above_that_of_the_cone_program() -> None:
    for count in [3, 30]:
        for sampler in (*FAMILY, twice_the_same, nearly_collinear, dominated):
            updates, p = sampler(count, count), on_simplex(count, count)
            for kappa in KAPPAS:
                ours, cone = solved(updates, p, kappa), by_cone_program(updates, p, kappa)
                # The root of a float64 near zero is known to half its digits.
                rounding = 1e-9 * abs(cone.objective) + 1e-12 * size(updates, p, kappa)
                assert ours.gap <= CERTIFIED
                assert ours.objective <= cone.objective + rounding
                assert ours.objective >= cone.objective - cone.gap * abs(cone.objective) - rounding


@pytest.mark.usefixtures("without_cone_program")
def test_a_thousand_sites_are_certified_without_a_cone_program() -> None:
    updates = normal_double(0, 1, 1200) + normal_double(1, 1000, 1200)
    minimum = match(updates @ updates.T, uniform_weights(1000), 0.5)
    assert minimum.gap <= 1e-9
    assert 10 < int((minimum.weights > 0).sum()) < 1000


def test_updates_that_cancel_are_left_to_the_cone_program(cone_programs: list[int]) -> None:
    for kappa in [0.5, 1.0, 5.0]:
        for count in [3, 10]:
            minimum = solved(with_an_opposite(3, count), uniform_weights(count), kappa)
            assert cone_programs == [count]
            cone_programs.clear()
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
