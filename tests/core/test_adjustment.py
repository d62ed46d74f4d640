# SPDX-License-Identifier: Apache-2.0
"""Adjustment by gaps: on the simplex, towards the sites with large gaps, and still where nothing is to be done."""

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fdg_plugins.core.adjustment import adjust_weights, weights_of_round, with_new_sites

REPEATABLE = settings(derandomize=True, deadline=None)
NAN, INF = float("nan"), float("inf")
STEPS = st.floats(0, 2)
Weights = dict[str, float]
Gaps = dict[str, float | None]


@st.composite
def problems(draw: st.DrawFn, gap: st.SearchStrategy[float | None]) -> tuple[Weights, Gaps]:
    """Weights of one to eight sites, some of them zero, and as many gaps."""
    shares = draw(st.lists(st.integers(0, 1000), min_size=1, max_size=8).filter(any))
    gaps = draw(st.lists(gap, min_size=len(shares), max_size=len(shares)))
    return named(*(share / sum(shares) for share in shares)), dict(zip("abcdefgh", gaps, strict=False))


def named(*values: float) -> Weights:
    return dict(zip("abcdefgh", values, strict=False))


def expected(weights: Weights, gaps: Gaps, step: float) -> Weights:
    """Eq. 3 as printed, for gaps that differ."""
    of = {site: gap for site, gap in gaps.items() if gap is not None}
    mean = sum(of.values()) / len(of)
    largest = max(of.values()) - mean
    moved = {site: max(weights[site] + (gap - mean) * step / largest, 0.0) for site, gap in of.items()}
    return {site: value / sum(moved.values()) for site, value in moved.items()}


def test_the_released_rule_clips_at_one_before_it_renormalises_and_the_paper_does_not() -> None:
    # released: a' = 0.95 + 0.1 -> 1, 0.05 + 0.05 = 0.1, sum 1.1.
    released = adjust_weights(named(0.95, 0.05), {**named(2.0, 1.0)}, 0.1, "max_abs")
    assert released == pytest.approx(named(10 / 11, 1 / 11))
    # paper, gaps 5, 2, -1: moves 1, 0, -1; a' = 1.05, 0.04, -0.09 -> 0, sum 1.09.
    paper = adjust_weights(named(0.95, 0.04, 0.01), {**named(5.0, 2.0, -1.0)}, 0.1)
    assert paper == pytest.approx(named(105 / 109, 4 / 109, 0.0))


@REPEATABLE
@given(problem=problems(st.floats(-1e3, 1e3)), step=STEPS)
def test_distinct_gaps_follow_the_equation(problem: tuple[Weights, Gaps], step: float) -> None:
    weights, gaps = problem
    values = [gap for gap in gaps.values() if gap is not None]
    if max(values) - min(values) > max(1e-6 * max(map(abs, values)), 1e-300):  # halves of less are not exact
        assert adjust_weights(weights, gaps, step) == pytest.approx(expected(weights, gaps, step), rel=1e-6, abs=1e-9)


@REPEATABLE
@given(
    problem=problems(st.one_of(st.floats(-1e300, 1e300), st.none(), st.sampled_from([NAN, INF, -INF]))),
    step=STEPS,
    normalizer=st.sampled_from(("max", "max_abs")),
)
def test_weights_stay_on_the_simplex(problem: tuple[Weights, Gaps], step: float, normalizer: str) -> None:
    weights, gaps = problem
    adjusted = adjust_weights(weights, gaps, step, normalizer)
    assert all(value >= 0 for value in adjusted.values())
    assert abs(math.fsum(adjusted.values()) - 1) <= 1e-12
    assert all(adjusted[site] == weights[site] for site, gap in gaps.items() if gap is None or not math.isfinite(gap))
    assert adjust_weights(dict(reversed(weights.items())), gaps, step, normalizer) == adjusted
    assert adjust_weights(weights, gaps, 0.0, normalizer) == weights


def test_equal_gaps_leave_the_weights_to_the_bit() -> None:
    for gap in [0.0, 1.0, -0.3, 0.1, 1e-320, 1e308, -1e308]:
        for weights in (named(0.1, 0.2, 0.7), named(1.0, 0.0, 0.0), named(*[1 / 3] * 3)):
            assert adjust_weights(weights, dict.fromkeys(weights, gap), 0.05) == weights


def test_the_sites_that_report_share_what_they_held() -> None:
    # Sites a and c hold 0.6 together. Moves 1 and -1 with d = 0.1: a' = 0.3, 0.3; their sum is 0.6 already.
    weights = named(0.2, 0.4, 0.4)
    assert adjust_weights(weights, {"a": 2.0, "c": 1.0}, 0.1) == pytest.approx(named(0.3, 0.4, 0.3), rel=1e-12)
    # With d = 0.5, a' = 0.7 and -0.1 -> 0: rescaled to 0.6, the first has all of it.
    assert adjust_weights(weights, {"a": 2.0, "b": NAN, "c": 1.0}, 0.5) == pytest.approx(named(0.6, 0.4, 0.0))


def test_a_new_site_starts_at_the_mean_and_the_weights_of_a_round_are_rescaled() -> None:
    # The mean of 0.2 and 0.8 is 0.5; all three together are 1.5.
    known = with_new_sites({"b": 0.2, "a": 0.8}, ["c", "a"])
    assert known == pytest.approx({"a": 0.8 / 1.5, "b": 0.2 / 1.5, "c": 1 / 3})
    known = {"a": 0.1, "b": 0.3, "c": 0.6}
    assert weights_of_round(known, ["b", "a"]) == pytest.approx({"a": 0.25, "b": 0.75}, rel=1e-12)
    assert weights_of_round(known, ["c"]) == {"c": 1.0}
