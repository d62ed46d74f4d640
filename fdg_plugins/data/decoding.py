# SPDX-License-Identifier: Apache-2.0
"""Decode an image file to RGB, and say why that is impossible in an error that names the file.

The number of pixels is known from the header, and too large an image is rejected before any pixel is decoded.
"""

import io
import re
import struct
import threading
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
from PIL import ExifTags, Image

from fdg_plugins.errors import DataError

MOST_PIXELS = 50_000_000
"""Pixels of the largest image that is opened, unless the caller sets another limit."""

# Pillow selects the decoder by content, not by suffix: these are all the formats a misnamed image may turn out to have.
FORMATS = ("JPEG", "PNG", "BMP", "GIF", "WEBP", "TIFF")
# Exceptions of Pillow's and nibabel's decoders on broken files.
DECODE_ERRORS = (
    *(OSError, SyntaxError, ValueError, EOFError, LookupError, ArithmeticError, TypeError, AttributeError),
    *(RuntimeError, MemoryError, struct.error, zlib.error),
)
LARGEST_DEEP = 2**16 - 1  # the largest value of an image of more than 8 bits
LEAST_DEEP = 2**12  # an image whose values stay below is of 12 bits or fewer: its upper 8 of 16 bits are nearly black
UPRIGHT = 1
_UPPER_BITS = re.compile(r";16[BLN]$")  # of Pillow's names for what a decoder reads; ";16" alone are 5 bits a colour
_PILLOWS_LIMIT = threading.Lock()


class DamagedError(DataError):
    """An image, or its mask, cannot be used. ``reason`` ends a sentence about it in this site's log."""

    def __init__(self, path: Path, reason: str) -> None:
        super().__init__(f"image {path} {reason}.", public="an image of the split cannot be read.")
        self.reason = reason


@contextmanager
def decoding(path: Path) -> Iterator[None]:
    """Turn the exceptions of decoders into a :class:`DamagedError`."""
    try:
        yield
    except DECODE_ERRORS as error:
        raise DamagedError(path, f"cannot be read ({type(error).__name__})") from error


def check_pixels(path: Path, pixels: int, most: int) -> None:
    """Raise :class:`DamagedError` for an image of more than ``most`` pixels or voxels."""
    if pixels > most:
        raise DamagedError(path, f"has {pixels:,} pixels; expected at most {most:,} (max_image_pixels)")


def open_image(
    path: Path, max_pixels: int = MOST_PIXELS, *, content: bytes | None = None, formats: tuple[str, ...] = FORMATS
) -> Image.Image:
    """Open ``path``, or ``content`` that was read from it, and read its header, not its pixels.

    Raises :class:`DamagedError`, naming the file, if it is not an image or exceeds ``max_pixels``.
    """
    with decoding(path), _PILLOWS_LIMIT:
        kept, Image.MAX_IMAGE_PIXELS = Image.MAX_IMAGE_PIXELS, None  # our limit takes the place of Pillow's two
        try:
            image = Image.open(path if content is None else io.BytesIO(content), formats=formats)
        finally:
            Image.MAX_IMAGE_PIXELS = kept
    try:
        check_pixels(path, image.width * image.height, max_pixels)
    except DamagedError:
        image.close()
        raise
    return image


def read_image(
    path: Path, max_pixels: int = MOST_PIXELS, *, content: bytes | None = None, formats: tuple[str, ...] = FORMATS
) -> Image.Image:
    """Return the image in ``path`` as RGB; raises as ``open_image`` and ``to_rgb`` do, and if it is damaged."""
    with open_image(path, max_pixels, content=content, formats=formats) as image, decoding(path):
        return to_rgb(image, path)


def check_image(path: Path, max_pixels: int = MOST_PIXELS) -> None:
    """Raise the same errors as ``read_image``, at less cost.

    A JPEG is parsed completely but decoded at an eighth of its size, which takes a tenth of the time.
    """
    with open_image(path, max_pixels) as image, decoding(path):
        if image.format in ("JPEG", "MPO"):
            image.draft(None, (1, 1))
            image.load()
        else:
            to_rgb(image, path)


def to_rgb(image: Image.Image, path: Path) -> Image.Image:
    """Decode and convert to RGB; channels of 16 bits keep their upper 8 bits, transparency is ignored.

    ``image`` is not decoded yet. Raises :class:`DamagedError`, naming ``path``, for values of which too little would be
    left: floating-point ones, those out of 16 bits, and those of 12 bits or fewer that are stored in more than 8,
    unless the image is grey and blank.
    """
    if image.mode == "F":
        raise DamagedError(path, "has floating-point values, expected whole numbers of 8 or 16 bits")
    highest = None
    is_deep = has_deep_channels(image)
    if image.mode.startswith("I"):
        values = np.asarray(image)
        low, high = int(values.min()), int(values.max())
        if low < 0 or high > LARGEST_DEEP:
            raise DamagedError(path, f"has values from {low:,} to {high:,}, expected 0 to {LARGEST_DEEP:,}")
        highest = high if low < high else None
        image = Image.fromarray((values >> 8).astype(np.uint8))
    if image.mode == "P" and "transparency" in image.info:
        image = image.convert("RGBA")
    pixels = image.convert("RGB")
    if is_deep:
        highest = (int(np.asarray(pixels).max()) + 1 << 8) - 1
    if highest is not None and highest < LEAST_DEEP:
        expected = "the whole range (12-bit values times 16), or 8 bits"
        found = f"values of more than 8 bits that reach only {highest:,} of {LARGEST_DEEP:,}"
        raise DamagedError(path, f"has {found}, expected {expected}")
    return pixels


def has_deep_channels(image: Image.Image) -> bool:
    """Return whether an opened image, not decoded yet, has several channels of 16 bits: Pillow reads the upper 8."""
    read = (tile[3] if isinstance(tile[3], str) else str(tile[3][0]) for tile in getattr(image, "tile", ()) if tile[3])
    return not image.mode.startswith("I") and any(_UPPER_BITS.search(one) for one in read)


def ignored_orientation(image: Image.Image) -> int:
    """Return the EXIF orientation of an opened image that decoding ignores, from 1, upright, to 8.

    Pillow itself turns TIFF images as their tag says.
    """
    if image.format == "TIFF":
        return UPRIGHT
    try:
        found = image.getexif().get(ExifTags.Base.Orientation, UPRIGHT)
    except DECODE_ERRORS:  # damaged metadata say nothing
        return UPRIGHT
    return int(found) if found in range(1, 9) else UPRIGHT
