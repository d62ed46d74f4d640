# SPDX-License-Identifier: Apache-2.0
"""Means over seeds and differences, by hand."""

import math

import pytest

from fdg_plugins.lab.analysis.estimates import Estimate, average, difference, estimate, over_seeds_in_words, span_with


def test_mean_and_sample_standard_deviation_by_hand() -> None:
    found = estimate({2: 0.7, 0: 0.5, 1: 0.6})
    assert found is not None
    # Deviations -0.1, 0, 0.1: squares sum to 0.02, over n - 1 = 2 gives 0.01.
    assert found.mean == pytest.approx(0.6)
    assert found.std == pytest.approx(0.1)
    assert found.count == 3
    assert list(found.by_seed.items()) == [(0, 0.5), (1, 0.6), (2, 0.7)]


def test_one_value_has_no_deviation_and_none_have_no_mean() -> None:
    assert estimate({4: 0.25}) == Estimate(0.25, None, 1, {4: 0.25})
    assert estimate({}) is None


def test_the_average_is_over_the_domains_of_one_seed() -> None:
    assert average({"a": {0: 0.2, 1: 0.4}, "b": {0: 0.6, 1: 0.4}}) == pytest.approx({0: 0.4, 1: 0.4})


def test_a_seed_that_lacks_a_domain_has_no_average() -> None:
    assert average({"a": {0: 0.2, 1: 0.4}, "b": {1: 0.6, 2: 0.1}}) == pytest.approx({1: 0.5})
    assert average({"a": {0: 0.2}, "b": {}}) == {}


def test_averaging_first_over_domains_gives_another_deviation_than_averaging_deviations() -> None:
    by_seed = average({"a": {0: 0.4, 1: 0.6}, "b": {0: 0.6, 1: 0.4}})
    found = estimate(by_seed)
    assert found is not None
    assert found.std == pytest.approx(0.0, abs=1e-12)


def test_the_standard_error_of_a_difference_by_hand() -> None:
    # 0.03^2 / 9 + 0.04^2 / 4 = 0.0001 + 0.0004
    found = difference(Estimate(0.80, 0.03, 9), Estimate(0.75, 0.04, 4))
    assert found.value == pytest.approx(0.05)
    assert found.standard_error == pytest.approx(math.sqrt(0.0005))
    assert found.within_two is False  # twice the error is 0.0447


@pytest.mark.parametrize(("theirs", "within"), [(0.75, False), (0.76, True), (0.84, True), (0.85, False)])
def test_within_two_standard_errors_counts_on_both_sides(theirs: float, within: bool) -> None:
    assert difference(Estimate(0.80, 0.03, 9), Estimate(theirs, 0.04, 4)).within_two is within


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        (Estimate(0.8, None, 1), Estimate(0.8, 0.1, 3)),
        (Estimate(0.8, 0.1, 3), Estimate(0.8, None, 3)),
        (Estimate(0.8, 0.1, 3), Estimate(0.8, 0.1, 1)),
    ],
)
def test_nothing_is_guessed_where_a_deviation_is_unknown(ours: Estimate, theirs: Estimate) -> None:
    found = difference(ours, theirs)
    assert (found.standard_error, found.within_two) == (None, None)


def test_two_runs_are_too_few_for_a_verdict_but_not_for_a_standard_error() -> None:
    found = difference(Estimate(0.8, 0.1, 2), Estimate(0.8, 0.1, 3))
    assert found.standard_error == pytest.approx(math.sqrt(0.005 + 0.01 / 3))
    assert found.within_two is None


def test_two_means_without_any_spread_agree_only_if_they_are_equal() -> None:
    assert difference(Estimate(0.5, 0.0, 3), Estimate(0.5, 0.0, 3)).within_two is True
    assert difference(Estimate(0.5, 0.0, 3), Estimate(0.51, 0.0, 3)).within_two is False


def test_a_table_is_over_one_seed_only_if_each_of_its_cells_is() -> None:
    assert over_seeds_in_words([4], [1, 1], counted=False) == "one seed (4)"
    assert over_seeds_in_words([0, 4], [1, 2], counted=False) == "mean ± standard deviation over 1, 2 seeds (0, 4)"


def test_a_span_of_numbers_agrees_with_its_noun() -> None:
    assert span_with([1, 1], "round") == "1 round"
    assert span_with([3], "source site") == "3 source sites"
    assert span_with([5, 1, 3], "round") == "1 to 5 rounds"
