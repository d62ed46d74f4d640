# SPDX-License-Identifier: Apache-2.0
"""Lengths that stand out: one liar moves no reference beyond an honest length, and nobody honest is ever named."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

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
