# SPDX-License-Identifier: Apache-2.0
"""Contact sheets: rows of images on one picture, with a caption above each; masks are laid over their images.

The colours of the classes are told apart with every kind of colour vision.
Reference: Okabe, Ito, "Color Universal Design", 2008.
"""

import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from PIL import Image, ImageDraw, ImageFont, ImageOps

COLOURS = ((86, 180, 233), (230, 159, 0), (0, 158, 115), (204, 121, 167), (240, 228, 66), (213, 94, 0), (0, 114, 178))
"""The colours of the classes after the first, which is not coloured; further classes begin again."""

GAP, TEXT, LABEL = 6, 16, 130  # pixels: the space between tiles, a line of text, the name of a row
STRENGTH = 0.75
LARGEST_VALUE = 255
SHARE_IN_FULL = 0.5  # of a tile's pixel: from here on it has the full colour, so that thin lines stay visible
_PAPER, _INK, _FAINT = (255, 255, 255), (32, 32, 32), (240, 240, 240)


@dataclass(frozen=True)
class SheetRow:
    """The images of one row, in RGB, each with its caption; without a name, they begin at the edge."""

    name: str
    tiles: Sequence[tuple[Image.Image, str]]


def draw_rows(rows: Sequence[SheetRow], title: str, side: int = 112, key: Sequence[str] = ()) -> Image.Image:
    """Return a sheet with one row of tiles of ``side`` pixels for each of ``rows``, under a title.

    ``key``: the classes whose colours the title explains.
    """
    start = LABEL if any(row.name for row in rows) else GAP
    width = start + max(len(row.tiles) for row in rows) * (side + GAP) + GAP
    sheet = Image.new("RGB", (width, TEXT + 2 * GAP + len(rows) * (TEXT + side + 2 * GAP)), _PAPER)
    draw = ImageDraw.Draw(sheet)
    across = GAP + _write(draw, (GAP, GAP), title, width - GAP) + 4 * GAP
    for label, name in enumerate(key[1:], start=1):
        draw.rectangle((across, GAP, across + TEXT, GAP + TEXT - 4), fill=_colour(label))
        across += TEXT + GAP
        across += _write(draw, (across, GAP), name, width - across) + 4 * GAP
    for number, row in enumerate(rows):
        down = TEXT + 2 * GAP + number * (TEXT + side + 2 * GAP)
        _write(draw, (GAP, down + TEXT + side // 2 - TEXT // 2), row.name, LABEL - GAP)
        for column, (image, caption) in enumerate(row.tiles):
            left = start + column * (side + GAP)
            _write(draw, (left, down), caption, side)
            tile = Image.new("RGB", (side, side), _FAINT)
            small = ImageOps.contain(image, (side, side))
            tile.paste(small, ((side - small.width) // 2, (side - small.height) // 2))
            sheet.paste(tile, (left, down + TEXT))
    return sheet


def mask_row(image: np.ndarray, labels: np.ndarray, caption: str, side: int) -> SheetRow:
    """Return an image ``[C, *S]``, and beside it the same under its labels ``[*S]``; of a volume, its middle slice.

    A volume in the orientation RAS is shown from below, with the front at the top. Values that are not
    whole numbers in [0, 255] are scaled to it; an image of one such value is black.
    """
    if labels.ndim > 2:
        middle = labels.shape[-1] // 2
        image, labels = (np.rot90(values[..., middle], axes=(-2, -1)) for values in (image, labels))
    picture = _in_rgb(image)
    return SheetRow("", [(picture, caption), (lay_over(picture, labels, side), "")])


def lay_over(image: Image.Image, labels: np.ndarray, side: int) -> Image.Image:
    """Return the RGB image, as large as it fits into a tile, with the classes after the first in translucent colours.

    ``labels`` ``[H, W]`` has the class of each pixel of the image. A tile's pixel is coloured by the fraction of it
    that a class covers.
    """
    scale = side / max(image.size)
    size = (max(1, round(image.width * scale)), max(1, round(image.height * scale)))
    pixels = np.asarray(image.resize(size, Image.Resampling.LANCZOS), dtype=np.float64)
    for label in range(1, int(labels.max()) + 1):
        cover = Image.fromarray((labels == label).astype(np.float32)).resize(size, Image.Resampling.BOX)
        opacity = STRENGTH * np.clip(np.asarray(cover) / SHARE_IN_FULL, 0, 1)[..., None]
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


def _write(draw: ImageDraw.ImageDraw, place: tuple[float, float], text: str, room: float) -> float:
    """Write as much of a line as there is room for, without accents, and return its width; what the font lacks else is
    a question mark.
    """
    font = ImageFont.load_default()
    letters = unicodedata.normalize("NFKD", text.replace("ß", "ss"))
    shown = "".join(sign for sign in letters if not unicodedata.combining(sign)).encode("ascii", "replace").decode()
    while shown and draw.textlength(shown, font) > room:
        shown = shown[:-1]
    draw.text(place, shown, fill=_INK, font=font)
    return draw.textlength(shown, font)


def _colour(label: int) -> tuple[int, int, int]:
    return COLOURS[(label - 1) % len(COLOURS)]
