# SPDX-License-Identifier: Apache-2.0
"""The records of data sets and of tasks, field by field: what does not fit is refused in one sentence."""

from typing import Any

import pytest

from fdg_plugins.data import ImageFolderSpec
from fdg_plugins.data.specs import SegmentationSpec
from fdg_plugins.errors import SettingsError

WHOLE: dict[str, Any] = {
    "name": "xd", "folder": "xd", "title": "XD", "reference": "us", "domains": ("a", "b"), "classes": ("k", "l"),
}  # fmt: skip


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("name", None),
        ("name", "x/d"),
        ("folder", "/data/xd"),
        ("folder", None),
        ("domains", "abc"),
        ("domains", (1, 2, 3)),
        ("domains", ("a", "b", "a")),
        ("domains", ("a",)),
        ("domains", ("a", "b/c")),
        ("classes", (0, 1)),
        ("classes", ("k", "l", "k")),
        ("classes", ()),
        ("classes", ("k", "l\n")),
        ("channels", "3"),
        ("channels", 4),
        ("dims", "2"),
        ("title", None),
        ("protocol", "image_size=32"),
        ("family", "photos"),
        ("known_bad", "a/k/1"),
    ],
)
def test_a_data_sets_record_is_checked_field_by_field(field: str, value: Any) -> None:
    with pytest.raises(SettingsError, match=field):
        ImageFolderSpec(**{**WHOLE, field: value})


def test_images_with_masks_may_have_any_number_of_channels() -> None:
    assert SegmentationSpec(**WHOLE, channels=4).channels == 4
    with pytest.raises(SettingsError, match="channels"):
        SegmentationSpec(**WHOLE, channels=0)
