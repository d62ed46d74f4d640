# SPDX-License-Identifier: Apache-2.0
"""TerraIncognita from the camera traps' annotations: DomainBed's choice, and broken annotations."""

import json
from pathlib import Path
from typing import Any

import pytest

from fdg_plugins.data import TERRA_INCOGNITA
from fdg_plugins.errors import DataError
from fdg_plugins.lab.preparation import make_plan, open_source
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


def test_several_annotation_files_are_one_and_other_json_is_passed_over(tmp_path: Path) -> None:
    first = CONTENT | {"annotations": ANNOTATIONS[:1]}
    second = CONTENT | {"annotations": ANNOTATIONS[3:4]}
    found, _ = planned(tmp_path, FILES, train=first, test=second, other=[1, 2], more={"images": []})
    assert set(found) == {"location_38/opossum/a.jpg", "location_100/raccoon/b.jpg"}


def test_annotated_images_that_are_not_there_are_counted(tmp_path: Path) -> None:
    files = {path: content for path, content in FILES.items() if not path.endswith("a.jpg")}
    found, remarks = planned(tmp_path, files, cct=CONTENT)
    assert set(found) == {"location_100/raccoon/b.jpg"}
    assert remarks == ("1 annotated images are not in the source",)


def test_images_that_are_sorted_already_need_no_annotations(tmp_path: Path) -> None:
    found, _ = planned(tmp_path, {"terra_incognita/location_38/empty/1.jpg": b"", **FILES}, cct=CONTENT)
    assert set(found) == {"location_38/empty/1.jpg"}


def test_two_images_of_the_same_name_are_refused_if_it_matters(tmp_path: Path) -> None:
    assert planned(tmp_path / "one", FILES | {"more/c.jpg": b""}, cct=CONTENT)[0]
    with pytest.raises(DataError, match=r"has 2 images named a\.jpg, eccv_18_all_images_sm/a\.jpg and more/a\.jpg"):
        planned(tmp_path / "two", FILES | {"more/a.jpg": b""}, cct=CONTENT)


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"images": [{"id": "a", "file_name": "a.jpg"}]}, "'location'"),
        ({"images": [{"id": "a", "file_name": 5, "location": "38"}]}, "int"),
        ({"images": ["a"]}, "indices"),
        ({"annotations": [{"image_id": "a"}]}, "'category_id'"),
        ({"annotations": [{"image_id": "a", "category_id": 99}]}, "99"),
        ({"annotations": [{"image_id": [], "category_id": 1}]}, "list"),
        ({"categories": [{"id": 1}]}, "'name'"),
    ],
)
def test_annotations_that_lack_something_are_refused_by_name(change: Any, named: str, tmp_path: Path) -> None:
    with pytest.raises(
        DataError, match=rf"annotations cct\.json in .*source lack or misplace .*{named}.*expected imag"
    ):
        planned(tmp_path, FILES, cct=CONTENT | change)


def test_annotations_that_are_no_json_are_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"annotations cct\.json in .* is not valid JSON"):
        planned(tmp_path, FILES | {"cct.json": b'{"images": ['})
