# SPDX-License-Identifier: Apache-2.0
"""Images with masks are listed from folders or a data list, and what is wrong with them is one sentence."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from fdg_plugins.data import (
    DATASETS,
    PairSample,
    SegmentationSpec,
    check_images,
    find_damaged,
    open_domain,
    without_damaged,
)
from fdg_plugins.errors import DataError
from fdg_plugins.tasks import TASKS
from tests.data.pair_drawings import PairTask, draw_photo, eyes

COUNT = 20


@pytest.fixture(autouse=True)
def spec() -> Iterator[SegmentationSpec]:
    TASKS.add(PairTask())
    DATASETS.add(eyes())
    yield eyes()
    DATASETS.remove("eyes")
    TASKS.remove(PairTask().name)


@pytest.fixture
def domain(tmp_path: Path) -> Path:
    """The folder of the domain left, with twenty drawings."""
    folder = tmp_path / "eyes" / "left"
    for number in range(COUNT):
        draw_photo(folder, f"{number:02d}", number=number)
    return folder


def root_of(domain: Path) -> Path:
    return domain.parents[1]


def opened(domain: Path, **options: Any) -> Any:
    return open_domain(root_of(domain), "eyes", "left", **{"seed": 1, **options})


def refused(domain: Path, own: str) -> None:
    """Assert that the domain is refused with one sentence that matches ``own``; the public one names no file."""
    with pytest.raises(DataError, match=own) as caught:
        opened(domain)
    assert "\n" not in f"{caught.value}{caught.value.public}"
    assert ".png" not in caught.value.public.split("expected one of")[0]
    assert str(domain) not in caught.value.public


# --- folders ----------------------------------------------------------------------------------------


def test_images_and_masks_of_equal_stems_are_pairs_and_are_split(domain: Path) -> None:
    data = opened(domain)
    assert (len(data.train), len(data.validation), len(data.test)) == (18, 2, COUNT)
    assert data.test[3] == PairSample("left/images/03.png", 0, "left/masks/03.png")
    assert (data.split, data.classes, data.skipped, data.left_out) == ("eyes/90-10@1", eyes().classes, (), ())
    assert not set(data.train) & set(data.validation)
    assert opened(domain).split_hash == data.split_hash != opened(domain, seed=2).split_hash


def test_what_is_missing_is_named_here_and_counted_in_public(domain: Path) -> None:
    (domain / "masks" / "03.png").unlink()
    refused(domain, r"1 images? without .*, such as images/03\.png")
    (domain / "images" / "03.png").unlink()
    (domain / "images" / "05.png").unlink()
    refused(domain, r"1 masks? without .*, such as masks/05\.png")


@pytest.mark.parametrize("link", ["images", "images/03.png", "masks/03.png"])
def test_a_link_out_of_the_data_root_is_refused(
    domain: Path, tmp_path_factory: pytest.TempPathFactory, link: str
) -> None:
    outside = tmp_path_factory.mktemp("outside") / "moved"
    (domain / link).rename(outside)
    (domain / link).symlink_to(outside)
    refused(domain, "is a link out of the data root")


def test_nifti_goes_with_nifti_only(domain: Path) -> None:
    (domain / "masks" / "03.png").rename(domain / "masks" / "03.nii")
    refused(domain, "expected both or neither")


# --- data lists -------------------------------------------------------------------------------------


def entry(stem: str, base: str = "") -> dict[str, str]:
    return {"image": f"{base}images/{stem}.png", "label": f"{base}masks/{stem}.png"}


def write_list(domain: Path, content: Any, *, beside: bool = False) -> Path:
    path = domain.parent / "left.json" if beside else domain / "dataset.json"
    path.write_text(content if isinstance(content, str) else json.dumps(content), encoding="utf-8")
    return path


def stems(numbers: range, base: str = "") -> list[dict[str, str]]:
    return [entry(f"{number:02d}", base) for number in numbers]


@pytest.mark.parametrize(
    ("beside", "base"), [(False, ""), (False, "./"), (True, "left/"), (False, "left/"), (False, "eyes/left/")]
)
def test_a_list_gives_the_split_whatever_its_paths_are_relative_to(domain: Path, beside: bool, base: str) -> None:
    write_list(domain, {"training": stems(range(12), base), "validation": stems(range(12, 16), base)}, beside=beside)
    data = opened(domain)
    assert [sample.file for sample in data.train] == [f"left/images/{number:02d}.png" for number in range(12)]
    assert (len(data.validation), len(data.test), data.split) == (4, 16, "eyes/list")
    assert len(opened(domain, max_samples=14).test) == 14


def test_a_list_without_validation_is_split_by_the_seed(domain: Path) -> None:
    write_list(domain, {"name": "eyes", "numTraining": 20, "training": stems(range(20))})
    data = opened(domain)
    assert (len(data.train), len(data.validation), data.split) == (18, 2, "eyes/90-10@1")
    write_list(domain, {"training": stems(range(10)), "testing": stems(range(10, 15))})
    data = opened(domain)
    assert (len(data.train), len(data.validation), data.split) == (9, 1, "eyes/list+90-10@1")
    assert [sample.file[-6:-4] for sample in data.test] == ["10", "11", "12", "13", "14"]


@pytest.mark.parametrize(
    ("content", "own"),
    [
        ("{", "is not valid JSON"),
        ([], "no JSON object"),
        ({"training": {}}, "'training' is not a list"),
        ({}, "no training image"),
        ({"training": stems(range(2)), "test": stems(range(2, 3)), "testing": stems(range(2, 3))}, "both"),
        ({"training": ["images/00.png"]}, "training, entry 1"),
        ({"training": [{"image": ["images/00.png"], "label": "masks/00.png"}]}, "training, entry 1"),
        ({"training": stems(range(2)), "validation": stems(range(1, 3))}, "validation, entry 1"),
        ({"training": [entry("99")]}, r"does not exist \('images/99\.png'\)"),
        ({"training": [{"image": "images/00.png", "label": "masks/00.npy"}]}, "another suffix"),
    ],
)
def test_a_list_of_another_form_is_refused(domain: Path, content: Any, own: str) -> None:
    write_list(domain, content)
    refused(domain, own)


@pytest.mark.parametrize("path", ["/etc/a.png", "../../../a.png", "images/../00.png", "images/.a.png"])
def test_a_list_names_nothing_absolute_above_or_hidden(domain: Path, path: str) -> None:
    write_list(domain, {"training": [{"image": path, "label": "masks/00.png"}]})
    refused(domain, "absolute, hidden or above")


# --- soundness --------------------------------------------------------------------------------------


def damage(domain: Path, kind: str) -> None:
    mask = domain / "masks" / "03.png"
    if kind == "image":
        (domain / "images" / "03.png").write_bytes(b"not an image")
    elif kind == "mask":
        mask.write_bytes(mask.read_bytes()[:60])
    elif kind == "size":
        Image.new("L", (7, 5)).save(mask)
    elif kind == "value":
        Image.fromarray(np.full((24, 20), 7, dtype=np.uint8)).save(mask)
    elif kind == "colours":
        Image.new("RGB", (20, 24), (0, 100, 0)).save(mask)


@pytest.mark.parametrize(
    ("kind", "own", "public"),
    [
        ("image", r"1 cannot be read \(left/images/03\.png\)", "1 cannot be read"),
        ("mask", r"1 cannot be read \(left/images/03\.png\)", "1 cannot be read"),
        ("size", r"03\.png: 5 x 7 pixels, expected those of its image, 24 x 20", "1 with a mask that does not fit"),
        ("value", r"03\.png: the values 7, expected only 0, 100, 110, 200", "1 with a mask that does not fit"),
        ("colours", r"03\.png: colours, expected one value", "1 with a mask that does not fit"),
    ],
)
def test_a_damaged_image_or_mask_stops_the_site_or_leaves_the_pair_out(
    domain: Path, kind: str, own: str, public: str
) -> None:
    damage(domain, kind)
    data = opened(domain)
    with pytest.raises(DataError, match=own) as caught:
        check_images(data)
    assert caught.value.public == f"of the images of domain 'left', {public}."
    assert "expected undamaged JPEG, PNG, TIFF, NIfTI files, or damaged_images" in str(caught.value)
    assert find_damaged(data).files == {"left/images/03.png"}
    rest, damaged = without_damaged(data, lambda files: opened(domain, left_out=files))
    assert (len(rest.test), rest.left_out) == (COUNT - 1, ("left/images/03.png",))
    assert damaged.files == set(rest.left_out)
