# SPDX-License-Identifier: Apache-2.0
"""Objectives by name: made, configured from text, and refused in one sentence that says what there is."""

import doctest
from typing import Any

import pytest

import fdg_plugins.objectives
from fdg_plugins.errors import SettingsError
from fdg_plugins.methods.feddim import FedDIMObjective
from fdg_plugins.methods.fediir import FedIIRObjective
from fdg_plugins.objectives import ERMObjective, make_objective, objective_settings, read_settings

IIR = ["strength", "ema", "frozen_batchnorm", "probe", "variant"]


def test_the_overview_page_is_true() -> None:
    outcome = doctest.testmod(fdg_plugins.objectives)
    assert outcome.attempted > 0
    assert outcome.failed == 0


def test_the_defaults_are_those_of_the_papers_or_said_to_be_ours() -> None:
    assert make_objective("erm") == ERMObjective()
    assert make_objective("dim") == FedDIMObjective(strength=0.01, insight_momentum=0.5, target="insight")
    assert make_objective("iir") == FedIIRObjective(1e-2, 0.95, False, "extra_task", "paper")


def test_a_specification_is_not_changed() -> None:
    spec = {"name": "dim", "strength": 1}
    assert make_objective(spec) == FedDIMObjective(strength=1)
    assert spec == {"name": "dim", "strength": 1}


@pytest.mark.parametrize(
    ("objective", "expected"),
    [("erm", False), ("dim", False), ("iir", True), ({"name": "iir", "probe": "previous_round"}, False)],
)
def test_only_gradients_of_the_round_itself_need_a_task_of_their_own(objective: Any, expected: bool) -> None:
    assert make_objective(objective).probes is expected


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


def test_the_settings_of_an_objective_are_listed_in_their_order() -> None:
    assert objective_settings("erm") == []
    assert objective_settings("dim") == ["strength", "insight_momentum", "target"]
    assert objective_settings("iir") == IIR


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


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("dim", {"strength": "much"}, r"^strength is 'much', expected a number\.$"),
        ("dim", {"strength": ""}, "strength is '', expected a number"),
        ("iir", {"frozen_batchnorm": "maybe"}, r"^frozen_batchnorm is 'maybe', expected true or false\.$"),
        ("iir", {"momentum": "1"}, "objective 'iir' has no setting 'momentum'; it has strength, ema"),
        ("none", {"strength": "1"}, "objective is 'none', expected one of"),
    ],
)
def test_text_that_cannot_be_read_is_refused_by_name(name: str, text: dict[str, str], message: str) -> None:
    with pytest.raises(SettingsError, match=message):
        read_settings(name, text)


@pytest.mark.parametrize("text", ["nan", "inf", "-1"])
def test_text_that_is_a_number_out_of_range_is_refused_when_the_objective_is_made(text: str) -> None:
    with pytest.raises(SettingsError, match="strength is"):
        make_objective({"name": "dim", **read_settings("dim", {"strength": text})})
