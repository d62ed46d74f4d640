# SPDX-License-Identifier: Apache-2.0
"""Decoding by mode and format, and one sentence for what cannot be read."""

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from fdg_plugins.data.decoding import open_image, read_image
from fdg_plugins.errors import DataError


@pytest.mark.parametrize("mode", ["1", "L", "LA", "P", "RGB", "RGBA"])
def test_png_of_every_mode_is_read_as_rgb(tmp_path: Path, mode: str) -> None:
    Image.new("RGB", (16, 16), (255, 255, 255)).convert(mode).save(tmp_path / "image.png")
    image = read_image(tmp_path / "image.png")
    assert image.mode == "RGB"
    assert image.getpixel((3, 3)) == (255, 255, 255)


@pytest.mark.parametrize("mode", ["L", "RGB", "CMYK"])
def test_jpeg_of_every_mode_is_read_as_rgb(tmp_path: Path, mode: str) -> None:
    Image.new("RGB", (16, 16), (120, 120, 120)).convert(mode).save(tmp_path / "image.jpg")
    assert np.abs(np.asarray(read_image(tmp_path / "image.jpg")).astype(int) - 120).max() < 10


def test_16_bit_grey_keeps_its_upper_bits(tmp_path: Path) -> None:
    Image.fromarray(np.full((16, 16), 0x7F80, dtype=np.uint16)).save(tmp_path / "image.png")
    assert read_image(tmp_path / "image.png").getpixel((0, 0)) == (0x7F, 0x7F, 0x7F)


def test_a_palette_with_transparency_is_read_without_a_warning(
    tmp_path: Path, recwarn: pytest.WarningsRecorder
) -> None:
    Image.new("P", (16, 16)).save(tmp_path / "image.png", transparency=b"\x00\x80")
    assert read_image(tmp_path / "image.png").mode == "RGB"
    assert not recwarn.list


@pytest.mark.parametrize("suffix", [".jpg", ".png"])
def test_a_truncated_image_opens_but_cannot_be_read(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"half{suffix}"
    noise = np.random.default_rng(0).integers(0, 256, (64, 64, 3), dtype=np.uint8)
    Image.fromarray(noise).save(path)
    path.write_bytes(path.read_bytes()[:2000])
    open_image(path).close()
    with pytest.raises(DataError, match=rf"image .*half{suffix} cannot be read \(OSError\); expected an undamaged"):
        read_image(path)


def test_a_format_outside_the_list_is_refused_whatever_its_suffix(tmp_path: Path) -> None:
    Image.new("RGB", (16, 16)).save(tmp_path / "image.jpg", format="PPM")
    with pytest.raises(DataError, match=r"image\.jpg cannot be read"):
        open_image(tmp_path / "image.jpg")


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"gone\.jpg cannot be read \(FileNotFoundError\)"):
        read_image(tmp_path / "gone.jpg")
