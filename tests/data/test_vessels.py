# SPDX-License-Identifier: Apache-2.0
"""Preparing the retinal vessels: from the published archives to images and masks with equal stems."""

from collections.abc import Mapping
from gzip import decompress as gunzip
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from PIL.TiffImagePlugin import TiffImageFile

from fdg_plugins.data.catalogue import VESSELS
from fdg_plugins.data.folders import MANIFEST
from fdg_plugins.data.specs import SegmentationSpec
from fdg_plugins.errors import DataError
from fdg_plugins.lab.preparation import Prepared, find_changes, open_source, prepare, read_manifest
from tests.data.published import write_files
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
    assert list(done.plan.remarks) == ["stare: images that are published without a mask, left out: 1"]
    assert {name.split("/")[-2] if "/" in name else name.split(".")[1] for name in done.plan.left_out} >= {
        "2nd_manual",
        "mask",
        "vk",
    }


@pytest.mark.parametrize(
    ("pair", "image", "mask"),
    [
        ("chase_db1/Image_02R", chase()["Image_02R.jpg"], chase()["Image_02R_1stHO.png"]),
        ("hrf/03_dr", hrf()["images/03_dr.JPG"], hrf()["manual1/03_dr.tif"]),
        ("stare/im0004", gunzip(stare()[0]["im0004.ppm.gz"]), gunzip(stare()[1]["im0004.ah.ppm.gz"])),
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


# --- refusals ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("files", "named"),
    [
        (changed(chase(), "Image_03L_1stHO.png", None), "Image_03L"),
        (changed(hrf(), "images/01_g.jpg", None), "01_g"),
        (stare()[0], "im0001"),
        ({"a.jpg": b"", "b/c.txt": b""}, "holds nothing of Retinal vessels"),
        (changed(chase(), "Image_01L_1stHO.png", annotation(1, "PNG", size=(12, 20))), "Image_01L"),
        (changed(chase(), "Image_01L.jpg", chase()["Image_01L.jpg"][:400]), "Image_01L"),
        (changed(hrf(), "manual1/01_g.tif", photograph(1, "TIFF")), "01_g"),
        (changed(hrf(), "manual1/01_g.tif", encoded(Image.new("L", SIZE), "TIFF")), "01_g"),
        ({**stare()[1], **changed(stare()[0], "im0001.ppm.gz", b"no gzip")}, "im0001"),
        ({**chase(), "copy/Image_01L.jpg": chase()["Image_01L.jpg"]}, "has two files"),
    ],
)
def test_what_makes_no_pairs_is_refused_by_name_and_leaves_no_manifest(
    files: Mapping[str, bytes], named: str, tmp_path: Path
) -> None:
    source = write_files(tmp_path / "source", files)
    with pytest.raises(DataError, match=named):
        prepared(source, tmp_path / "root")
    assert not (tmp_path / "root" / "vessels" / MANIFEST).exists()


def test_an_image_of_too_many_pixels_is_refused_before_it_is_decoded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    huge = encoded(Image.new("1", (10_000, 6_000)), "TIFF")
    source = write_files(tmp_path / "source", changed(drive("training"), "training/images/21_training.tif", huge))
    monkeypatch.setattr(TiffImageFile, "load", None)
    with pytest.raises(DataError, match=r"21_training\.tif in .* has 60,000,000 pixels; expected at most 50,000,000"):
        prepared(source, tmp_path / "root")


# --- masks ------------------------------------------------------------------------------------------------


# --- another data set with masks --------------------------------------------------------------------------
