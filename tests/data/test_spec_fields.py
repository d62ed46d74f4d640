# SPDX-License-Identifier: Apache-2.0
"""The records of data sets and of tasks, field by field: what does not fit is refused in one sentence."""

import re
from dataclasses import replace
from typing import Any

import pytest

from fdg_plugins.data import DATASETS, ImageFolderSpec
from fdg_plugins.data.specs import FAMILY_NAMES, DatasetSpec, SegmentationSpec
from fdg_plugins.errors import SettingsError
from fdg_plugins.settings.families import FAMILIES
from fdg_plugins.tasks.classification import Classification
from fdg_plugins.tasks.score import ScoreKind

WHOLE: dict[str, Any] = {
    "name": "xd", "folder": "xd", "title": "XD", "reference": "us", "domains": ("a", "b"), "classes": ("k", "l"),
}  # fmt: skip


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"name": None}, "a data set's name is None, expected letters, digits, '_', '.' and '-'."),
        ({"name": "x/d"}, "a data set's name is 'x/d', expected letters, digits, '_', '.' and '-'."),
        (
            {"folder": "/data/xd"},
            "folder of data set 'xd' is '/data/xd', expected a plain folder name below the data root: letters, digits, "
            "'_', '.' and '-'.",
        ),
        ({"folder": None}, "folder of data set 'xd' is None, expected text."),
        ({"domains": "abc"}, "domains of data set 'xd' is the text 'abc', expected a tuple, such as ('abc',)."),
        ({"domains": None}, "domains of data set 'xd' is None, expected a tuple, such as (one,)."),
        ({"domains": (1, 2, 3)}, "domains of data set 'xd' has the number 1, expected text, such as '1'."),
        ({"domains": ("a", "b", "a")}, "data set 'xd' has the domain 'a' twice, expected different domains."),
        ({"domains": ("a",)}, "data set 'xd' has 1 domain, expected at least 2."),
        ({"domains": ("a", "b/c")}, "data set 'xd' has the domain 'b/c', expected a plain folder name."),
        ({"classes": (0, 1)}, "classes of data set 'xd' has the number 0, expected text, such as '0'."),
        (
            {"classes": (one for one in "ab")},
            "classes of data set 'xd' is the generator ",
        ),
        ({"classes": ("k", "l", "k")}, "data set 'xd' has the class 'k' twice, expected different classes."),
        ({"classes": ()}, "data set 'xd' has 0 classes, expected at least 2."),
        ({"classes": ("k", "l\n")}, "data set 'xd' has the class 'l\\n', expected a plain folder name."),
        ({"classes": ("k", " l")}, "data set 'xd' has the class ' l', expected a plain folder name."),
        ({"channels": "3"}, "channels of data set 'xd' is the text '3', expected a whole number."),
        ({"channels": 0}, "channels of data set 'xd' is 0, expected 1 or 3."),
        ({"channels": 4}, "channels of data set 'xd' is 4, expected 1 or 3."),
        ({"dims": "2"}, "dims of data set 'xd' is the text '2', expected a whole number."),
        ({"title": None}, "title of data set 'xd' is None, expected text."),
        ({"reference": 7}, "reference of data set 'xd' is the number 7, expected text, such as '7'."),
        (
            {"protocol": "image_size=32"},
            "protocol of data set 'xd' is the text 'image_size=32', expected a mapping with names as keys, such as {'",
        ),
        (
            {"family": "photos"},
            "family of data set 'xd' is 'photos', expected 'photographs', or for a family of its own a name that is "
            "less like it.",
        ),
        ({"known_bad": "a/k/1"}, "known_bad of data set 'xd' is the text 'a/k/1', expected a tuple, such as ('a/k/1"),
    ],
)
def test_a_data_sets_record_is_checked_field_by_field(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(SettingsError, match=rf"^{re.escape(message)}"):
        ImageFolderSpec(**{**WHOLE, **fields})


def test_images_with_masks_may_have_any_number_of_channels() -> None:
    assert SegmentationSpec(**WHOLE, channels=4).channels == 4
    with pytest.raises(SettingsError, match=r"^channels of data set 'xd' is 0, expected at least 1\.$"):
        SegmentationSpec(**WHOLE, channels=0)


@pytest.mark.parametrize("family", [None, "digits", "photographs", "medical"])
def test_a_family_may_be_one_with_a_protocol_or_ones_own(family: str | None) -> None:
    assert ImageFolderSpec(**WHOLE, family=family).family == family


def test_the_families_with_a_protocol_are_those_of_the_settings() -> None:
    assert set(FAMILY_NAMES) == set(FAMILIES)


@pytest.mark.parametrize("spec", DATASETS.own().values(), ids=lambda spec: str(spec.name))
def test_every_data_set_of_this_package_passes(spec: DatasetSpec) -> None:
    assert replace(spec) == spec


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"score": "top2"}, "score of task 'xt' is the text 'top2', expected ScoreKind(...)."),
        ({"name": None}, "a task's name is None, expected text."),
        ({"name": ""}, "a task's name is '', expected text."),
    ],
)
def test_a_tasks_record_is_checked_field_by_field(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(SettingsError, match=rf"^{re.escape(message)}$"):
        Classification(**{"name": "xt", **fields})


def test_a_task_may_have_another_score() -> None:
    assert Classification(name="xt", score=ScoreKind("top2", "Top 2")).score.name == "top2"
