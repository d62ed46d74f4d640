# SPDX-License-Identifier: Apache-2.0
"""Lengths that stand out: one liar moves no reference, nobody honest is named; intervals from counts of outcomes."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fdg_plugins.core.bootstrap import PAIRED, RIGHT_OR_WRONG, interval_of
from fdg_plugins.core.outliers import clip_factors, length_ratios, reference_length

lengths = st.floats(0, 1e30, allow_nan=False)
honest = st.floats(0.5, 2.0)


@given(st.lists(honest, min_size=2, max_size=9), st.floats(0, 1e300) | st.just(math.inf))
def test_one_liar_is_seen_and_blames_nobody(own: list[float], lie: float) -> None:
    sites = {f"site-{number}": length for number, length in enumerate(own)}
    ratios = length_ratios({**sites, "liar": lie})
    assert all(ratios[site] <= 4.0 for site in sites)
    assert (ratios["liar"] > 10) is (lie > 10 * reference_length([*own, lie] if lie < math.inf else own))


@given(honest, st.floats(0, 1e300))
def test_of_two_sites_earlier_rounds_say_who_lies(own: float, lie: float) -> None:
    ratios = length_ratios({"honest": own, "liar": lie}, earlier=[1.0, 1.0])
    assert ratios["honest"] <= 2.0
    assert ratios["liar"] == lie


def test_without_a_majority_the_shorter_one_counts_and_a_floor_keeps_short_ones_from_standing_out() -> None:
    assert length_ratios({"art": 1.0, "photo": 300.0}) == {"art": 1.0, "photo": 300.0}
    assert length_ratios({"art": 1e-9, "photo": 1.0}, floor=2.0)["photo"] == 0.5
    assert length_ratios({"art": 1e-9, "cartoon": 1e-9, "photo": 1.0})["photo"] == pytest.approx(1e9)
    assert length_ratios({"art": 0.0, "cartoon": 0.0, "photo": 1.0})["photo"] == math.inf
    assert length_ratios({"art": 0.0, "cartoon": 0.0}) == {"art": 0.0, "cartoon": 0.0}


@given(st.lists(lengths, min_size=1, max_size=9), st.floats(0.1, 10))
def test_what_is_shortened_ends_at_the_limit_and_nothing_is_made_longer(of_sites: list[float], medians: float) -> None:
    factors = clip_factors(of_sites, medians)
    limit = medians * sorted(of_sites)[(len(of_sites) - 1) // 2]
    for length, factor in zip(of_sites, factors, strict=True):
        assert 0 <= factor <= 1
        assert length * factor == (length if length <= limit else pytest.approx(limit))


PAIRS = st.lists(st.tuples(*[st.integers(0, 50)] * 4).filter(any), min_size=1, max_size=3)


@given(PAIRS)
def test_the_interval_holds_the_difference_and_swapping_the_models_turns_it(pairs: list[tuple[int, ...]]) -> None:
    gained, images = sum(later - first for _, first, later, _ in pairs), sum(map(sum, pairs))
    low, high = interval_of(pairs, PAIRED)
    assert -1 <= low <= gained / images + 1e-12
    assert gained / images - 1e-12 <= high <= 1
    swapped = interval_of(pairs, [-value for value in PAIRED])
    assert swapped == pytest.approx((-high, -low))


def test_it_is_that_of_the_normal_approximation_for_many_images() -> None:
    counts = [(600, 400), (90, 10)]
    share = 690 / 1100
    error = math.sqrt(600 * 0.4 + 90 * 0.1) / 1100  # variance within the sites, whose sizes are fixed
    assert interval_of(counts, RIGHT_OR_WRONG) == pytest.approx((share - 1.96 * error, share + 1.96 * error), abs=2e-3)


def test_it_covers_the_true_difference_of_most_samples() -> None:
    generator = np.random.default_rng(0)
    true = np.array([0.6, 0.1, 0.2, 0.1])
    covered = 0
    for _ in range(200):
        low, high = interval_of([generator.multinomial(150, true).tolist()], PAIRED)
        covered += low <= 0.1 <= high
    assert covered / 200 == pytest.approx(0.95, abs=0.04)
