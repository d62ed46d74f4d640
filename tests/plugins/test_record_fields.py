# SPDX-License-Identifier: Apache-2.0
"""The fields of a method's record and of the records in it: what does not fit is refused by its name."""

from collections.abc import Callable
from typing import Any

import pytest

from fdg_plugins.errors import SettingsError
from fdg_plugins.plugins.method import Default, Difference, Differences, Equation, Method, Reference, SettingSource

PAPER: dict[str, Any] = {"authors": "A", "title": "B", "venue": "C", "year": 2026}


def made(**changes: Any) -> Method:
    whole = {"key": "mine", "title": "Mine", "line": "does it", "acts": ("objective",)}
    return Method(**{**whole, "reference": Reference(**PAPER), "objective": "my_package.module:Mine", **changes})


@pytest.mark.parametrize(
    ("type_", "fields", "field"),
    [
        (Default, {"weighting": "strength=1"}, "weighting"),
        (Default, {"objective": {3: 1}}, "objective"),
        (Equation, {"formula": ["a = b"], "meaning": "m"}, "formula"),
        (SettingSource, {"name": "power", "code": True}, "code"),
        (Reference, {**PAPER, "year": "2026"}, "year"),
        (Difference, {"point": "sign", "ours": 1}, "ours"),
        (Differences, {"rows": "sign"}, "rows"),
        (made, {"rank": "first"}, "rank of method 'mine'"),
        (made, {"protocol": "gap_split"}, "protocol of method 'mine'"),
        (made, {"reference": "A, B (2026)"}, "reference of method 'mine'"),
    ],
)
def test_a_field_that_is_not_what_its_annotation_says_is_refused(
    type_: Callable[..., Any], fields: dict[str, Any], field: str
) -> None:
    with pytest.raises(SettingsError) as caught:
        type_(**fields)
    assert caught.value.field == field


@pytest.mark.parametrize(
    "changes",
    [
        {"part": "Root"},
        {"acts": ("objective", 3)},
        {"defaults": (Default(weighting={"power": 1}),)},
        {"acts": ("direction",), "objective": None, "weighting": "my_package.module:Mine"},
        {"acts": ("objective", "weighting")},
    ],
)
def test_a_record_that_contradicts_itself_is_refused(changes: dict[str, Any]) -> None:
    with pytest.raises(SettingsError):
        made(**changes)


def test_a_method_without_an_aggregator_may_have_settings_of_the_plain_mean() -> None:
    assert made(defaults=(Default(server={"server_lr": 1.0}, source="ours"),), rank=3).rank == 3
