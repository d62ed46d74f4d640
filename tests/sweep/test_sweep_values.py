# SPDX-License-Identifier: Apache-2.0
"""The text of ``--set``."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fdg_plugins.errors import SettingsError
from fdg_plugins.lab.sweep.values import as_json, read_settings, split_key, split_values


def test_a_value_is_read_as_what_it_looks_like() -> None:
    assert read_settings(["rounds=10", "kappa=0.1,0.5", "rescale=true", "model=convnet", "patience=null"]) == {
        "rounds": (10,),
        "kappa": (0.1, 0.5),
        "rescale": (True,),
        "model": ("convnet",),
        "patience": (None,),
    }


def test_commas_inside_an_object_part_no_values() -> None:
    text = 'objective={"name": "dim", "strength": 0.1}, {"name": "dim", "target": "a,b"}'
    assert read_settings([text])["objective"] == (
        {"name": "dim", "strength": 0.1},
        {"name": "dim", "target": "a,b"},
    )


def test_one_and_one_point_zero_are_one_value() -> None:
    (value,) = split_values("1.0", "kappa")
    assert (value, type(value)) == (1, int)
    with pytest.raises(SettingsError, match="kappa names the value 1 twice"):
        split_values("1,1.0", "kappa")


def test_a_key_may_name_a_method() -> None:
    assert list(read_settings(["fedomg+ga:kappa=0.1"])) == ["fedomg+ga:kappa"]
    assert split_key("fedomg+ga:kappa") == ("fedomg+ga", "kappa")
    assert split_key("kappa") == (None, "kappa")


json_values = st.one_of(
    st.integers(-(2**40), 2**40),
    st.booleans(),
    st.floats(allow_nan=False, allow_infinity=False).filter(lambda value: not value.is_integer()),
    st.dictionaries(st.text(max_size=3), st.integers(0, 9), max_size=3),
    st.text(max_size=5).filter(bool),
)


@given(st.lists(json_values, min_size=1, max_size=4, unique_by=as_json))
def test_what_is_written_as_json_is_read_as_it_was(values: list[Any]) -> None:
    assert list(split_values(" , ".join(map(json.dumps, values)), "name")) == values


@pytest.mark.parametrize(
    ("texts", "sentence"),
    [
        (["kappa"], "expected name=value"),
        (["=1"], "expected name=value"),
        (["Kappa=1"], "expected name=value"),
        (["../kappa=1"], "expected name=value"),
        (["kappa="], "does not begin with a value"),
        (["kappa=0.1,,0.3"], "does not begin with a value"),
        (["kappa=0.1,"], "does not begin with a value"),
        (['objective={"name"'], "is not valid JSON"),
        (['objective={"strength": NaN}'], "NaN is no JSON value"),
        (['objective={"name": "dim"} x'], "a comma or the end after it"),
        (["kappa=0.1,0.1"], "names the value 0.1 twice"),
        (["kappa=0.1", "kappa=0.3"], "names 'kappa' twice"),
    ],
)
def test_anything_else_is_refused_in_one_sentence(texts: list[str], sentence: str) -> None:
    with pytest.raises(SettingsError, match=sentence):
        read_settings(texts)


@pytest.mark.parametrize("levels", [10, 100_000])
def test_a_value_that_nests_too_deep_is_refused(levels: int) -> None:
    with pytest.raises(SettingsError, match="--set objective is nested in more than 8 levels"):
        split_values("[" * levels + "]" * levels, "objective")
