# SPDX-License-Identifier: Apache-2.0
"""Preparing the retinal vessels: small drawings under the published names become images and masks with equal stems."""

import gzip
import io
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from PIL.TiffImagePlugin import TiffImageFile

from fdg_plugins.data import open_domain
from fdg_plugins.data.catalogue import VESSELS
from fdg_plugins.data.folders import MANIFEST
from fdg_plugins.lab.preparation.checks import find_changes
from fdg_plugins.lab.preparation.prepare import Prepared, prepare
from tests.data.conftest import refused
from tests.data.published import write_files, write_tar, write_zip

SIZE = (24, 20)
Files = dict[str, bytes]


def photo(number: int, form: str) -> bytes:
    """Return noise in the given format of Pillow, other noise for each number."""
    return encoded(np.random.default_rng(number).integers(0, 256, size=(*SIZE[::-1], 3), dtype=np.uint8), form)


def mask(number: int, form: str, mode: str = "L", size: tuple[int, int] = SIZE) -> bytes:
    """Return a mask with a line of 255 on 0, its row given by the number."""
    pixels = np.zeros(size[::-1], dtype=np.uint8)
    pixels[number] = 255
    return encoded(pixels, form, mode)


def encoded(pixels: np.ndarray, form: str, mode: str = "") -> bytes:
    stream = io.BytesIO()
    image = Image.fromarray(pixels)
    image.convert(mode or image.mode).save(stream, form)
    return stream.getvalue()


CHASE: Files = {}
DRIVE: Files = {}
HRF: Files = {}
STARE: Files = {}
STARE_MASKS: Files = {}
for n in (1, 2):
    CHASE[f"Image_0{n}L.jpg"] = photo(n, "JPEG")
    CHASE |= {f"Image_0{n}L_{who}HO.png": mask(n, "PNG", "1") for who in ("1st", "2nd")}
    DRIVE |= {f"training/images/2{n}_training.tif": photo(n, "TIFF"), f"training/mask/2{n}_training_mask.gif": b""}
    DRIVE |= {f"training/1st_manual/2{n}_manual1.gif": mask(n, "GIF"), f"test/images/0{n}_test.tif": photo(n, "TIFF")}
    HRF |= {f"images/0{n}_dr.JPG": photo(n, "JPEG"), f"manual1/0{n}_dr.tif": mask(n, "TIFF")}
    STARE |= {f"im000{n}.ppm.gz": gzip.compress(photo(n, "PPM")), f"im100{n}.ppm.gz": gzip.compress(photo(n, "PPM"))}
    STARE_MASKS |= {f"im000{n}.{who}.ppm.gz": gzip.compress(mask(n, "PPM", "RGB")) for who in ("ah", "vk")}


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Prepared]:
    """A data root, and what came of preparing it from a folder with the archives of all four groups."""
    place = tmp_path_factory.mktemp("vessels")
    for name, files in (("CHASEDB1.zip", CHASE), ("DRIVE.zip", DRIVE), ("all.zip", HRF)):
        write_zip(place / name, files)
    for name, files in (("stare-images.tar", STARE), ("labels.tar", STARE_MASKS)):
        write_tar(place / name, files)
    return place / "root", prepare(VESSELS, place, place / "root", any_counts=True)


def test_one_folder_of_archives_becomes_four_domains_of_pairs(done: tuple[Path, Prepared]) -> None:
    root, made = done
    assert made.counts == {domain: {"pairs": 2} for domain in VESSELS.domains}
    assert made.manifest is not None
    assert len(made.manifest.files) == 16
    assert not any(find_changes(root, VESSELS, made.manifest).values())
    assert sorted(made.plan.remarks) == [
        f"{domain}: images that are published without a mask, left out: 2" for domain in ("drive", "stare")
    ]
    assert {"Image_01L_2ndHO.png", "im0001.vk.ppm.gz", "training/mask/21_training_mask.gif"} < set(made.plan.left_out)
    assert [path.name for path in root.iterdir()] == ["vessels"], "what was unpacked is gone"
    assert len(open_domain(root, "vessels", "hrf", seed=0).test) == 2


@pytest.mark.parametrize(
    ("place", "image", "mask"),
    [
        ("hrf/images/02_dr.jpg", HRF["images/02_dr.JPG"], HRF["manual1/02_dr.tif"]),
        ("stare/images/im0002.png", gzip.decompress(STARE["im0002.ppm.gz"]), mask(2, "PPM", "RGB")),
    ],
)
def test_the_pixels_are_those_of_the_published_files(
    place: str, image: bytes, mask: bytes, done: tuple[Path, Prepared]
) -> None:
    file = done[0] / "vessels" / place
    for path, content in ((file, image), (file.parents[1] / "masks" / f"{file.stem}.png", mask)):
        with Image.open(path) as found, Image.open(io.BytesIO(content)) as expected:
            np.testing.assert_array_equal(np.asarray(found.convert("RGB")), np.asarray(expected.convert("RGB")))


@pytest.mark.parametrize(
    ("files", "named"),
    [
        ({**CHASE, "Image_03L.jpg": photo(3, "JPEG")}, "Image_03L"),
        ({**HRF, "manual1/01_g.tif": mask(1, "TIFF")}, "01_g"),
        ({**CHASE, "Image_01L_1stHO.png": mask(1, "PNG", size=(12, 20))}, "Image_01L"),
        ({**HRF, "manual1/01_dr.tif": photo(1, "TIFF")}, "01_dr"),
        ({**HRF, "manual1/01_dr.tif": encoded(np.zeros(SIZE, dtype=np.uint8), "TIFF")}, "01_dr"),
        ({**STARE, **STARE_MASKS, "im0001.ppm.gz": b"no gzip"}, "im0001"),
    ],
)
def test_what_makes_no_pairs_is_refused_by_name_and_leaves_no_manifest(
    files: Mapping[str, bytes], named: str, tmp_path: Path
) -> None:
    with refused("", named):
        prepare(VESSELS, write_files(tmp_path / "source", files), tmp_path / "root")
    assert not (tmp_path / "root" / "vessels" / MANIFEST).exists()


def test_an_image_of_too_many_pixels_is_refused_before_it_is_decoded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    huge = encoded(np.zeros((6_000, 10_000), dtype=bool), "TIFF")
    source = write_files(tmp_path / "source", {**DRIVE, "training/images/21_training.tif": huge})
    monkeypatch.setattr(TiffImageFile, "load", None)
    with refused("", "60,000,000 pixels"):
        prepare(VESSELS, source, tmp_path / "root")
