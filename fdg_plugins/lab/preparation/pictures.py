# SPDX-License-Identifier: Apache-2.0
"""Published images and masks as PNG: equal pixels, in a form that every reader of this package decodes."""

import io
import warnings
from pathlib import Path

import numpy as np
from PIL import Image

from fdg_plugins.data.decoding import FORMATS, read_image
from fdg_plugins.errors import DataError

PUBLISHED_FORMATS = (*FORMATS, "PPM")
MOST_GREY = 0.01
"""The largest fraction of a mask's pixels that may be neither black nor white; a photograph has more."""


def as_png(content: bytes, name: str) -> bytes:
    """Return the image in ``content``, of any published format, as PNG in RGB with the same pixels.

    Raises DataError, naming ``name``, if it is damaged or too large.
    """
    return _png(_decoded(content, name))


def as_mask(content: bytes, name: str) -> bytes:
    """Return the mask in ``content`` as 8-bit grey PNG, 255 where it exceeds half of its largest value and 0 elsewhere.

    A mask of this form is returned as it is. Raises DataError, naming ``name``, if it is damaged, empty, or has more
    than two values.
    """
    pixels = np.asarray(_decoded(content, name).convert("L"))
    largest = int(pixels.max())
    if largest == 0:
        raise DataError(f"mask {name} marks no pixel; expected some.")
    grey = float(np.mean((pixels > 0) & (pixels < largest)))
    if grey > MOST_GREY:
        raise DataError(
            f"mask {name} has a fraction of {grey:.2f} of its pixels between its smallest and largest value; expected "
            "a mask of two values."
        )
    if grey == 0 and largest == 255 and _is_grey_png(content):
        return content
    return _png(Image.fromarray(np.where(pixels > largest / 2, 255, 0).astype(np.uint8)))


def _decoded(content: bytes, name: str) -> Image.Image:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Pillow warns of odd TIFF tags; what it cannot decode, it refuses
        return read_image(Path(name), content=content, formats=PUBLISHED_FORMATS)


def _is_grey_png(content: bytes) -> bool:
    with Image.open(io.BytesIO(content)) as image:
        return image.format == "PNG" and image.mode == "L"


def _png(image: Image.Image) -> bytes:
    stream = io.BytesIO()
    image.save(stream, "PNG")
    return stream.getvalue()
