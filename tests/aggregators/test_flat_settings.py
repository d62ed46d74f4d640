# SPDX-License-Identifier: Apache-2.0
"""The settings of a weighting are settings of the aggregator that has it, by name and as text."""

from typing import Any

import pytest

from fdg_plugins.aggregators import AGGREGATORS, UpdateAggregator, make_aggregator
from fdg_plugins.errors import SettingsError

WITH_A_WEIGHTING = [name for name in AGGREGATORS if "weighting" in AGGREGATORS[name].setting_names()]


def aggregator(weighting: Any, name: str = "fedomg") -> UpdateAggregator:
    return make_aggregator({"name": name, "weighting": weighting})


def test_one_of_them_is_changed_by_its_name_and_the_others_stay() -> None:
    cases_2: list[Any] = ["ga", {"name": "ga"}, {"name": "ga", "step_size": 0.3, "normalizer": "max_abs"}]
    cases_3: list[Any] = [0.125, "0.125"]
    for name in WITH_A_WEIGHTING:
        for given in cases_2:
            for value in cases_3:
                made = aggregator(given, name)
                before = made.settings()
                made.configure({"step_size": value})
                others = given if isinstance(given, dict) else {"name": given}
                assert made.settings() == {**before, "weighting": {**others, "step_size": 0.125}}
                assert vars(made.rule())["step_size"] == 0.125


def test_what_neither_has_is_refused_and_changes_nothing() -> None:
    cases: list[tuple[dict[str, Any], str]] = [
        ({"step_size": "many"}, r"^step_size is 'many', expected"),
        ({"normalizer": "least"}, r"^normalizer is 'least', expected"),
        ({"strength": "1"}, r"^FedOMGAggregator has no setting 'strength'"),
        ({"weighting": "{broken"}, r"^weighting is '{broken', expected one of"),
        ({"weighting": '{"name": "ga", "no": 1}'}, r"has no setting 'no'"),
        ({"weighting": "samples", "step_size": 0.5}, r"^FedOMGAggregator has no setting 'step_size'"),
    ]
    for settings, message in cases:
        made = aggregator({"name": "ga", "step_size": 0.3})
        before = made.settings()
        with pytest.raises(SettingsError, match=message):
            made.configure(settings)
        assert made.settings() == before
        assert vars(made.rule())["step_size"] == 0.3
