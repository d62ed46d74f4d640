# SPDX-License-Identifier: Apache-2.0
"""Adjustment by gaps: on the simplex, towards the sites with large gaps, and still where nothing is to be done."""

import math
from itertools import permutations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fdg_plugins.core.adjustment import (
    adjust_weights,
    decayed_step,
    weights_of_round,
    with_new_sites,
)

REPEATABLE = settings(derandomize=True, deadline=None)
NORMALIZERS = ("max", "max_abs")
NAN, INF = float("nan"), float("inf")
FINITE = st.floats(-1e300, 1e300)
STEPS = st.floats(0, 2)


@st.composite
def problems(draw: st.DrawFn, gap: st.SearchStrategy[float | None] = FINITE) -> tuple[torch.Tensor, list[float | None]]:
    """Weights of one to eight sites, some of them zero, and as many gaps."""
    shares = draw(st.lists(st.integers(0, 1000), min_size=1, max_size=8).filter(any))
    gaps = draw(st.lists(gap, min_size=len(shares), max_size=len(shares)))
    return torch.tensor(shares, dtype=torch.float64) / sum(shares), gaps


MISSING = st.one_of(FINITE, st.none(), st.sampled_from([NAN, INF, -INF]))


def assert_on_simplex(weights: torch.Tensor, count: int) -> None:
    assert weights.dtype == torch.float64
    assert weights.shape == (count,)
    assert bool((weights >= 0).all())
    assert abs(weights.sum().item() - 1) <= 1e-12


def expected(weights: torch.Tensor, gaps: list[float], step: float) -> torch.Tensor:
    """Eq. 3 as printed, for gaps that differ."""
    gap = torch.tensor(gaps, dtype=torch.float64)
    deviation = gap - gap.mean()
    moved = (weights + deviation * step / deviation.max()).clamp(min=0)
    return moved / moved.sum()


# --- the rule ---


def test_three_sites_by_hand() -> None:
    # gaps 4, 1, 1: mean 2, deviations 2, -1, -1, moves 1, -1/2, -1/2; with d = 0.2: a' = 0.4, 0.4, 0.2, sum 1.
    assert adjust_weights([0.2, 0.5, 0.3], [4.0, 1.0, 1.0], 0.2).tolist() == pytest.approx([0.4, 0.4, 0.2], rel=1e-12)


def test_the_released_rule_clips_at_one_before_it_renormalises_and_the_paper_does_not() -> None:
    # released: a' = 0.95 + 0.1 -> 1, 0.05 + 0.05 = 0.1, sum 1.1.
    assert adjust_weights([0.95, 0.05], [2.0, 1.0], 0.1, "max_abs").tolist() == pytest.approx([10 / 11, 1 / 11])
    # paper, gaps 5, 2, -1: moves 1, 0, -1; a' = 1.05, 0.04, -0.09 -> 0, sum 1.09.
    paper = adjust_weights([0.95, 0.04, 0.01], [5.0, 2.0, -1.0], 0.1)
    assert paper.tolist() == pytest.approx([105 / 109, 4 / 109, 0.0])


@REPEATABLE
@given(problem=problems(st.floats(-1e3, 1e3)), step=STEPS)
def test_distinct_gaps_follow_the_equation(problem: tuple[torch.Tensor, list[float]], step: float) -> None:
    weights, gaps = problem
    if max(gaps) - min(gaps) > max(1e-6 * max(map(abs, gaps)), 1e-300):  # halves of less are not exact
        torch.testing.assert_close(
            adjust_weights(weights, gaps, step), expected(weights, gaps, step), rtol=1e-6, atol=1e-9
        )


@REPEATABLE
@given(problem=problems(MISSING), step=STEPS, normalizer=st.sampled_from(NORMALIZERS))
def test_weights_stay_on_the_simplex(
    problem: tuple[torch.Tensor, list[float | None]], step: float, normalizer: str
) -> None:
    weights, gaps = problem
    assert_on_simplex(adjust_weights(weights, gaps, step, normalizer), len(gaps))


# --- where nothing is to be done ---


def test_equal_gaps_leave_the_weights_to_the_bit() -> None:
    cases_2: list[list[float]] = [[0.1, 0.2, 0.7], [1.0, 0.0, 0.0], [1 / 3] * 3]
    for gap in [0.0, 1.0, -0.3, 0.1, 1e-320, 1e308, -1e308]:
        for weights in cases_2:
            assert adjust_weights(weights, [gap] * 3, 0.05).tolist() == weights


@pytest.mark.parametrize("normalizer", NORMALIZERS)
def test_a_step_of_zero_leaves_the_weights_to_the_bit(normalizer: str) -> None:
    assert adjust_weights([0.1, 0.2, 0.7], [1.0, 5.0, -2.0], 0.0, normalizer).tolist() == [0.1, 0.2, 0.7]


# --- absent sites ---


@REPEATABLE
@given(problem=problems(MISSING), step=STEPS, normalizer=st.sampled_from(NORMALIZERS))
def test_a_site_without_a_gap_keeps_its_weight_to_the_bit(
    problem: tuple[torch.Tensor, list[float | None]], step: float, normalizer: str
) -> None:
    weights, gaps = problem
    adjusted = adjust_weights(weights, gaps, step, normalizer)
    for site, gap in enumerate(gaps):
        if gap is None or not math.isfinite(gap):
            assert adjusted[site] == weights[site]


def test_the_sites_that_report_share_what_they_held() -> None:
    # Sites 0 and 2 hold 0.6 together. Moves 1 and -1 with d = 0.1: a' = 0.3, 0.3; their sum is 0.6 already.
    assert adjust_weights([0.2, 0.4, 0.4], [2.0, None, 1.0], 0.1).tolist() == pytest.approx([0.3, 0.4, 0.3], rel=1e-12)
    # With d = 0.5, a' = 0.7 and -0.1 -> 0: rescaled to 0.6, the first has all of it.
    assert adjust_weights([0.2, 0.4, 0.4], [2.0, NAN, 1.0], 0.5).tolist() == pytest.approx([0.6, 0.4, 0.0], rel=1e-12)


# --- symmetries and forms of input ---


def test_permuting_the_sites_permutes_the_weights_to_the_bit() -> None:
    cases_2: list[list[float]] = [
        [0.1, 0.7, -0.3, 0.23, 0.56],
        [0.1, NAN, -0.3, 0.2, 0.8],
        [1e-10, 1e10, 0.0, 0.3e10, -1e10],
    ]
    for normalizer in NORMALIZERS:
        for gaps in cases_2:
            weights = [0.1, 0.2, 0.3, 0.25, 0.15]
            adjusted = adjust_weights(weights, gaps, 0.3, normalizer)
            for order in permutations(range(len(gaps))):
                permuted = adjust_weights([weights[i] for i in order], [gaps[i] for i in order], 0.3, normalizer)
                assert torch.equal(permuted, adjusted[list(order)])


# --- gaps and steps ---


def test_the_step_falls_on_a_line_from_its_size_to_zero() -> None:
    cases: list[tuple[int, float]] = [(0, 0.05), (10, 0.0375), (20, 0.025), (40, 0.0)]
    for number, step in cases:
        assert decayed_step(0.05, number, 40) == pytest.approx(step, rel=1e-12)


# --- new sites and the sites of a round ---


def test_a_new_site_starts_at_the_mean_of_the_known() -> None:
    # The mean of 0.2 and 0.8 is 0.5; all three together are 1.5.
    assert with_new_sites({"b": 0.2, "a": 0.8}, ["c", "a"]) == pytest.approx(
        {"a": 0.8 / 1.5, "b": 0.2 / 1.5, "c": 1 / 3}
    )


def test_the_weights_of_a_round_are_those_of_its_sites_rescaled() -> None:
    known = {"a": 0.1, "b": 0.3, "c": 0.6}
    assert weights_of_round(known, ["b", "a"]) == pytest.approx({"a": 0.25, "b": 0.75}, rel=1e-12)
    assert weights_of_round(known, ["c"]) == {"c": 1.0}
    assert weights_of_round(known, known) == pytest.approx(known, rel=1e-12)
