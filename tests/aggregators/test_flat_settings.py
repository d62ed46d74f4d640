# SPDX-License-Identifier: Apache-2.0
"""The settings of a weighting are settings of the aggregator that has it, by name and as text."""

import inspect
from typing import Any

import pytest
import torch

from fdg_plugins.aggregators import AGGREGATORS, WEIGHTINGS, UpdateAggregator, Weighting, flat_names, make_aggregator
from fdg_plugins.errors import SettingsError

WITH_A_WEIGHTING = [name for name in AGGREGATORS if "weighting" in AGGREGATORS[name].setting_names()]


def aggregator(weighting: Any, name: str = "fedomg") -> UpdateAggregator:
    return make_aggregator({"name": name, "weighting": weighting})


@pytest.mark.parametrize("name", WITH_A_WEIGHTING)
@pytest.mark.parametrize("weighting", sorted(WEIGHTINGS))
def test_the_names_are_those_of_both(name: str, weighting: str) -> None:
    own = AGGREGATORS[name].setting_names()
    theirs = list(inspect.signature(WEIGHTINGS[weighting]).parameters)
    assert flat_names(aggregator(weighting, name).settings()) == list(dict.fromkeys([*own, *theirs]))


@pytest.mark.parametrize("name", WITH_A_WEIGHTING)
@pytest.mark.parametrize("given", ["ga", {"name": "ga"}, {"name": "ga", "step_size": 0.3, "normalizer": "max_abs"}])
@pytest.mark.parametrize("value", [0.125, "0.125"])
def test_one_of_them_is_changed_by_its_name_and_the_others_stay(name: str, given: Any, value: Any) -> None:
    made = aggregator(given, name)
    before = made.settings()
    made.configure({"step_size": value})
    others = given if isinstance(given, dict) else {"name": given}
    assert made.settings() == {**before, "weighting": {**others, "step_size": 0.125}}
    assert vars(made.rule())["step_size"] == 0.125


def test_the_weighting_and_a_setting_of_it_may_come_together() -> None:
    made = aggregator("samples")
    made.configure({"step_size": "0.5", "weighting": "ga", "kappa": "0.25"})
    assert (made.settings()["weighting"], made.settings()["kappa"]) == ({"name": "ga", "step_size": 0.5}, 0.25)
    made.configure({"weighting": ' {"name": "ga", "normalizer": "max_abs"}'})
    assert made.settings()["weighting"] == {"name": "ga", "normalizer": "max_abs"}


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"step_size": "many"}, r"^step_size is 'many', expected a finite number of at least 0\.$"),
        ({"normalizer": "least"}, r"^normalizer is 'least', expected"),
        ({"strength": "1"}, r"^FedOMGAggregator has no setting 'strength'"),
        ({"weighting": "{broken"}, r"^weighting is '{broken', expected one of"),
        ({"weighting": '{"name": "ga", "no": 1}'}, r"has no setting 'no'"),
        ({"weighting": "samples", "step_size": 0.5}, r"^FedOMGAggregator has no setting 'step_size'"),
    ],
)
def test_what_neither_has_is_refused_and_changes_nothing(settings: dict[str, Any], message: str) -> None:
    made = aggregator({"name": "ga", "step_size": 0.3})
    before = made.settings()
    with pytest.raises(SettingsError, match=message):
        made.configure(settings)
    assert made.settings() == before
    assert vars(made.rule())["step_size"] == 0.3


def test_text_becomes_the_type_of_the_default(monkeypatch: pytest.MonkeyPatch) -> None:
    class Windowed(Weighting):
        def __init__(self, window: int = 3, invert: bool = False, limit: float | None = None) -> None:
            self.given = (window, invert, limit)

        def __call__(self, contributions: Any, round_of: Any = None) -> torch.Tensor:
            raise NotImplementedError

    monkeypatch.setitem(WEIGHTINGS._plain, "windowed", Windowed)
    for text, expected in (
        ({"window": "5", "invert": "false"}, (5, False, None)),
        ({"invert": "true", "limit": "2"}, (3, True, 2.0)),
    ):
        made = aggregator("windowed")
        made.configure(text)
        assert vars(made.rule())["given"] == expected
