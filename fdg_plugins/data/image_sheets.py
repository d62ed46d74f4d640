# SPDX-License-Identifier: Apache-2.0
"""A contact sheet of labelled images: one row for each domain, with the class above each image."""

import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass

from PIL import Image, ImageDraw, ImageFont, ImageOps

TILE, GAP, TEXT, LABEL = 112, 6, 16, 130  # pixels: the side of a tile, the space between, a line, the domain's name
_PAPER, _INK, _FAINT = (255, 255, 255), (32, 32, 32), (240, 240, 240)


@dataclass(frozen=True)
class SheetRow:
    """The images of one domain, in RGB, each with the name of its class."""

    name: str
    tiles: Sequence[tuple[Image.Image, str]]


def draw_rows(rows: Sequence[SheetRow], title: str) -> Image.Image:
    """Return a sheet with one row of tiles for each domain, under a title."""
    columns = max(len(row.tiles) for row in rows)
    width = LABEL + columns * (TILE + GAP) + GAP
    height = TEXT + 2 * GAP + len(rows) * (TEXT + TILE + 2 * GAP)
    sheet = Image.new("RGB", (width, height), _PAPER)
    draw = ImageDraw.Draw(sheet)
    _write(draw, (GAP, GAP), title, width - GAP)
    for number, row in enumerate(rows):
        down = TEXT + 2 * GAP + number * (TEXT + TILE + 2 * GAP)
        _write(draw, (GAP, down + TEXT + TILE // 2 - TEXT // 2), row.name, LABEL - GAP)
        for column, (image, caption) in enumerate(row.tiles):
            across = LABEL + column * (TILE + GAP)
            _write(draw, (across, down), caption, TILE)
            _paste(sheet, image, (across, down + TEXT))
    return sheet


def _paste(sheet: Image.Image, image: Image.Image, place: tuple[int, int]) -> None:
    """Put an image, as large as it fits, in the middle of its tile."""
    tile = Image.new("RGB", (TILE, TILE), _FAINT)
    small = ImageOps.contain(image, (TILE, TILE))
    tile.paste(small, ((TILE - small.width) // 2, (TILE - small.height) // 2))
    sheet.paste(tile, place)


def _write(draw: ImageDraw.ImageDraw, place: tuple[int, int], text: str, room: int) -> None:
    """Write as much of a line as there is room for, without accents; what the font lacks else is a question mark."""
    font = ImageFont.load_default()
    letters = unicodedata.normalize("NFKD", text.replace("ß", "ss"))
    shown = "".join(sign for sign in letters if not unicodedata.combining(sign)).encode("ascii", "replace").decode()
    while shown and draw.textlength(shown, font) > room:
        shown = shown[:-1]
    draw.text(place, shown, fill=_INK, font=font)
