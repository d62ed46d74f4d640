# SPDX-License-Identifier: Apache-2.0
"""Errors, and values in them: whose value it is, what came and what would be right, in one short sentence."""

import math
from typing import Any

import pytest

from fdg_plugins.aggregators import AGGREGATORS, make_aggregator, make_weighting
from fdg_plugins.errors import (
    LARGEST,
    SettingsError,
    is_number,
    one_line,
    read_like,
    shorten,
)
from fdg_plugins.objectives import OBJECTIVES, make_objective

LONG = "x" * 3_000_000


def test_the_fields_of_an_error_make_its_sentence() -> None:
    error = SettingsError(site="site-1", field="kappa", value=1.5, expected="a number from 0 to 1")
    assert str(error) == "site-1: kappa is 1.5, expected a number from 0 to 1."
    assert (error.site, error.field, error.value, error.expected) == ("site-1", "kappa", 1.5, "a number from 0 to 1")


def test_no_value_makes_a_sentence_long_and_no_text_of_another_participant_forges_lines() -> None:
    for value in (LONG, LONG.encode(), [[[[[[1]]]]]], [LONG] * 9, {LONG: LONG}, "\n" * 99, 10**400):
        assert len(shorten(value)) <= 80
        assert "\n" not in shorten(value)
    assert one_line("a\nb\x1b[2K\u202e") == "a\\nb\\x1b[2K\\u202e"
    assert len(one_line(LONG)) < 500


def test_what_is_a_number() -> None:
    assert [one for one in (0, LARGEST, 2 * LARGEST, 10**400, math.nan, True, "1") if is_number(one)] == [0, LARGEST]


def test_text_is_read_as_a_value_of_the_same_kind() -> None:
    texts: list[Any] = [
        *((" 1e-3 ", 1.0, 1e-3), ("True", False, True), ("0", False, False), (" a ", "b", "a")),
        *(("a", {}, "a"), ([1], 1.0, [1]), ("3.0", 1, 3), ("2.5", 1, 2.5)),
    ]
    for text, like, value in texts:
        read = read_like(text, like)
        assert (read, type(read)) == (value, type(value))


@pytest.mark.parametrize(
    ("make", "name"),
    [
        *((make_objective, name) for name in OBJECTIVES),
        *((make_aggregator, name) for name in AGGREGATORS),
        *((make_weighting, name) for name in ("ga", "arfl")),
    ],
)
def test_no_number_of_a_method_may_be_absurd(make: Any, name: str) -> None:
    made = make(name)
    settings = made.settings() if hasattr(made, "settings") else vars(made)
    for setting, default in settings.items():
        absurd = [2, "yes", None] if isinstance(default, bool) else [10**400, -1, math.nan, "many", None, [1], LONG]
        for value in absurd if isinstance(default, int | float) else ():
            with pytest.raises(SettingsError) as caught:
                make({"name": name, setting: value})
            assert str(caught.value).startswith(f"{setting} is ")
            assert len(str(caught.value)) < 1_000
