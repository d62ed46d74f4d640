# SPDX-License-Identifier: Apache-2.0
"""From an image file to pixels in RGB, whatever the file holds; one sentence for a file that cannot be read.

How many pixels an image has is known from its header, and one of too many is refused before any of them is decoded.
"""

import struct
import threading
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
from PIL import Image

from fdg_plugins.errors import DataError

MOST_PIXELS = 50_000_000
"""Pixels of the largest image that is opened, unless the caller says otherwise."""

# Pillow picks the decoder by content, not by suffix: these are all that a misnamed image may turn out to be.
FORMATS = ("JPEG", "PNG", "BMP", "GIF", "WEBP")
# What Pillow's decoders raise on broken files, besides OSError and its UnidentifiedImageError.
_DECODE_ERRORS = (
    OSError,
    SyntaxError,
    ValueError,
    EOFError,
    LookupError,
    ArithmeticError,
    TypeError,
    AttributeError,
    RuntimeError,
    struct.error,
    zlib.error,
)
_PILLOWS_LIMIT = threading.Lock()


class TooLargeError(DataError):
    """An image has more pixels than may be opened."""


def open_image(path: Path, max_pixels: int = MOST_PIXELS) -> Image.Image:
    """Open ``path`` and read its header, not its pixels.

    Raises DataError naming the file if it is no image, and :class:`TooLargeError` if it has more than ``max_pixels``.
    """
    try:
        with _ours_in_place_of_pillows():
            image = Image.open(path, formats=FORMATS)
    except _DECODE_ERRORS as error:
        raise _unreadable(path, error) from error
    if (pixels := image.width * image.height) > max_pixels:
        image.close()
        raise TooLargeError(
            f"image {path} has {pixels:,} pixels; expected at most {max_pixels:,} (max_image_pixels).",
            public="an image of the split has more pixels than the site opens (max_image_pixels).",
        )
    return image


def read_image(path: Path, max_pixels: int = MOST_PIXELS) -> Image.Image:
    """Return the image in ``path`` in RGB, whatever its mode; raises as ``open_image`` does, and if it is damaged."""
    with open_image(path, max_pixels) as image:
        try:
            return _to_rgb(image)
        except _DECODE_ERRORS as error:
            raise _unreadable(path, error) from error


def check_image(path: Path, max_pixels: int = MOST_PIXELS) -> None:
    """Raise what ``read_image`` would raise, at less cost.

    All of a JPEG's data are parsed, but it is decoded at an eighth of its size, which takes a tenth of the time.
    """
    with open_image(path, max_pixels) as image:
        try:
            if image.format in ("JPEG", "MPO"):
                image.draft(None, (1, 1))
                image.load()
            else:
                _to_rgb(image)
        except _DECODE_ERRORS as error:
            raise _unreadable(path, error) from error


@contextmanager
def _ours_in_place_of_pillows() -> Iterator[None]:
    """Switch off Pillow's own limit of pixels, which warns at one number and raises at another, for as long as this."""
    with _PILLOWS_LIMIT:
        kept, Image.MAX_IMAGE_PIXELS = Image.MAX_IMAGE_PIXELS, None
        try:
            yield
        finally:
            Image.MAX_IMAGE_PIXELS = kept


def _to_rgb(image: Image.Image) -> Image.Image:
    """Decode and convert; 16-bit grey keeps its upper 8 bits, transparency is ignored."""
    if image.mode.startswith("I"):
        image = Image.fromarray((np.asarray(image) >> 8).clip(0, 255).astype(np.uint8))
    if image.mode == "P" and "transparency" in image.info:
        image = image.convert("RGBA")
    return image.convert("RGB")


def _unreadable(path: Path, error: Exception) -> DataError:
    return DataError(
        f"image {path} cannot be read ({type(error).__name__}); expected an undamaged {', '.join(FORMATS)} file.",
        public="an image of the split cannot be read.",
    )
