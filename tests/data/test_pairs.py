# SPDX-License-Identifier: Apache-2.0
"""Images with masks are listed from folders or a data list, and what is wrong with them is one sentence."""

import json
from collections.abc import Iterator
from dataclasses import replace
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
    find_data_root,
    open_domain,
    without_damaged,
)
from fdg_plugins.data.data_lists import find_data_list, read_data_list
from fdg_plugins.data.own_files import FileRules
from fdg_plugins.data.pairs import list_pairs
from fdg_plugins.errors import DataError, SettingsError
from fdg_plugins.tasks import TASKS
from tests.data.pair_drawings import PairTask, draw_photo, draw_volume, eyes

COUNT = 20
SUFFIXES = ".png, .jpg, .jpeg, .tif, .tiff, .nii, .nii.gz"


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


def refused(domain: Path, own: str, public: str) -> None:
    """Assert that the domain is refused with one sentence that matches ``own``; the public one names no file."""
    with pytest.raises(DataError, match=own) as caught:
        opened(domain)
    for text in (str(caught.value), caught.value.public):
        assert "\n" not in text
        assert text.endswith(".")
    assert caught.value.public == public


# --- folders ----------------------------------------------------------------------------------------


def test_images_and_masks_of_equal_stems_are_pairs_and_are_split(domain: Path) -> None:
    data = opened(domain)
    assert (len(data.train), len(data.validation), len(data.test)) == (18, 2, COUNT)
    assert data.test[3] == PairSample("left/images/03.png", 0, "left/masks/03.png")
    assert (data.split, data.classes, data.skipped, data.left_out) == ("eyes/90-10@1", eyes().classes, (), ())
    assert not set(data.train) & set(data.validation)
    assert opened(domain).split_hash == data.split_hash != opened(domain, seed=2).split_hash


@pytest.mark.parametrize(("name", "stem"), [("a.nii.gz", "a"), ("a.b.TIFF", "a.b"), ("c.d.nii", "c.d"), ("e", "e")])
def test_the_stem_leaves_out_the_whole_suffix(name: str, stem: str) -> None:
    from fdg_plugins.data.pair_names import stem_of

    assert stem_of(name) == stem


def test_suffixes_of_image_and_mask_may_differ_and_hidden_and_other_files_are_ignored(domain: Path) -> None:
    draw_photo(domain, "tall", suffix=".JPG")
    for part in ("images", "masks"):
        (domain / part / ".hidden.png").write_bytes(b"")
        (domain / part / "notes.npy").write_bytes(b"")
    assert {(pair.file, pair.mask) for pair in opened(domain).test} >= {("left/images/tall.JPG", "left/masks/tall.png")}
    assert len(opened(domain).test) == COUNT + 1


def test_subsamples_and_parts_are_those_of_other_data_sets(domain: Path) -> None:
    few = opened(domain, max_samples=14)
    assert (len(few.test), few.split) == (14, "eyes/90-10@1/max14")
    parts = [opened(domain, part=(number, 2)) for number in (1, 2)]
    assert sorted(s.file for data in parts for s in data.train) == sorted(s.file for s in opened(domain).train)
    assert [len(data.validation) for data in parts] == [1, 1]


def test_a_data_set_for_segmentation_needs_a_data_root(domain: Path) -> None:
    assert find_data_root("eyes", root_of(domain), None).path == root_of(domain)
    with pytest.raises(DataError, match="data set eyes has no data root and no stand-in"):
        find_data_root("eyes", None, None)
    with pytest.raises(DataError, match="data set eyes has no data root"):
        open_domain(None, "eyes", "left", seed=0)


def test_what_is_missing_is_named_here_and_counted_in_public(domain: Path) -> None:
    (domain / "masks" / "03.png").unlink()
    refused(domain, r"has 1 images without mask, such as images/03\.png", "domain 'left' has 1 images without mask.")
    (domain / "images" / "03.png").unlink()
    (domain / "images" / "05.png").unlink()
    refused(domain, r"has 1 masks without image, such as masks/05\.png", "domain 'left' has 1 masks without image.")


@pytest.mark.parametrize(
    ("pattern", "gone"),
    [
        ("left/images/03.*", ()),
        ("left/masks/03.*", ()),
        ("left/images/03.*", ("masks/03.png",)),
        ("left/masks/03.*", ("images/03.png",)),
    ],
)
def test_what_is_excluded_needs_no_partner(domain: Path, pattern: str, gone: tuple[str, ...]) -> None:
    for path in gone:
        (domain / path).unlink()
    pairs, skipped = list_pairs(root_of(domain), eyes(), "left", FileRules((pattern,)))
    assert len(pairs.all) == COUNT - 1
    assert "left/images/03.png" not in {pair.file for pair in pairs.all}
    assert skipped == (() if gone == ("images/03.png",) else ("left/images/03.png",))


def test_an_excluded_file_of_the_same_stem_is_no_second_one(domain: Path) -> None:
    (domain / "images" / "03.tif").write_bytes(b"")
    pairs, skipped = list_pairs(root_of(domain), eyes(), "left", FileRules(("*.tif",)))
    assert (len(pairs.all), skipped) == (COUNT, ("left/images/03.tif",))


def test_pairs_of_a_data_list_can_be_excluded(domain: Path) -> None:
    write_list(domain, {"training": stems(range(10)), "validation": stems(range(10, 20))})
    pairs, skipped = list_pairs(root_of(domain), eyes(), "left", FileRules(("left/masks/1?.png",)))
    assert (len(pairs.train), len(pairs.validation), len(skipped)) == (10, 0, 10)


@pytest.mark.parametrize("part", ["images", "masks"])
def test_two_files_of_one_stem_are_refused(domain: Path, part: str) -> None:
    (domain / part / "03.tif").write_bytes(b"")
    public = f"folder '{part}' of domain 'left' has two files whose names differ in their suffixes only."
    refused(domain, r"has 03\.png and 03\.tif; expected one file of each name", public)


@pytest.mark.parametrize("part", ["images", "masks"])
def test_a_missing_or_empty_folder_is_refused(domain: Path, part: str) -> None:
    for file in (domain / part).iterdir():
        file.unlink()
    refused(
        domain, "holds no image", f"folder '{part}' of domain 'left' has no image; expected files ending in {SUFFIXES}."
    )
    (domain / part).rmdir()
    refused(domain, "is missing; expected left/images/", f"domain 'left' has no folder '{part}' and no data list.")


def test_a_missing_domain_is_refused(domain: Path) -> None:
    with pytest.raises(DataError, match=r"domain right .* is not a folder; expected .*/eyes/right/images/\* and masks"):
        open_domain(root_of(domain), "eyes", "right", seed=0)


@pytest.mark.parametrize("link", ["images", "images/03.png", "masks/03.png"])
def test_a_link_out_of_the_data_root_is_refused(
    domain: Path, tmp_path_factory: pytest.TempPathFactory, link: str
) -> None:
    outside = tmp_path_factory.mktemp("outside") / "moved"
    (domain / link).rename(outside)
    (domain / link).symlink_to(outside)
    refused(domain, "is a link out of the data root", "a link leads out of its data root.")


def test_a_name_with_control_characters_is_refused(domain: Path) -> None:
    for part in ("images", "masks"):
        (domain / part / "a\nb.png").write_bytes(b"")
    where = "folder 'images' of domain 'left'"
    refused(
        domain, r"such as a\\nb\.png", f"{where} has 1 image files whose names are no UTF-8 or hold control characters."
    )


def test_nifti_goes_with_nifti_only(domain: Path) -> None:
    (domain / "masks" / "03.png").rename(domain / "masks" / "03.nii")
    refused(domain, "expected both or neither", "domain 'left' has an image and a mask of which only one is NIfTI.")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"mask_values": ((0,), (1,))}, "mask_values for 2 classes, expected at least one value for each of its 3"),
        ({"mask_values": ((0,), (1,), ())}, "expected at least one value for each"),
        ({"mask_values": ((0,), (1,), (1,))}, "expected each once"),
        ({"mask_values": ((0,), (1,), (70_000,))}, "from 0 to 65535"),
        ({"dims": 4}, "dims 4, expected 2 or 3"),
    ],
)
def test_an_impossible_record_is_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(SettingsError, match=message):
        eyes(**changes)


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


@pytest.mark.parametrize("folder", ["dataset_2D", "prostate"])
def test_lists_are_read_where_flares_prostate_example_writes_them(domain: Path, folder: str) -> None:
    root, spec = root_of(domain), eyes(folder=folder)
    domain.parent.rename(root / folder)
    lists = root / ("datalist_2D" if folder == "dataset_2D" else folder)
    lists.mkdir(exist_ok=True)
    content = {"training": stems(range(12), "left/"), "testing": stems(range(12, 20), "left/")}
    (lists / "client_left.json").write_text(json.dumps(content), encoding="utf-8")
    found = find_data_list(root, spec, "left")
    assert found == lists / "client_left.json"
    training, validation, test = read_data_list(root, found, spec, "left")
    assert [pair.file for pair in training] == [f"left/images/{number:02d}.png" for number in range(12)]
    assert (validation, len(test)) == ((), 8)


def test_a_list_without_validation_is_split_by_the_seed(domain: Path) -> None:
    write_list(domain, {"name": "eyes", "numTraining": 20, "training": stems(range(20))})
    data = opened(domain)
    assert (len(data.train), len(data.validation), data.split) == (18, 2, "eyes/90-10@1")
    write_list(domain, {"training": stems(range(10)), "testing": stems(range(10, 15))})
    data = opened(domain)
    assert (len(data.train), len(data.validation), data.split) == (9, 1, "eyes/list+90-10@1")
    assert [sample.file[-6:-4] for sample in data.test] == ["10", "11", "12", "13", "14"]


@pytest.mark.parametrize("tests", [["images/15.png"], [{"image": "images/15.png"}]])
def test_images_for_testing_without_labels_are_ignored(domain: Path, tests: list[Any]) -> None:
    write_list(domain, {"training": stems(range(10)), "validation": stems(range(10, 12)), "test": tests})
    assert len(opened(domain).test) == 12


def test_files_of_a_list_may_lie_anywhere_below_the_data_root(domain: Path) -> None:
    draw_volume(root_of(domain) / "scans" / "a.nii.gz", root_of(domain) / "labels" / "b.nii.gz", (4, 4))
    write_list(domain, {"training": [*stems(range(4)), {"image": "scans/a.nii.gz", "label": "labels/b.nii.gz"}]})
    assert PairSample("../scans/a.nii.gz", 0, "../labels/b.nii.gz") in opened(domain).test


@pytest.mark.parametrize(
    ("content", "own", "public"),
    [
        ("{", "is not valid JSON", " cannot be read as JSON."),
        ([], "it is no JSON object", ": it is no JSON object, expected one with a list 'training'."),
        (
            {"training": {}},
            "'training' is not a list",
            ": 'training' is not a list, expected one of images with labels.",
        ),
        ({}, "no training image", ": it names no training image, expected a list 'training' of images with labels."),
        (
            {"training": stems(range(2)), "test": stems(range(2, 3)), "testing": stems(range(2, 3))},
            "both 'test' and 'testing'",
            ": it has both 'test' and 'testing', expected one.",
        ),
        (
            {"training": ["images/00.png"]},
            "training, entry 1: it has another form",
            ': training, entry 1: it has another form, expected {"image": "<path>", "label": "<path>"}.',
        ),
        (
            {"training": [{"image": ["images/00.png"], "label": "masks/00.png"}]},
            "another form",
            ': training, entry 1: it has another form, expected {"image": "<path>", "label": "<path>"}.',
        ),
        (
            {"training": stems(range(2)), "validation": stems(range(1, 3))},
            r"validation, entry 1: its image is named before.*left/images/01\.png, training, entry 2",
            ": validation, entry 1: its image is named before, expected each once.",
        ),
        (
            {"training": [entry("99")]},
            r"does not exist \('images/99\.png'\)",
            ": training, entry 1: its image does not exist.",
        ),
        (
            {"training": [{"image": "images/00.png", "label": "masks/00.npy"}]},
            "another suffix",
            f": training, entry 1: its label has another suffix, expected one of {SUFFIXES}.",
        ),
    ],
)
def test_a_list_of_another_form_is_refused(domain: Path, content: Any, own: str, public: str) -> None:
    write_list(domain, content)
    refused(domain, own, f"its data list of domain 'left'{public}")


@pytest.mark.parametrize("path", ["/etc/a.png", "../../../a.png", "images/../00.png", "images/.a.png"])
def test_a_list_names_nothing_absolute_above_or_hidden(domain: Path, path: str) -> None:
    write_list(domain, {"training": [{"image": path, "label": "masks/00.png"}]})
    public = "its data list of domain 'left': training, entry 1: its image is absolute, hidden or above the list, "
    refused(domain, "absolute, hidden or above", f"{public}expected a relative path.")


def test_a_linked_file_of_a_list_stays_below_the_data_root(
    domain: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    outside = tmp_path_factory.mktemp("outside") / "a.png"
    outside.write_bytes((domain / "images" / "00.png").read_bytes())
    (domain / "images" / "99.png").symlink_to(outside)
    write_list(domain, {"training": [{"image": "images/99.png", "label": "masks/00.png"}]})
    refused(domain, "is a link out of the data root", "a link leads out of its data root.")


def test_names_in_a_list_have_no_control_characters(domain: Path) -> None:
    write_list(domain, {"training": [{"image": "images/0\x00.png", "label": "masks/00.png"}]})
    with pytest.raises(DataError, match="hold control characters"):
        opened(domain)


def test_two_lists_are_refused(domain: Path) -> None:
    for beside in (False, True):
        write_list(domain, {"training": stems(range(2))}, beside=beside)
    refused(domain, "has the data lists", "domain 'left' has two data lists; expected one.")


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


def test_sound_pairs_pass(domain: Path) -> None:
    check_images(opened(domain))


def test_the_limit_of_pixels_is_checked_by_the_header(domain: Path) -> None:
    with pytest.raises(DataError, match="20 with too many pixels") as caught:
        check_images(opened(domain, max_pixels=24 * 20 - 1))
    assert "images/" not in caught.value.public
    check_images(opened(domain, max_pixels=24 * 20))


def test_a_part_of_a_list_that_is_emptied_is_refused(domain: Path) -> None:
    write_list(domain, {"training": stems(range(3)), "validation": stems(range(3, 4))})
    opened(domain)
    message = "of the 1 validation images of domain 'left', 0 can be used; expected at least 1"
    with pytest.raises(DataError, match=message) as caught:
        opened(domain, left_out={"left/images/03.png"})
    assert caught.value.public == str(caught.value)
    (domain / "dataset.json").unlink()
    message = "of the 20 training images of domain 'left', 1 can be used; expected at least 2"
    with pytest.raises(DataError, match=message):
        opened(domain, left_out={f"left/images/{number:02d}.png" for number in range(19)})


def test_without_values_of_its_own_a_mask_holds_class_numbers(domain: Path) -> None:
    DATASETS.remove("eyes")
    DATASETS.add(replace(eyes(), mask_values=()))
    with pytest.raises(DataError, match=r"the values 100, 200, expected only 0, 1, 2"):
        check_images(opened(domain))
