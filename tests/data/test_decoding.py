# SPDX-License-Identifier: Apache-2.0
"""Decoding by mode and format, and one sentence for what cannot be read."""

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from fdg_plugins.data.decoding import UnfitError, check_image, open_image, read_image
from fdg_plugins.errors import DataError


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


def test_a_format_outside_the_list_is_refused_whatever_its_suffix(tmp_path: Path) -> None:
    Image.new("RGB", (16, 16)).save(tmp_path / "image.jpg", format="PPM")
    with pytest.raises(DataError, match=r"image\.jpg cannot be read"):
        open_image(tmp_path / "image.jpg")
