# SPDX-License-Identifier: Apache-2.0
"""Objectives by name: made, configured from text, and refused in one sentence that says what there is."""

import doctest
from typing import Any

import pytest

import fdg_plugins.objectives
from fdg_plugins.errors import SettingsError
from fdg_plugins.objectives import make_objective, read_settings


def test_the_overview_page_is_true() -> None:
    outcome = doctest.testmod(fdg_plugins.objectives)
    assert outcome.attempted > 0
    assert outcome.failed == 0


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("median", r"^objective is 'median', expected one of .*am, .*dim, .*erm, .*scaffold, .*sr\b.*\.$"),
        ("", "objective is '', expected one of"),
        ({}, "objective is None, expected one of"),
        ({"name": ["erm"]}, r"objective is \['erm'\], expected one of"),
        (None, "objective is None, expected a name or a mapping"),
        (0.5, "objective is 0.5, expected a name or a mapping"),
        ({"name": "erm", "strength": 1}, r"^objective 'erm' has no setting 'strength'; it has none\.$"),
        (
            {"name": "dim", "ema": 1},
            r"^objective 'dim' has no setting 'ema'; it has strength, insight_momentum, target\.$",
        ),
    ],
)
def test_an_unknown_objective_or_setting_is_refused_with_what_there_is(spec: Any, message: str) -> None:
    with pytest.raises(SettingsError, match=message):
        make_objective(spec)


NUMBERS = [("dim", "strength"), ("dim", "insight_momentum"), ("iir", "strength"), ("iir", "ema")]
NOT_NUMBERS = [-0.1, True, None]
FRACTIONS = [("dim", "insight_momentum"), ("iir", "ema")]
CHOICES = [("dim", "target"), ("iir", "probe"), ("iir", "variant")]


@pytest.mark.parametrize(
    ("name", "setting", "value"),
    [
        *[(*pair, value) for pair in NUMBERS for value in NOT_NUMBERS],
        *[(*pair, value) for pair in FRACTIONS for value in (1.0000001,)],
        *[(*pair, value) for pair in CHOICES for value in ("Paper", None)],
        *[("iir", "frozen_batchnorm", value) for value in (1, None)],
    ],
)
def test_a_value_out_of_range_is_refused_by_name(name: str, setting: str, value: Any) -> None:
    with pytest.raises(SettingsError) as caught:
        make_objective({"name": name, setting: value})
    assert str(caught.value).startswith(f"{setting} is {value!r}, expected ")


def test_text_is_read_as_the_type_of_the_setting_and_the_rest_left_alone() -> None:
    text = {"strength": " 1e-3", "ema": "0", "frozen_batchnorm": "True", "probe": "previous_round ", "variant": "paper"}
    read = read_settings("iir", text)
    assert read == {
        "strength": 1e-3,
        "ema": 0.0,
        "frozen_batchnorm": True,
        "probe": "previous_round",
        "variant": "paper",
    }
    assert make_objective({"name": "iir", **read}).probes is False
    assert read_settings("iir", {"frozen_batchnorm": "0", "ema": 1}) == {"frozen_batchnorm": False, "ema": 1}
    assert read_settings("dim", {}) == {}
