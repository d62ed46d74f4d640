# SPDX-License-Identifier: Apache-2.0
"""TerraIncognita from the camera traps' annotations: DomainBed's choice, and broken annotations."""

import json
from pathlib import Path
from typing import Any

import pytest

from fdg_plugins.data import TERRA_INCOGNITA
from fdg_plugins.errors import DataError
from fdg_plugins.lab.preparation.layouts import make_plan
from fdg_plugins.lab.preparation.sources import open_source
from tests.data.published import write_files

CATEGORIES = [{"id": 1, "name": "opossum"}, {"id": 3, "name": "raccoon"}, {"id": 33, "name": "car"}]
IMAGES = [
    {"id": "a", "file_name": "a.jpg", "location": "38"},
    {"id": "b", "file_name": "folder/b.jpg", "location": 100},
    {"id": "c", "file_name": "c.jpg", "location": "33"},
    {"id": "d", "file_name": "d.jpg", "location": "43"},
]
ANNOTATIONS = [
    {"image_id": "a", "category_id": 1},
    {"image_id": "a", "category_id": 1},
    {"image_id": "a", "category_id": 3},
    {"image_id": "b", "category_id": 3},
    {"image_id": "c", "category_id": 1},
    {"image_id": "d", "category_id": 33},
    {"image_id": "none", "category_id": 1},
]
CONTENT = {"images": IMAGES, "annotations": ANNOTATIONS, "categories": CATEGORIES}
FILES = {f"eccv_18_all_images_sm/{name}.jpg": name.encode() for name in "abcd"}


def planned(folder: Path, files: dict[str, bytes], **annotations: Any) -> tuple[dict[str, str], tuple[str, ...]]:
    written = {f"{name}.json": json.dumps(content).encode() for name, content in annotations.items()}
    made = make_plan(TERRA_INCOGNITA, open_source(write_files(folder / "source", files | written)), folder / "target")
    return {item.target: item.source for item in made.items}, made.remarks


def test_an_image_goes_to_its_place_and_to_each_of_its_chosen_species(tmp_path: Path) -> None:
    assert planned(tmp_path, FILES, cct=CONTENT) == (
        {
            "location_38/opossum/a.jpg": "eccv_18_all_images_sm/a.jpg",
            "location_38/raccoon/a.jpg": "eccv_18_all_images_sm/a.jpg",
            "location_100/raccoon/b.jpg": "eccv_18_all_images_sm/b.jpg",
        },
        (),
    )


@pytest.mark.parametrize(
    "change",
    [
        {"images": [{"id": "a", "file_name": "a.jpg"}]},
        {"images": [{"id": "a", "file_name": 5, "location": "38"}]},
        {"images": ["a"]},
        {"annotations": [{"image_id": "a", "category_id": 99}]},
        {"annotations": [{"image_id": [], "category_id": 1}]},
        {"categories": [{"id": 1}]},
    ],
)
def test_annotations_of_another_form_are_refused(change: Any, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"annotations cct\.json"):
        planned(tmp_path, FILES, cct=CONTENT | change)
