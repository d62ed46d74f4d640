# SPDX-License-Identifier: Apache-2.0
"""Decoding by mode and format, and damaged images: found, counted, and left out of a run on request."""

import io
import warnings
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image, ImageFile

from fdg_plugins.data import open_domain
from fdg_plugins.data.decoding import MOST_PIXELS, check_image, open_image, read_image
from fdg_plugins.data.domains import without_damaged
from fdg_plugins.errors import DataError
from tests.data.conftest import EACH, refused, write_pacs


def encoded(form: str, mode: str = "RGB", side: int = 48, **options: Any) -> bytes:
    """Return noise over a ramp, so that every part of the file matters."""
    ramp = np.add.outer(np.arange(side), np.arange(side))[..., None]
    noise = np.random.default_rng(0).integers(0, 60, size=(side, side, 3))
    return saved(Image.fromarray((ramp + noise).clip(0, 255).astype(np.uint8)).convert(mode), form, **options)


def of_values(values: np.ndarray, form: str = "TIFF") -> bytes:
    return saved(Image.fromarray(values.reshape(16, 16)), form)


def saved(picture: Image.Image, form: str, **options: Any) -> bytes:
    buffer = io.BytesIO()
    picture.save(buffer, form, **options)
    return buffer.getvalue()


JPEG = encoded("JPEG", quality=90)
RANGE = np.arange(256)
WHITE = Image.new("RGB", (16, 16), (255, 255, 255))


@pytest.mark.parametrize(
    ("content", "value"),
    [
        *((saved(WHITE.convert(mode), "PNG"), 255) for mode in ("1", "LA", "P", "RGBA")),
        (of_values(np.full(256, 0x7F80, dtype=np.uint16), "PNG"), 0x7F),
    ],
)
def test_png_of_every_mode_is_read_as_rgb_of_8_bits(tmp_path: Path, content: bytes, value: int) -> None:
    (tmp_path / "image.png").write_bytes(content)
    image = read_image(tmp_path / "image.png")
    assert (image.mode, image.getpixel((3, 3))) == ("RGB", (value,) * 3)


@pytest.mark.parametrize("content", [JPEG, encoded("JPEG", "CMYK"), encoded("GIF", "P"), encoded("BMP", "P")])
def test_what_can_be_decoded_is_sound_whatever_its_suffix(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "image.jpg").write_bytes(content)
    check_image(tmp_path / "image.jpg")
    assert read_image(tmp_path / "image.jpg").mode == "RGB"


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        *((content, "cannot be read") for content in (b"", b"text", JPEG[:600], JPEG[:-200], encoded("PNG")[:-40])),
        (encoded("PPM"), "cannot be read"),
        (of_values((RANGE * 16).astype(np.uint16)), "from 0 to 4,080"),
        (of_values((RANGE * 1000).astype(np.int32)), "from 0 to 255,000"),
        (of_values((RANGE * 100 - 1024).astype(np.int32)), "from -1,024"),
        (of_values(np.linspace(0, 1, 256, dtype=np.float32)), "floating-point"),
    ],
)
def test_what_cannot_be_decoded_or_would_lose_its_values_is_damaged(
    tmp_path: Path, content: bytes, reason: str
) -> None:
    (tmp_path / "image.jpg").write_bytes(content)
    for look in (check_image, read_image):
        with refused("image", reason, "image.jpg"):
            look(tmp_path / "image.jpg")


def test_too_many_pixels_are_refused_from_the_header_and_pillows_limit_is_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def decode(image: ImageFile.ImageFile) -> None:
        raise AssertionError("a pixel was decoded")

    monkeypatch.setattr(ImageFile.ImageFile, "load", decode)
    before = Image.MAX_IMAGE_PIXELS
    for side in (10_000, 14_000):  # Pillow warns of the first and refuses the second
        (tmp_path / "huge.png").write_bytes(saved(Image.new("1", (side, side)), "PNG"))
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            open_image(tmp_path / "huge.png", 2**31).close()
            for look in (check_image, read_image, open_image):
                with refused("image", f"expected at most {MOST_PIXELS:,}"):
                    look(tmp_path / "huge.png")
    assert before == Image.MAX_IMAGE_PIXELS


@pytest.mark.parametrize("left", [0, 1])
def test_a_class_of_which_too_few_are_left_is_said_to_everybody(tmp_path: Path, left: int) -> None:
    root = write_pacs(tmp_path, JPEG)
    for number in range(left, EACH):
        (root / "pacs" / "photo" / "horse" / f"056_{number:04d}.jpg").write_bytes(b"")
    opened = partial(open_domain, root, "pacs", "photo", seed=1)
    with pytest.raises(DataError) as caught:
        without_damaged(opened(), lambda files: opened(left_out=files))
    assert caught.value.field == "usable images of the 5 of class 'horse' in domain 'photo'"
    assert caught.value.public == str(caught.value)
