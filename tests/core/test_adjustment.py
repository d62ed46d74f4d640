# SPDX-License-Identifier: Apache-2.0
"""Adjustment by gaps: on the simplex, towards the sites with large gaps, and still where nothing is to be done."""

import math
from itertools import permutations
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fdg_plugins.core.adjustment import (
    adjust_weights,
    decayed_step,
    loss_gap,
    score_gap,
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


def test_two_sites_exchange_the_step() -> None:
    # gaps 0.3 and 0.1: mean 0.2, deviations 0.1 and -0.1, over their largest 1 and -1. a' = 0.5 +- 0.05, sum 1.
    assert adjust_weights([0.5, 0.5], [0.3, 0.1], 0.05).tolist() == pytest.approx([0.55, 0.45], rel=1e-12)


def test_three_sites_by_hand() -> None:
    # gaps 4, 1, 1: mean 2, deviations 2, -1, -1, moves 1, -1/2, -1/2; with d = 0.2: a' = 0.4, 0.4, 0.2, sum 1.
    assert adjust_weights([0.2, 0.5, 0.3], [4.0, 1.0, 1.0], 0.2).tolist() == pytest.approx([0.4, 0.4, 0.2], rel=1e-12)


def test_a_site_far_below_the_mean_is_clipped_and_the_rest_renormalised() -> None:
    # gaps 0, 0, -3: mean -1, deviations 1, 1, -2, moves 1, 1, -2; with d = 0.2: a' = 0.6, 0.6, -0.2 -> 0, sum 1.2.
    assert adjust_weights([0.4, 0.4, 0.2], [0.0, 0.0, -3.0], 0.2).tolist() == pytest.approx([0.5, 0.5, 0.0], rel=1e-12)


def test_the_released_rule_takes_no_mean_and_divides_by_the_largest_size() -> None:
    # gaps 1, -2: over 2 they are 1/2, -1; with d = 0.2: a' = 0.6, 0.3, sum 0.9.
    assert adjust_weights([0.5, 0.5], [1.0, -2.0], 0.2, "max_abs").tolist() == pytest.approx([2 / 3, 1 / 3], rel=1e-12)
    # Its step is a third: a' = 0.5 + 1/30, 0.5 - 2/30, that is 16/30 and 13/30, sum 29/30.
    third = adjust_weights([0.5, 0.5], [1.0, -2.0], 0.2 / 3, "max_abs")
    assert third.tolist() == pytest.approx([16 / 29, 13 / 29], rel=1e-12)


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


@pytest.mark.parametrize(
    ("normalizer", "absence"),
    [
        ("max", 0.4),
        *(
            pytest.param(*pair, marks=pytest.mark.nightly)
            for pair in (("max", 0.0), ("max_abs", 0.0), ("max_abs", 0.4))
        ),
    ],
)
def test_ten_thousand_rounds_stay_on_the_simplex(normalizer: str, absence: float) -> None:
    generator = torch.Generator().manual_seed(3)
    gaps = torch.randn(10_000, 5, generator=generator, dtype=torch.float64)
    gaps *= (10 * torch.randn(10_000, 1, generator=generator, dtype=torch.float64)).exp()
    gaps[torch.rand(10_000, 5, generator=generator) < absence] = NAN
    weights, moved = torch.full((5,), 0.2, dtype=torch.float64), 0
    for number, row in enumerate(gaps):
        before, weights = weights, adjust_weights(weights, row, decayed_step(0.2, number, 10_000), normalizer)
        moved += not torch.equal(before, weights)
        assert_on_simplex(weights, 5)
    assert moved > 5_000


@REPEATABLE
@given(problem=problems(st.integers(-1000, 1000).map(float)), step=st.floats(0.001, 1))
def test_from_equal_weights_the_site_with_the_largest_gap_gains(
    problem: tuple[torch.Tensor, list[float]], step: float
) -> None:
    gaps = problem[1]
    adjusted = adjust_weights([1 / len(gaps)] * len(gaps), gaps, step)
    largest, smallest = gaps.index(max(gaps)), gaps.index(min(gaps))
    if max(gaps) > min(gaps):
        assert adjusted[largest] > 1 / len(gaps) > adjusted[smallest]


# --- where nothing is to be done ---


def test_equal_gaps_leave_the_weights_to_the_bit() -> None:
    cases_2: list[list[float]] = [[0.1, 0.2, 0.7], [1.0, 0.0, 0.0], [1 / 3] * 3]
    for gap in [0.0, 1.0, -0.3, 0.1, 1e-320, 1e308, -1e308]:
        for weights in cases_2:
            assert adjust_weights(weights, [gap] * 3, 0.05).tolist() == weights


def test_gaps_that_differ_by_rounding_are_equal() -> None:
    for count in [2, 3, 7, 10, 100]:
        for gap in [0.1, -0.7, 3e-9]:
            weights = [1 / count] * count
            doubles = [gap if site % 2 else math.nextafter(gap, INF) for site in range(count)]
            singles = [
                torch.tensor(gap).item() if site % 2 else gap for site in range(count)
            ]  # one site computed in float32
            for gaps in (doubles, singles):
                assert gaps[0] != gaps[1]
                assert adjust_weights(weights, gaps, 0.05).tolist() == weights


def test_equal_gaps_do_move_unequal_weights_under_the_released_rule() -> None:
    # Each gap over itself is 1: a' = 0.4, 0.5, 0.7, sum 1.6.
    adjusted = adjust_weights([0.2, 0.3, 0.5], [0.7] * 3, 0.2, "max_abs")
    assert adjusted.tolist() == pytest.approx([0.4 / 1.6, 0.5 / 1.6, 0.7 / 1.6])


@pytest.mark.parametrize("normalizer", NORMALIZERS)
def test_a_step_of_zero_leaves_the_weights_to_the_bit(normalizer: str) -> None:
    assert adjust_weights([0.1, 0.2, 0.7], [1.0, 5.0, -2.0], 0.0, normalizer).tolist() == [0.1, 0.2, 0.7]


def test_a_single_site_keeps_all_the_weight() -> None:
    for normalizer in NORMALIZERS:
        for gap in [-2.0, 0.0, 3.0]:
            assert adjust_weights([1.0], [gap], 0.05, normalizer).tolist() == [1.0]


def test_a_single_site_that_reports_keeps_its_weight() -> None:
    for normalizer in NORMALIZERS:
        for gap in [-2.0, 0.0, 3.0]:
            assert adjust_weights([0.1, 0.2, 0.7], [None, gap, NAN], 0.05, normalizer).tolist() == [0.1, 0.2, 0.7]


@pytest.mark.parametrize("gaps", [[None] * 3, [NAN, INF, -INF], torch.full((3,), NAN)])
def test_no_gap_at_all_leaves_the_weights(gaps: list[float | None] | torch.Tensor) -> None:
    assert adjust_weights([0.1, 0.2, 0.7], gaps, 0.05).tolist() == [0.1, 0.2, 0.7]


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


def test_the_mean_is_that_of_the_sites_that_report() -> None:
    assert adjust_weights([0.25] * 4, [1.0, 2.0, 3.0, INF], 0.05)[1] == pytest.approx(0.25, rel=1e-12)


def test_a_site_at_zero_comes_back_when_its_gap_is_large() -> None:
    assert adjust_weights([0.0, 1.0], [2.0, 1.0], 0.1).tolist() == pytest.approx([0.1, 0.9], rel=1e-12)


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


def test_the_scale_of_the_gaps_does_not_matter() -> None:
    for normalizer in NORMALIZERS:
        for scale in [1e-300, 1e-10, 3.0, 1e10, 1e300]:
            gaps = [0.1, 0.7, -0.3]
            scaled = adjust_weights([0.2, 0.3, 0.5], [scale * gap for gap in gaps], 0.1, normalizer)
            torch.testing.assert_close(
                scaled, adjust_weights([0.2, 0.3, 0.5], gaps, 0.1, normalizer), rtol=1e-12, atol=0.0
            )


def test_adding_to_all_gaps_changes_nothing_in_the_paper_and_something_in_its_code() -> None:
    gaps, shifted = [0.1, 0.7, -0.3], [1.1, 1.7, 0.7]
    paper, released = (
        [adjust_weights([0.2, 0.3, 0.5], each, 0.1, normalizer) for each in (gaps, shifted)]
        for normalizer in NORMALIZERS
    )
    torch.testing.assert_close(paper[0], paper[1], rtol=1e-12, atol=0.0)
    assert (released[0] - released[1]).abs().max() > 0.01


def test_bad_input_is_refused_with_the_reason() -> None:
    cases: list[tuple[Any, Any, float, str, str]] = [
        ([0.5, 0.5], [1.0, 2.0], -0.1, "max", "not negative, got -0.1"),
        ([0.5, 0.5], [1.0, 2.0], NAN, "max", "not negative, got nan"),
        ([0.5, 0.5], [1.0, 2.0], INF, "max", "not negative, got inf"),
        ([0.5, 0.5], [1.0, 2.0], 0.1, "mean", "normalizer is 'mean', expected one of max, max_abs"),
        ([0.5, 0.4], [1.0, 2.0], 0.1, "max", "sum to one"),
        ([NAN, 1.0], [1.0, 2.0], 0.1, "max", "sum to one"),
        ([0.5, 0.5], [1.0], 0.1, "max", r"each of 1 sites, got shape \[2\]"),
        ({"a": 1.0}, {"b": 1.0}, 0.1, "max", "site b: has no weight; known are a"),
    ]
    for weights, gaps, step, normalizer, message in cases:
        with pytest.raises(ValueError, match=message):
            adjust_weights(weights, gaps, step, normalizer)


# --- gaps and steps ---


def test_a_gap_is_positive_where_the_global_model_is_worse() -> None:
    assert loss_gap(global_loss=1.5, local_loss=1.0) == 0.5
    assert score_gap(global_score=0.25, local_score=0.75) == 0.5
    assert not math.isfinite(loss_gap(NAN, 1.0))
    assert not math.isfinite(loss_gap(INF, INF))  # a diverged site gives no gap, not a gap of zero


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


@pytest.mark.parametrize("new", [[], ["a"], ["b", "a"]])
def test_without_a_new_site_the_weights_stay_to_the_bit(new: list[str]) -> None:
    known = {"a": 0.1, "b": 0.2, "c": 0.7 - 1e-15}  # rounding of many rounds
    assert with_new_sites(known, new) == known


def test_sites_that_join_one_by_one_start_as_if_they_had_joined_at_once() -> None:
    known = {"a": 0.1, "b": 0.9}
    assert with_new_sites(with_new_sites(known, ["c"]), ["d"]) == pytest.approx(with_new_sites(known, ["d", "c"]))


def test_the_weights_of_a_round_are_those_of_its_sites_rescaled() -> None:
    known = {"a": 0.1, "b": 0.3, "c": 0.6}
    assert weights_of_round(known, ["b", "a"]) == pytest.approx({"a": 0.25, "b": 0.75}, rel=1e-12)
    assert weights_of_round(known, ["c"]) == {"c": 1.0}
    assert weights_of_round(known, known) == pytest.approx(known, rel=1e-12)
