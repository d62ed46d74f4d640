# SPDX-License-Identifier: Apache-2.0
"""A contact sheet: rows of images on one page, and images under their masks, for ``fdg data check --sheets``.

The colours of the classes are told apart with every kind of colour vision.
Reference: Okabe, Ito, "Color Universal Design", 2008.
"""

import io
import warnings
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from fdg_plugins.errors import load_extra

COLOURS = ((86, 180, 233), (230, 159, 0), (0, 158, 115), (204, 121, 167), (240, 228, 66), (213, 94, 0), (0, 114, 178))
"""The colours of the classes after the first, which is not coloured; further classes begin again."""

STRENGTH = 0.75
LARGEST_VALUE = 255


class Tile(NamedTuple):
    """An image, uint8 ``[H, W, 3]``, with its caption."""

    pixels: np.ndarray
    caption: str = ""


def draw_sheet(rows: Mapping[str, Sequence[Tile]], title: str, side: float = 1.4, key: Sequence[str] = ()) -> bytes:
    """Return a PNG with a row of tiles, ``side`` inches large, for each name; ``key``: the classes to explain."""
    patches = load_extra("matplotlib.patches", "--sheets", "lab")
    columns = max(map(len, rows.values()))
    figure = load_extra("matplotlib.figure", "--sheets", "lab").Figure(
        (columns * side + 1, len(rows) * (side + 0.3) + 0.6), layout="constrained"
    )
    figure.suptitle(title)
    for axes, (name, tiles) in zip(figure.subplots(len(rows), columns, squeeze=False), rows.items(), strict=True):
        axes[0].text(-0.05, 0.5, name, transform=axes[0].transAxes, ha="right", va="center")
        for place, tile in zip(axes, [*tiles, *[None] * (columns - len(tiles))], strict=True):
            place.axis("off")
            if tile is not None:
                place.imshow(tile.pixels)
                place.set_title(tile.caption, fontsize="small")
    if len(key) > 1:
        colours = [f"#{red:02x}{green:02x}{blue:02x}" for red, green, blue in COLOURS]
        handles = [
            patches.Patch(color=colours[number % len(colours)], label=name) for number, name in enumerate(key[1:])
        ]
        figure.legend(handles=handles, loc="outside lower center", ncols=4)
    stream = io.BytesIO()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of letters that the font lacks
        figure.savefig(stream, format="png", dpi=120)
    return stream.getvalue()


def mask_tiles(image: np.ndarray, labels: np.ndarray, caption: str) -> list[Tile]:
    """Return an image ``[C, *S]``, and the same with the classes of ``labels`` ``[*S]`` in translucent colours.

    Of a volume in the orientation RAS, its middle slice is shown from below, with the front at the top. Three channels
    are colours, else the first one is grey; values that are not whole numbers in [0, 255] are scaled to it.
    """
    if labels.ndim > 2:
        middle = labels.shape[-1] // 2
        image, labels = (np.rot90(values[..., middle], axes=(-2, -1)) for values in (image, labels))
    image = image if len(image) == 3 else image[:1]
    low, high = float(image.min()), float(image.max())
    if low < 0 or high > LARGEST_VALUE or (image != np.rint(image)).any():
        image = (image - low) * (LARGEST_VALUE / (high - low) if high > low else 0.0)  # a blank one is black
    pixels = np.broadcast_to(np.moveaxis(image, 0, -1), (*labels.shape, 3)).astype(np.float64)
    colours = np.array(
        [COLOURS[(label - 1) % len(COLOURS)] for label in range(int(labels.max()) + 1)], dtype=np.float64
    )
    opacity = STRENGTH * (labels > 0)[..., None]
    covered = pixels + opacity * (colours[labels] - pixels)
    return [Tile(np.rint(pixels).astype(np.uint8), caption), Tile(np.rint(covered).astype(np.uint8))]
