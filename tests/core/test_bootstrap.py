# SPDX-License-Identifier: Apache-2.0
"""Bootstrap intervals from counts of outcomes."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fdg_plugins.core.bootstrap import PAIRED, RIGHT_OR_WRONG, interval_of

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


def test_pairing_narrows_it_where_models_agree() -> None:
    agreeing, differing = (interval_of([pair], PAIRED) for pair in ((75, 5, 10, 10), (40, 40, 45, 0)))
    assert agreeing[1] - agreeing[0] < differing[1] - differing[0]


def test_it_covers_the_true_difference_of_most_samples() -> None:
    generator = np.random.default_rng(0)
    true = np.array([0.6, 0.1, 0.2, 0.1])
    covered = 0
    for _ in range(200):
        low, high = interval_of([generator.multinomial(150, true).tolist()], PAIRED)
        covered += low <= 0.1 <= high
    assert covered / 200 == pytest.approx(0.95, abs=0.04)
