# SPDX-License-Identifier: Apache-2.0
"""The fields of a method's record and of the records in it: what does not fit is refused by field, in one sentence."""

import re
from typing import Any

import pytest

from fdg_plugins.errors import SettingsError
from fdg_plugins.plugins.method import (
    Default,
    Difference,
    Differences,
    Equation,
    Leaving,
    Method,
    Reference,
    SettingSource,
    Together,
)

PAPER: dict[str, Any] = {"authors": "A", "title": "B", "venue": "C", "year": 2026}
LEAVING: dict[str, Any] = {"what": "counts", "shape": "[Y]", "reveals": "how many"}


def made(**changes: Any) -> Method:
    whole = {"key": "mine", "title": "Mine", "line": "does it", "acts": ("objective",)}
    return Method(**{**whole, "reference": Reference(**PAPER), "objective": "my_package.module:Mine", **changes})


@pytest.mark.parametrize(
    ("type_", "fields", "message"),
    [
        (
            Default,
            {"weighting": "strength=1"},
            "weighting of Default(on='*') is the text 'strength=1', expected a mapping with names as keys, such as "
            "{'name': value}.",
        ),
        (
            Default,
            {"objective": {3: 1}},
            "objective of Default(on='*') is an instance of dict, expected a mapping",
        ),
        (Default, {"source": None}, "source of Default(on='*') is None, expected text."),
        (
            Default,
            {"protocol": ("gap_splitt",)},
            "protocol of Default(on='*') is the tuple ('gap_splitt',), expected a mapping with names as keys",
        ),
        (
            Equation,
            {"formula": ["a = b"], "meaning": None, "number": 3},
            "formula of a record Equation is the list ['a = b'], expected text.",
        ),
        (
            Equation,
            {"formula": "a", "meaning": None},
            "meaning of Equation(formula='a') is None, expected text.",
        ),
        (
            Equation,
            {"formula": "a", "meaning": "b", "number": 3},
            "number of Equation(formula='a') is the number 3, expected text or None, such as '3'.",
        ),
        (
            SettingSource,
            {"name": "power", "paper": 0.5},
            "paper of SettingSource(name='power') is the number 0.5, expected text or None, such as '0.5'.",
        ),
        (
            SettingSource,
            {"name": "power", "code": True},
            "code of SettingSource(name='power') is True, expected text or None.",
        ),
        (
            Leaving,
            {**LEAVING, "shape": [3]},
            "shape of Leaving(what='counts') is the list [3], expected text.",
        ),
        (
            Reference,
            {**PAPER, "authors": ("A", "B")},
            "authors of a record Reference is the tuple ('A', 'B'), expected text.",
        ),
        (
            Reference,
            {**PAPER, "title": 3},
            "title of Reference(authors='A') is the number 3, expected text, such as '3'.",
        ),
        (
            Reference,
            {**PAPER, "year": "2026"},
            "year of Reference(authors='A') is the text '2026', expected a whole number.",
        ),
        (
            Difference,
            {"point": "sign", "paper": "minus", "ours": 1},
            "ours of Difference(point='sign') is the number 1, expected text, such as '1'.",
        ),
        (
            Differences,
            {"rows": "sign"},
            "rows of Differences(rows='sign') is the text 'sign', expected a tuple, such as (one,).",
        ),
        (
            Together,
            {"method": "fedga", "source": None},
            "source of Together(method='fedga') is None, expected text.",
        ),
    ],
)
def test_a_record_within_a_methods_is_checked_field_by_field(
    type_: type[Any], fields: dict[str, Any], message: str
) -> None:
    with pytest.raises(SettingsError, match=rf"^{re.escape(message)}"):
        type_(**fields)


def test_a_methods_record_is_checked_field_by_field() -> None:
    cases: list[tuple[dict[str, Any], str]] = [
        ({"rank": "first"}, "rank of method 'mine' is the text 'first', expected a whole number."),
        ({"rank": True}, "rank of method 'mine' is True, expected a whole number."),
        ({"part": "Root"}, "part of method 'mine' is 'Root', expected lower-case letters, digits and '_'."),
        ({"part": "a+b"}, "part of method 'mine' is 'a+b', expected lower-case letters, digits and '_'."),
        ({"acts": ["objective"]}, "acts of method 'mine' is the list ['objective'], expected a tuple, such as (one,)."),
        ({"acts": ("objective", 3)}, "method 'mine' acts on 3, expected one of direction, weighting"),
        (
            {"protocol": "gap_split"},
            "protocol of method 'mine' is the text 'gap_split', expected a tuple, such as ('gap_split',).",
        ),
        ({"exact": ("one", 2)}, "exact of method 'mine' has the number 2, expected text, such as '2'."),
        (
            {"reference": "A, B (2026)"},
            "reference of method 'mine' is the text 'A, B (2026)', expected Reference(...).",
        ),
        (
            {"defaults": (Default(weighting={"power": 1}),)},
            "defaults of method 'mine' have the setting 'power' of its weighting, but it names no weighting, expected",
        ),
        (
            {"acts": ("direction",), "objective": None, "weighting": "my_package.module:Mine"},
            "method 'mine' acts on 'direction', but names no aggregator, expected one that does.",
        ),
        (
            {"acts": ("objective", "weighting")},
            "method 'mine' acts on 'weighting', but names no weighting and no aggregator, expected one that does.",
        ),
        (
            {
                "acts": ("weighting",),
                "objective": None,
                "weighting": "my_package.module:Mine",
                "defaults": (Default(objective={"strength": 1.0}),),
            },
            "defaults of method 'mine' have the setting 'strength' of its objective, but it names no objective, expect",
        ),
    ]
    for changes, message in cases:
        with pytest.raises(SettingsError, match=rf"^{re.escape(message)}"):
            made(**changes)


def test_a_method_without_an_aggregator_may_have_settings_of_the_plain_mean() -> None:
    assert made(defaults=(Default(server={"server_lr": 1.0}, source="ours"),), rank=3).rank == 3
