# SPDX-License-Identifier: Apache-2.0
"""Decoding by mode and format, and one sentence for what cannot be read."""

from pathlib import Path

import numpy as np
import pytest
from PIL import ExifTags, Image

from fdg_plugins.data.decoding import UnfitError, check_image, ignored_orientation, open_image, read_image
from fdg_plugins.errors import DataError
from tests.data.deep_images import save_deep


@pytest.mark.parametrize("mode", ["1", "L", "LA", "P", "RGB", "RGBA"])
def test_png_of_every_mode_is_read_as_rgb(tmp_path: Path, mode: str) -> None:
    Image.new("RGB", (16, 16), (255, 255, 255)).convert(mode).save(tmp_path / "image.png")
    image = read_image(tmp_path / "image.png")
    assert image.mode == "RGB"
    assert image.getpixel((3, 3)) == (255, 255, 255)


def test_16_bit_grey_keeps_its_upper_bits(tmp_path: Path) -> None:
    Image.fromarray(np.full((16, 16), 0x7F80, dtype=np.uint16)).save(tmp_path / "image.png")
    assert read_image(tmp_path / "image.png").getpixel((0, 0)) == (0x7F, 0x7F, 0x7F)


@pytest.mark.parametrize(
    ("values", "sentence"),
    [
        (np.arange(256, dtype=np.uint16) * 16, "more than 8 bits that reach only 4,080 of 65,535, expected the whole"),
        (np.arange(256, dtype=np.int32), "more than 8 bits that reach only 255 of 65,535, expected the whole range"),
        (np.arange(256, dtype=np.int32) * 1000, "values from 0 to 255,000, expected 0 to 65,535"),
        (np.arange(256, dtype=np.int32) * 100 - 1024, "values from -1,024 to 24,476, expected 0 to 65,535"),
        (np.linspace(0, 1, 256, dtype=np.float32), "floating-point values, expected whole numbers of 8 or 16 bits"),
    ],
)
def test_values_of_which_too_little_would_be_left_are_refused(
    tmp_path: Path, values: np.ndarray, sentence: str
) -> None:
    Image.fromarray(values.reshape(16, 16)).save(file := tmp_path / "image.tif")
    for look in (read_image, check_image):
        with pytest.raises(UnfitError, match=sentence) as refused:
            look(file)
        assert str(file) in str(refused.value)
        assert "\n" not in str(refused.value)
        assert "image.tif" not in refused.value.public


@pytest.mark.parametrize("suffix", [".png", ".tif"])
@pytest.mark.parametrize(("channels", "alpha"), [(3, False), (4, True)])
def test_colours_of_16_bits_keep_their_upper_bits_unless_too_little_would_be_left(
    tmp_path: Path, suffix: str, channels: int, alpha: bool
) -> None:
    values = np.random.default_rng(0).integers(0, 2**16, (16, 16, channels)).astype(np.uint16)
    file = save_deep(tmp_path / f"image{suffix}", values)
    assert (np.asarray(read_image(file)) == values[..., :3] >> 8).all()
    values[..., :3] >>= 4
    if alpha:
        values[..., 3] = 2**16 - 1
    save_deep(file, values)
    for look in (read_image, check_image):
        with pytest.raises(UnfitError, match="that reach only 4,095 of 65,535, expected the whole range"):
            look(file)


@pytest.mark.parametrize("orientation", range(10))
@pytest.mark.parametrize("suffix", [".jpg", ".png", ".webp"])
def test_the_exif_orientation_is_told_and_changes_no_pixel(tmp_path: Path, suffix: str, orientation: int) -> None:
    noise = Image.fromarray(np.random.default_rng(0).integers(0, 256, (16, 24, 3), dtype=np.uint8))
    tag = Image.Exif()
    tag[ExifTags.Base.Orientation] = orientation
    noise.save(turned := tmp_path / f"turned{suffix}", exif=tag)
    noise.save(plain := tmp_path / f"plain{suffix}")
    assert (np.asarray(read_image(turned)) == np.asarray(read_image(plain))).all()
    with open_image(turned) as image:
        assert ignored_orientation(image) == (orientation if 2 <= orientation <= 8 else 1)


def test_a_format_outside_the_list_is_refused_whatever_its_suffix(tmp_path: Path) -> None:
    Image.new("RGB", (16, 16)).save(tmp_path / "image.jpg", format="PPM")
    with pytest.raises(DataError, match=r"image\.jpg cannot be read"):
        open_image(tmp_path / "image.jpg")
