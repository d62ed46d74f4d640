# SPDX-License-Identifier: Apache-2.0
"""Objectives by name: made, configured from text, and refused in one sentence that says what there is."""

from typing import Any

import pytest

from fdg_plugins.errors import SettingsError
from fdg_plugins.objectives import make_objective, read_settings


@pytest.mark.parametrize("spec", ["median", "", {}, {"name": ["erm"]}, None, 0.5, {"name": "erm", "strength": 1}])
def test_an_unknown_objective_or_setting_is_refused(spec: Any) -> None:
    with pytest.raises(SettingsError):
        make_objective(spec)


@pytest.mark.parametrize(
    ("name", "setting", "values"),
    [
        ("dim", "strength", (-0.1, True, None)),
        ("iir", "ema", (-0.1, 1.0000001, None)),
        ("iir", "probe", ("Extra_task", None)),
        ("iir", "frozen_batchnorm", (1, None)),
    ],
)
def test_a_value_out_of_range_is_refused_by_name(name: str, setting: str, values: tuple[Any, ...]) -> None:
    for value in values:
        with pytest.raises(SettingsError) as caught:
            make_objective({"name": name, setting: value})
        assert (caught.value.field, caught.value.value) == (setting, value)


def test_text_is_read_as_the_type_of_the_setting_and_the_rest_left_alone() -> None:
    text = {"strength": " 1e-3", "ema": "0", "frozen_batchnorm": "True", "probe": "previous_round "}
    read = read_settings("iir", text)
    assert read == {"strength": 1e-3, "ema": 0.0, "frozen_batchnorm": True, "probe": "previous_round"}
    assert make_objective({"name": "iir", **read}).probes is False
    assert read_settings("iir", {"frozen_batchnorm": "0", "ema": 1}) == {"frozen_batchnorm": False, "ema": 1}
    assert read_settings("dim", {}) == {}
