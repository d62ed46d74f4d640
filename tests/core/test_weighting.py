# SPDX-License-Identifier: Apache-2.0
"""Weights of sites, by gaps, losses and heads: on the simplex, solutions with known limits, and still at rest."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fdg_plugins.core import sample_weights
from fdg_plugins.core.accounting import gaussian_noise_multiplier
from fdg_plugins.core.adjustment import adjust_weights, weights_of_round, with_new_sites
from fdg_plugins.core.head_combination import SMALLEST, head_mixtures, uncertainty, weighted_means
from fdg_plugins.core.matching import match
from fdg_plugins.core.outliers import check_ratio
from fdg_plugins.core.partition import allot_sites, split_indices
from fdg_plugins.core.weighting import fisher_weights, risk_weights
from fdg_plugins.errors import SettingsError
from tests.random_tensors import normal_double

NAN, INF = float("nan"), float("inf")
REFUSED: list[Callable[[], Any]] = [
    lambda: sample_weights([3, 0]),
    lambda: match(torch.tensor([[1.0, NAN], [NAN, 1.0]]), [0.5, 0.5], 0.5),
    lambda: match(torch.eye(2), [0.5, 0.6], 0.5),
    lambda: check_ratio(0.5),
    lambda: split_indices(2, 3, np.random.default_rng(0)),
    lambda: allot_sites({"a": 4, "b": 0}, 2),
    lambda: gaussian_noise_multiplier(1.0, 1e-5, 0),
    lambda: gaussian_noise_multiplier(1e300, 1e-5, 1),
]


@pytest.mark.parametrize("call", REFUSED)
def test_what_has_no_answer_is_refused(call: Callable[[], Any]) -> None:
    with pytest.raises((ValueError, SettingsError)):
        call()


REPEATABLE = settings(derandomize=True, deadline=None)
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


LOSSES = st.floats(0, 1e3)
SITES = st.lists(st.tuples(LOSSES, st.integers(1, 10**6)), min_size=1, max_size=8)
STRENGTHS = st.floats(1e-9, 1e9)


@REPEATABLE
@given(sites=SITES, strength=STRENGTHS)
def test_arfl_weights_are_optimal(sites: list[tuple[float, int]], strength: float) -> None:
    losses, samples = [loss for loss, _ in sites], [count for _, count in sites]
    regularisation = strength * sum(samples)
    alpha = risk_weights(losses, samples, regularisation)
    assert (alpha.dtype, alpha.shape) == (torch.float64, (len(sites),))
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
@given(loss=LOSSES, samples=st.lists(st.integers(1, 10**9), min_size=1, max_size=8), strength=STRENGTHS)
def test_equal_losses_weigh_by_samples_to_the_bit(loss: float, samples: list[int], strength: float) -> None:
    alpha = risk_weights([loss] * len(samples), samples, strength * sum(samples))
    assert alpha.tolist() == sample_weights(samples).tolist()


def test_weights_are_in_proportion_to_the_traces_whatever_their_scale_and_without_any_by_samples() -> None:
    for scale in [1e-300, 1e-10, 1.0, 1e10, 1e300]:
        weights = fisher_weights([3 * scale, 1 * scale, 4 * scale], [60, 10, 30])
        assert weights.dtype == torch.float64
        torch.testing.assert_close(weights, torch.tensor([3, 1, 4], dtype=torch.float64) / 8, rtol=1e-12, atol=0)
    assert fisher_weights([0.0] * 3, [60, 10, 30]).tolist() == [0.6, 0.1, 0.3]


def drawn(sites: int, seed: int = 0, scale: float = 1.0) -> tuple[torch.Tensor, torch.Tensor]:
    return scale * normal_double(seed, sites, 3, 4), scale**2 * (0.1 + normal_double(seed + 1, sites).abs())


def value(alpha: torch.Tensor, site: int, h: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    """Return alpha' (diag(V) + D_i) alpha, written out."""
    difference = (alpha.view(-1, 1, 1) * (h[site] - h)).sum(dim=0)
    return (v * alpha.square()).sum() + difference.square().sum()


@pytest.mark.parametrize("scale", [1e-6, 1.0, 1e6])
def test_no_point_of_the_simplex_is_better(scale: float) -> None:
    h, v = drawn(3, scale=scale)
    steps = torch.linspace(0, 1, 21, dtype=torch.float64)
    grid = [torch.stack([a, b, 1 - a - b]) for a in steps for b in steps if a + b <= 1 + 1e-12]
    for site, alpha in enumerate(head_mixtures(h, v)):
        assert bool((alpha >= 0).all())
        assert float(alpha.sum()) == pytest.approx(1)
        best = min(float(value(point, site, h, v)) for point in grid)
        assert float(value(alpha, site, h, v)) <= best * (1 + 1e-2 * SMALLEST)


def test_far_sites_get_no_weight_and_permuting_the_sites_permutes_the_mixtures() -> None:
    h, v = drawn(4)
    h[3] += 1e4
    mixtures = head_mixtures(h, v)
    assert mixtures[0, 3] == 0
    assert mixtures[3].tolist() == [0, 0, 0, 1]
    assert torch.equal(head_mixtures(h, torch.zeros(4, dtype=torch.float64)), torch.eye(4, dtype=torch.float64))
    order = torch.tensor([2, 0, 3, 1])
    torch.testing.assert_close(head_mixtures(h[order], v[order]), mixtures[order][:, order])


def test_the_uncertainty_is_the_variance_that_the_class_means_do_not_explain() -> None:
    features = torch.tensor([[1.0, 0.0], [3.0, 0.0], [0.0, 2.0], [0.0, 2.0]])
    means, counts = torch.tensor([[2.0, 0.0], [0.0, 2.0], [0.0, 0.0]]), torch.tensor([2, 2, 0])
    h = weighted_means(means, counts)
    assert h.tolist() == [[1.0, 0.0], [0.0, 1.0], [0.0, 0.0]]
    mean_square = float(features.square().sum(dim=1).mean())  # 4.5
    assert uncertainty(means, counts, mean_square) == pytest.approx((4.5 - 2.0) / 4)
    assert uncertainty(means, counts, 1.0) == 0, "never negative, whatever a site says"
