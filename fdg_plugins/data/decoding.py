# SPDX-License-Identifier: Apache-2.0
"""Decode an image file to pixels in RGB, whatever its format; an unreadable file raises an error of one sentence.

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
# Exceptions of Pillow's decoders on broken files.
DECODE_ERRORS = (
    *(OSError, SyntaxError, ValueError, EOFError, LookupError, ArithmeticError, TypeError, AttributeError),
    *(RuntimeError, struct.error, zlib.error),
)
LARGEST_DEEP = 2**16 - 1  # the largest value of an image of more than 8 bits
LEAST_DEEP = 2**12  # an image whose values stay below is of 12 bits or fewer: its upper 8 of 16 bits are nearly black
UPRIGHT = 1
_UPPER_BITS = re.compile(r";16[BLN]$")  # of Pillow's names for what a decoder reads; ";16" alone are 5 bits a colour
_PILLOWS_LIMIT = threading.Lock()


class TooLargeError(DataError):
    """An image has more pixels than the limit allows."""

    def __init__(self, path: Path, pixels: int, most: int) -> None:
        super().__init__(
            f"image {path} has {pixels:,} pixels; expected at most {most:,} (max_image_pixels).",
            public="an image of the split has more pixels than the site opens (max_image_pixels).",
        )


class UnfitError(DataError):
    """An image can be decoded, but to other pixels than were meant: by its values or its orientation.

    ``reason`` says what it has and what was expected, for the site's own log.
    """

    def __init__(self, path: Path, reason: str) -> None:
        super().__init__(f"image {path} has {reason}.", public="an image of the split does not fit.")
        self.reason = reason


class UnreadableError(DataError):
    """An image cannot be decoded."""

    def __init__(self, path: Path, error: Exception) -> None:
        super().__init__(
            f"image {path} cannot be read ({type(error).__name__}); expected an undamaged file of a known format.",
            public="an image of the split cannot be read.",
        )


@contextmanager
def decoding(path: Path) -> Iterator[None]:
    """Turn the exceptions of decoders into an ``UnreadableError``."""
    try:
        yield
    except DECODE_ERRORS as error:
        raise UnreadableError(path, error) from error


def open_image(
    path: Path, max_pixels: int = MOST_PIXELS, *, content: bytes | None = None, formats: tuple[str, ...] = FORMATS
) -> Image.Image:
    """Open ``path``, or ``content`` that was read from it, and read its header, not its pixels.

    Raises DataError naming the file if it is not an image, and :class:`TooLargeError` if it exceeds ``max_pixels``.
    """
    with decoding(path), _PILLOWS_LIMIT:
        kept, Image.MAX_IMAGE_PIXELS = Image.MAX_IMAGE_PIXELS, None  # our limit takes the place of Pillow's two
        try:
            image = Image.open(path if content is None else io.BytesIO(content), formats=formats)
        finally:
            Image.MAX_IMAGE_PIXELS = kept
    if (pixels := image.width * image.height) > max_pixels:
        image.close()
        raise TooLargeError(path, pixels, max_pixels)
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

    ``image`` is not decoded yet. Raises :class:`UnfitError`, naming ``path``, for values of which too little would be
    left: floating-point ones, those out of 16 bits, and those of 12 bits or fewer that are stored in more than 8,
    unless the image is grey and blank.
    """
    if image.mode == "F":
        raise UnfitError(path, "floating-point values, expected whole numbers of 8 or 16 bits")
    in_upper_bits = has_deep_channels(image)
    if image.mode.startswith("I"):
        image = Image.fromarray(_upper_bits(np.asarray(image), path))
    if image.mode == "P" and "transparency" in image.info:
        image = image.convert("RGBA")
    pixels = image.convert("RGB")
    if in_upper_bits and (highest := int(np.asarray(pixels).max())) < LEAST_DEEP >> 8:
        raise _nearly_black(path, (highest + 1 << 8) - 1)
    return pixels


def has_deep_channels(image: Image.Image) -> bool:
    """Return whether an opened image, not decoded yet, has several channels of 16 bits: Pillow reads the upper 8."""
    read = (tile[3] if isinstance(tile[3], str) else str(tile[3][0]) for tile in getattr(image, "tile", ()) if tile[3])
    return not image.mode.startswith("I") and any(_UPPER_BITS.search(one) for one in read)


def _upper_bits(values: np.ndarray, path: Path) -> np.ndarray:
    """Return the upper 8 of 16 bits, uint8 ``[H, W]``; raise UnfitError for values in another range."""
    lowest, highest = int(values.min()), int(values.max())
    if lowest < 0 or highest > LARGEST_DEEP:
        raise UnfitError(path, f"values from {lowest:,} to {highest:,}, expected 0 to {LARGEST_DEEP:,}")
    if lowest < highest < LEAST_DEEP:
        raise _nearly_black(path, highest)
    return (values >> 8).astype(np.uint8)


def _nearly_black(path: Path, highest: int) -> UnfitError:
    return UnfitError(
        path,
        f"values of more than 8 bits that reach only {highest:,} of {LARGEST_DEEP:,}, expected the whole range "
        "(12-bit values times 16), or 8 bits",
    )


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
