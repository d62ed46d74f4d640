# SPDX-License-Identifier: Apache-2.0
"""Contact sheets: some images of a domain on one picture, each beside itself with its mask laid over it.

The colours of the classes are told apart with every kind of colour vision.
Reference: Okabe, Ito, "Color Universal Design", 2008.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from PIL import Image, ImageDraw

COLOURS = ((86, 180, 233), (230, 159, 0), (0, 158, 115), (204, 121, 167), (240, 228, 66), (213, 94, 0), (0, 114, 178))
"""The colours of the classes after the first, which is not coloured; further classes begin again."""

TILE, CAPTION, GAP, COLUMNS = 320, 18, 6, 2  # pixels; pairs of tiles in a row
STRENGTH = 0.75
LARGEST_VALUE = 255
SHARE_IN_FULL = 0.5  # of a tile's pixel: from here on it has the full colour, so that thin lines stay visible
_PAPER, _INK = (255, 255, 255), (32, 32, 32)


@dataclass(frozen=True)
class Picture:
    """A pair to be drawn: ``image`` is RGB, ``labels`` ``[H, W]`` has the class of each of its pixels."""

    image: Image.Image
    labels: np.ndarray

    @classmethod
    def of(cls, image: np.ndarray, labels: np.ndarray) -> "Picture":
        """Return an image ``[C, *S]`` with its labels ``[*S]`` as a picture; of a volume, its middle slice.

        A volume in the orientation RAS is shown from below, with the front at the top. Values that are not
        whole numbers in [0, 255] are scaled to it; an image of one such value is black.
        """
        if labels.ndim > 2:
            middle = labels.shape[-1] // 2
            image, labels = (np.rot90(values[..., middle], axes=(-2, -1)) for values in (image, labels))
        return cls(_in_rgb(image), labels)


@dataclass(frozen=True)
class Entry:
    """One pair on a sheet and the line of text above it."""

    picture: Picture
    caption: str


def draw_sheet(entries: Sequence[Entry], title: str, classes: Sequence[str]) -> Image.Image:
    """Return a sheet with the entries in rows of two, under a title and the colours of the classes."""
    cells = [_cell(entry) for entry in entries]
    width, height = cells[0].size
    rows = -(-len(cells) // COLUMNS)
    columns = min(COLUMNS, len(cells))
    sheet = Image.new("RGB", (columns * (width + GAP) + GAP, rows * (height + GAP) + CAPTION + 2 * GAP), _PAPER)
    _draw_key(sheet, title, classes)
    for number, cell in enumerate(cells):
        row, column = divmod(number, COLUMNS)
        sheet.paste(cell, (GAP + column * (width + GAP), CAPTION + 2 * GAP + row * (height + GAP)))
    return sheet


def lay_over(image: Image.Image, labels: np.ndarray, strength: float = STRENGTH) -> Image.Image:
    """Return the RGB image, at the size of a tile at most, with the classes after the first in translucent colours.

    ``labels`` ``[H, W]`` has the class of each pixel of the image. A tile's pixel is coloured by the fraction of it
    that a class covers.
    """
    size = _tile_size(image)
    pixels = np.asarray(image.resize(size, Image.Resampling.LANCZOS), dtype=np.float64)
    for label in range(1, int(labels.max()) + 1):
        cover = Image.fromarray((labels == label).astype(np.float32)).resize(size, Image.Resampling.BOX)
        opacity = strength * np.clip(np.asarray(cover) / SHARE_IN_FULL, 0, 1)[..., None]
        pixels += opacity * (np.array(_colour(label)) - pixels)
    return Image.fromarray(np.rint(pixels).clip(0, LARGEST_VALUE).astype(np.uint8))


def _in_rgb(image: np.ndarray) -> Image.Image:
    """Return an image ``[C, H, W]`` in 8 bits: three channels as colours, else the first one in grey."""
    image = image if len(image) == 3 else image[:1]
    low, high = float(image.min()), float(image.max())
    if low < 0 or high > LARGEST_VALUE or (image != np.rint(image)).any():
        image = (image - low) * (LARGEST_VALUE / (high - low) if high > low else 0.0)  # a blank one is black
    pixels = np.rint(np.moveaxis(image, 0, -1)).astype(np.uint8)
    return Image.fromarray(np.broadcast_to(pixels, (*pixels.shape[:2], 3)).copy())


def _cell(entry: Entry) -> Image.Image:
    """Return the image, the image under its mask, and the caption above both."""
    cell = Image.new("RGB", (2 * TILE + GAP, TILE + CAPTION), _PAPER)
    image, labels = entry.picture.image, entry.picture.labels
    for column, tile in enumerate((lay_over(image, labels, strength=0), lay_over(image, labels))):
        across, down = ((TILE - side) // 2 for side in tile.size)
        cell.paste(tile, (column * (TILE + GAP) + across, CAPTION + down))
    _write(cell, (0, 0), entry.caption)
    return cell


def _draw_key(sheet: Image.Image, title: str, classes: Sequence[str]) -> None:
    across = float(GAP)
    across += _write(sheet, (across, GAP), title) + 4 * GAP
    draw = ImageDraw.Draw(sheet)
    for label, name in enumerate(classes[1:], start=1):
        draw.rectangle((across, GAP, across + CAPTION, GAP + CAPTION - 6), fill=_colour(label))
        across += CAPTION + GAP
        across += _write(sheet, (across, GAP), name) + 4 * GAP


def _write(picture: Image.Image, place: tuple[float, float], text: str) -> float:
    """Write a line of text and return its width in pixels; characters that the font lacks become question marks."""
    plain = text.encode("ascii", "replace").decode()
    draw = ImageDraw.Draw(picture)
    draw.text(place, plain, fill=_INK)
    return draw.textlength(plain)


def _tile_size(image: Image.Image) -> tuple[int, int]:
    """Return the largest size of the image's shape that fits into a tile."""
    scale = TILE / max(image.size)
    width, height = (max(1, round(side * scale)) for side in image.size)
    return width, height


def _colour(label: int) -> tuple[int, int, int]:
    return COLOURS[(label - 1) % len(COLOURS)]
