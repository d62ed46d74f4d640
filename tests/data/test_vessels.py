# SPDX-License-Identifier: Apache-2.0
"""Preparing the retinal vessels: from the published archives to images and masks with equal stems."""

import gzip
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from PIL.TiffImagePlugin import TiffImageFile

from fdg_plugins.data.catalogue import VESSELS
from fdg_plugins.data.mask_facts import read_pair
from fdg_plugins.data.pairs import list_pairs
from fdg_plugins.data.specs import SegmentationSpec
from fdg_plugins.data.unfinished import MANIFEST
from fdg_plugins.errors import DataError
from fdg_plugins.lab.preparation import Prepared, find_changes, open_source, prepare, read_manifest
from fdg_plugins.lab.preparation.pictures import as_mask
from tests.data.published import content_below, write_files, write_zip
from tests.data.published_vessels import (
    NUMBERS,
    SIZE,
    annotation,
    changed,
    chase,
    drive,
    encoded,
    hrf,
    photograph,
    pixels_of,
    stare,
    write_archives,
)


def prepared(
    source: Path, root: Path, spec: SegmentationSpec = VESSELS, *, link: bool = False, any_counts: bool = False
) -> Prepared:
    return prepare(spec, open_source(source), root, link=link, any_counts=any_counts)


@pytest.fixture(scope="module")
def archives(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the archives of all four groups."""
    return write_archives(tmp_path_factory.mktemp("downloads") / "archives")


@pytest.fixture(scope="module")
def root(archives: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A data root that was prepared from the archives."""
    place = tmp_path_factory.mktemp("data") / "root"
    prepared(archives, place)
    return place


# --- from the published archives --------------------------------------------------------------------------


def test_one_folder_of_archives_becomes_four_domains_of_pairs(archives: Path, tmp_path: Path) -> None:
    done = prepared(archives, tmp_path)
    assert {domain: sum(numbers.values()) for domain, numbers in done.counts.items()} == NUMBERS
    assert done.verdict.differences == ()
    assert done.manifest is not None
    assert done.manifest.release == "with DRIVE's test labels"
    assert len(done.manifest.files) == 2 * sum(NUMBERS.values())
    assert read_manifest(tmp_path, VESSELS) == done.manifest
    assert not find_changes(tmp_path, VESSELS, done.manifest)
    remarks = [
        "chase_db1: masks of the first observer (1stHO)",
        "drive: masks of the first observer (1st_manual)",
        "hrf: masks of the group's only annotation (manual1)",
        "stare: images that are published without a mask, left out: 1",
        "stare: masks of the first observer (ah)",
    ]
    assert list(done.plan.remarks) == remarks
    assert {name.split("/")[-2] if "/" in name else name.split(".")[1] for name in done.plan.left_out} >= {
        "2nd_manual",
        "mask",
        "vk",
    }


@pytest.mark.parametrize(
    ("pair", "image", "mask"),
    [
        ("chase_db1/Image_02R", chase()["Image_02R.jpg"], chase()["Image_02R_1stHO.png"]),
        (
            "drive/21_training",
            drive("training")["training/images/21_training.tif"],
            drive("training")["training/1st_manual/21_manual1.gif"],
        ),
        (
            "drive/07_test",
            drive("test")["test/images/07_test.tif"],
            drive("test")["test/1st_manual/07_manual1.gif"],
        ),
        ("hrf/03_dr", hrf()["images/03_dr.JPG"], hrf()["manual1/03_dr.tif"]),
        (
            "stare/im0004",
            gzip.decompress(stare()[0]["im0004.ppm.gz"]),
            gzip.decompress(stare()[1]["im0004.ah.ppm.gz"]),
        ),
    ],
)
def test_the_pixels_are_those_of_the_published_files(pair: str, image: bytes, mask: bytes, root: Path) -> None:
    domain, stem = pair.split("/")
    (place,) = (root / "vessels" / domain / "images").glob(f"{stem}.*")
    np.testing.assert_array_equal(pixels_of(place), pixels_of(image))
    if place.suffix == ".jpg":
        assert place.read_bytes() == image
    else:
        assert place.suffix == ".png"
    with Image.open(root / "vessels" / domain / "masks" / f"{stem}.png") as made:
        assert (made.format, made.mode) == ("PNG", "L")
        assert set(np.unique(np.asarray(made))) == {0, 255}
        np.testing.assert_array_equal(np.asarray(made.convert("RGB")), pixels_of(mask))


@pytest.mark.parametrize("domain", NUMBERS)
def test_the_pairs_can_be_read_with_both_classes(domain: str, root: Path) -> None:
    pairs = list_pairs(root, VESSELS, domain)[0].all
    assert len(pairs) == NUMBERS[domain]
    for pair in pairs:
        image, labels = read_pair(root, VESSELS, pair)
        assert image.shape == (3, *SIZE[::-1])
        assert set(np.unique(labels)) == {0, 1}
        assert Path(pair.file).stem == Path(pair.mask).stem


def test_a_prepared_root_is_accepted_as_a_source_and_copied_bit_for_bit(root: Path, tmp_path: Path) -> None:
    done = prepared(root, tmp_path)
    assert done.manifest is not None
    assert dict(content_below(tmp_path)) == dict(content_below(root))
    again = prepared(tmp_path, tmp_path)
    assert (again.copied.written, again.copied.kept) == (0, 2 * sum(NUMBERS.values()))


def test_images_of_a_prepared_root_can_be_linked(root: Path, tmp_path: Path) -> None:
    prepared(root, tmp_path, link=True)
    image = "vessels/hrf/images/01_h.jpg"
    assert (tmp_path / image).samefile(root / image)


@pytest.mark.parametrize(
    "names", [("healthy", "glaucoma", "diabetic_retinopathy"), ("healthy_x",)], ids=["in six archives", "unpacked"]
)
def test_hrf_in_its_single_archives_is_recognised_by_the_names(names: tuple[str, ...], tmp_path: Path) -> None:
    flat = {path.split("/")[1]: content for path, content in hrf().items() if not path.startswith("mask")}
    (tmp_path / "source").mkdir()
    if len(names) > 1:
        for name, key in zip(names, ("h", "g", "dr"), strict=True):
            own = {path: content for path, content in flat.items() if f"_{key}." in path}
            images = {path: content for path, content in own.items() if path.lower().endswith("jpg")}
            write_zip(tmp_path / "source" / f"{name}.zip", images)
            write_zip(tmp_path / "source" / f"{name}_manualsegm.zip", {p: c for p, c in own.items() if p not in images})
    else:
        write_files(tmp_path / "source" / "hrf", hrf())
    done = prepared(tmp_path / "source", tmp_path / "root")
    assert done.counts == {"hrf": {"pairs": 45}}


def test_a_site_may_prepare_its_own_domain_and_is_told_what_is_not_there(tmp_path: Path) -> None:
    done = prepared(write_zip(tmp_path / "CHASEDB1.zip", chase()), tmp_path / "root")
    assert done.counts == {"chase_db1": {"pairs": 28}}
    assert done.manifest is not None
    assert done.plan.remarks[-1] == (
        "not in the source: drive (training.zip and test.zip, or DRIVE.zip), hrf (all.zip), "
        "stare (stare-images.tar and labels-ah.tar)"
    )


def test_drives_test_images_without_annotations_are_left_out(tmp_path: Path) -> None:
    files = {**drive("training"), **drive("test", is_marked=False)}
    done = prepared(write_zip(tmp_path / "DRIVE.zip", files), tmp_path / "root")
    assert done.counts == {"drive": {"pairs": 20}}
    assert done.manifest is not None
    assert done.manifest.release == "without them"
    assert "drive: images that are published without a mask, left out: 20" in done.plan.remarks


# --- refusals ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("files", "sentence"),
    [
        (
            changed(chase(), "Image_03L_1stHO.png", None),
            r"1 of 28 images of domain chase_db1 have no mask, Image_03L\.jpg among them; expected pairs such as",
        ),
        (
            changed(hrf(), "images/01_g.jpg", None),
            r"1 of 45 masks of domain hrf have no image, manual1/01_g\.tif among them",
        ),
        (
            stare()[0],
            r"21 of 21 images of domain stare have no mask, im0001\.ppm\.gz among them; .*im0001\.ah\.ppm\.gz",
        ),
        ({**stare()[0], **stare()[2]}, r"21 of 21 images of domain stare have no mask"),
        (
            {"a.jpg": b"", "b/c.txt": b""},
            r"holds nothing of Retinal vessels; expected CHASEDB1\.zip \(.*stare-images\.tar and labels-ah\.tar .*; or "
            r"<domain>/\{images,masks\}/ with the domains chase_db1, drive, hrf, stare",
        ),
        (
            changed(chase(), "Image_01L_1stHO.png", annotation(1, "PNG", size=(12, 20))),
            r"mask .*masks/Image_01L\.png has 20 x 12 pixels, expected those of its image, 20 x 24",
        ),
        (
            changed(chase(), "Image_01L.jpg", chase()["Image_01L.jpg"][:400]),
            r"image .*images/Image_01L\.jpg cannot be read",
        ),
        (
            changed(drive("training"), "training/images/22_training.tif", b"II*\0 no image"),
            r"image training/images/22_training\.tif in .*source cannot be read .*; expected an undamaged .*TIFF, PPM",
        ),
        (
            changed(hrf(), "manual1/01_g.tif", photograph(1, "TIFF")),
            r"mask manual1/01_g\.tif in .*source has a fraction of \d\.\d\d of its pixels between",
        ),
        (
            changed(hrf(), "manual1/01_g.tif", encoded(Image.new("L", SIZE), "TIFF")),
            r"mask manual1/01_g\.tif in .*source marks no pixel",
        ),
        (
            {**stare()[1], **changed(stare()[0], "im0001.ppm.gz", b"no gzip")},
            r"file im0001\.ppm\.gz in .*source is not an undamaged gzip file",
        ),
        (
            {**chase(), "copy/Image_01L.jpg": chase()["Image_01L.jpg"]},
            r"has two files for chase_db1/images/Image_01L\.jpg",
        ),
    ],
)
def test_what_makes_no_pairs_is_refused_by_name_and_leaves_no_manifest(
    files: Mapping[str, bytes], sentence: str, tmp_path: Path
) -> None:
    source = write_files(tmp_path / "source", files)
    with pytest.raises(DataError, match=sentence):
        prepared(source, tmp_path / "root")
    assert not (tmp_path / "root" / "vessels" / MANIFEST).exists()


def test_fewer_pairs_than_published_leave_no_manifest_unless_accepted(tmp_path: Path) -> None:
    files = {path: content for path, content in chase().items() if "_14R" not in path}
    archive = write_zip(tmp_path / "CHASEDB1.zip", files)
    done = prepared(archive, tmp_path / "root")
    assert done.verdict.differences == ("chase_db1 has 27 images, expected 28",)
    assert done.manifest is None
    assert prepared(archive, tmp_path / "root", any_counts=True).manifest is not None


def test_an_image_of_too_many_pixels_is_refused_before_it_is_decoded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    huge = encoded(Image.new("1", (10_000, 6_000)), "TIFF")
    source = write_files(tmp_path / "source", changed(drive("training"), "training/images/21_training.tif", huge))
    monkeypatch.setattr(TiffImageFile, "load", None)
    with pytest.raises(DataError, match=r"21_training\.tif in .* has 60,000,000 pixels; expected at most 50,000,000"):
        prepared(source, tmp_path / "root")


# --- masks ------------------------------------------------------------------------------------------------


def test_a_mask_of_0_and_255_in_grey_png_keeps_its_bytes() -> None:
    content = annotation(3, "PNG")
    assert as_mask(content, "a mask") == content


@pytest.mark.parametrize("largest", [1, 2, 200])
def test_the_largest_value_of_a_mask_stands_for_the_vessel(largest: int) -> None:
    pixels = np.zeros((40, 40), dtype=np.uint8)
    pixels[5] = largest
    made = pixels_of(as_mask(encoded(Image.fromarray(pixels), "PNG"), "a mask"))
    np.testing.assert_array_equal(made[..., 0], np.where(pixels > 0, 255, 0))


def test_a_few_grey_pixels_are_cut_at_half() -> None:
    pixels = np.zeros((40, 40), dtype=np.uint8)
    pixels[5] = 255
    pixels[6, :2] = (127, 128)
    made = pixels_of(as_mask(encoded(Image.fromarray(pixels), "TIFF"), "a mask"))
    np.testing.assert_array_equal(made[..., 0], np.where(pixels >= 128, 255, 0))


# --- another data set with masks --------------------------------------------------------------------------

CELLS = SegmentationSpec(
    name="cells", folder="cells", title="Cells", reference="none", domains=("a", "b"), classes=("none", "one", "two")
)


def test_a_data_set_of_a_plugin_is_copied_as_it_is_from_the_prepared_layout(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from fdg_plugins.data.catalogue import DATASETS

    monkeypatch.setattr(DATASETS, "_brought", {"cells": CELLS})
    labels = encoded(Image.fromarray(np.arange(6, dtype=np.uint8).reshape(2, 3) % 3), "PNG")
    files = {"a/images/1.tif": photograph(1, "TIFF", (3, 2)), "a/masks/1.png": labels}
    done = prepared(write_files(tmp_path / "source", files), tmp_path / "root", CELLS)
    assert done.counts == {"a": {"pairs": 1}}
    made = {path: content for path, content in content_below(tmp_path / "root" / "cells") if path != MANIFEST}
    assert made == files
    with pytest.raises(DataError, match=r"holds nothing of Cells; expected <domain>/\{images,masks\}/ with"):
        prepared(write_files(tmp_path / "other", {"c/images/1.png": b""}), tmp_path / "root", CELLS)
