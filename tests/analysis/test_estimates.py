# SPDX-License-Identifier: Apache-2.0
"""Means over seeds and differences, by hand."""

import math

import pytest

from fdg_plugins.lab.analysis.estimates import cell_of, difference, estimate, span, text_of


def test_estimate_by_hand() -> None:
    found = estimate({2: 0.7, 0: 0.5, 1: 0.6})
    # Deviations -0.1, 0, 0.1: squares sum to 0.02, over n - 1 = 2 gives 0.01.
    assert (found["mean"], found["std"], found["seeds"]) == pytest.approx((0.6, 0.1, 3))
    assert found["standard_error"] == pytest.approx(0.1 / math.sqrt(3))
    assert found["values"] == "0:0.5;1:0.6;2:0.7"
    assert text_of(found, 100) == "60.0 ± 10.0"
    assert {**estimate({4: 0.25}), **cell_of(0.25, None, 1)} == estimate({4: 0.25})
    assert estimate({}) == {}


@pytest.mark.parametrize(
    ("ours", "theirs", "error", "verdict"),
    [
        # 0.03^2 / 9 + 0.04^2 / 4 = 0.0001 + 0.0004; twice the error is 0.0447
        ((0.80, 0.03, 9), (0.75, 0.04, 4), math.sqrt(0.0005), "no"),
        ((0.80, 0.03, 9), (0.76, 0.04, 4), math.sqrt(0.0005), "yes"),
        ((0.80, 0.03, 9), (0.84, 0.04, 4), math.sqrt(0.0005), "yes"),
        ((0.80, 0.03, 9), (0.85, 0.04, 4), math.sqrt(0.0005), "no"),
        ((0.8, None, 1), (0.8, 0.1, 3), None, "unknown"),
        ((0.8, 0.1, 3), (0.8, None, 3), None, "unknown"),
        ((0.8, 0.1, 3), (0.8, 0.1, 1), None, "unknown"),
        ((0.8, 0.1, 2), (0.8, 0.2, 4), math.sqrt(0.015), "unknown"),  # two runs are too few
    ],
)
def test_difference(
    ours: tuple[float, float | None, int], theirs: tuple[float, float | None, int], error: float | None, verdict: str
) -> None:
    found = difference(cell_of(*ours), cell_of(*theirs))
    assert found["mean"] == pytest.approx(ours[0] - theirs[0])
    assert found["standard_error"] == (None if error is None else pytest.approx(error))
    assert found["within_two_standard_errors"] == verdict


def test_span_of_numbers() -> None:
    assert [span(values, "round") for values in ([1, 1], [3], [5, 1, 3])] == ["1 round", "3 rounds", "1 to 5 rounds"]
