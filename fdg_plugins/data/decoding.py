# SPDX-License-Identifier: Apache-2.0
"""From an image file to pixels in RGB, whatever the file holds; one sentence for a file that cannot be read."""

import struct
from pathlib import Path

import numpy as np
from PIL import Image

from fdg_plugins.errors import DataError

# Pillow picks the decoder by content, not by suffix: these are all that a misnamed image may turn out to be.
_FORMATS = ("JPEG", "PNG", "BMP", "GIF", "WEBP")
# What Pillow's decoders raise on broken files, besides OSError and its UnidentifiedImageError.
_DECODE_ERRORS = (OSError, SyntaxError, ValueError, EOFError, IndexError, struct.error, Image.DecompressionBombError)


def open_image(path: Path) -> Image.Image:
    """Open ``path`` and read its header, not its pixels; DataError naming the file if it is no image."""
    try:
        return Image.open(path, formats=_FORMATS)
    except _DECODE_ERRORS as error:
        raise _unreadable(path, error) from error


def read_image(path: Path) -> Image.Image:
    """Return the image in ``path`` in RGB, whatever its mode; DataError naming the file if it cannot be decoded."""
    with open_image(path) as image:
        try:
            return _to_rgb(image)
        except _DECODE_ERRORS as error:
            raise _unreadable(path, error) from error


def _to_rgb(image: Image.Image) -> Image.Image:
    """Decode and convert; 16-bit grey keeps its upper 8 bits, transparency is ignored."""
    if image.mode.startswith("I"):
        image = Image.fromarray((np.asarray(image) >> 8).clip(0, 255).astype(np.uint8))
    if image.mode == "P" and "transparency" in image.info:
        image = image.convert("RGBA")
    return image.convert("RGB")


def _unreadable(path: Path, error: Exception) -> DataError:
    return DataError(
        f"image {path} cannot be read ({type(error).__name__}); expected an undamaged {', '.join(_FORMATS)} file."
    )
