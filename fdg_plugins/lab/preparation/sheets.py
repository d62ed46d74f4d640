# SPDX-License-Identifier: Apache-2.0
"""A contact sheet: rows of images on one page, and images under their masks, for ``fdg data check --sheets``.

The colours of the classes are told apart with every kind of colour vision.
Reference: Okabe, Ito, "Color Universal Design", 2008.
"""

import io
import warnings
from collections.abc import Mapping, Sequence

import numpy as np

from fdg_plugins.errors import load_extra

COLOURS = ((86, 180, 233), (230, 159, 0), (0, 158, 115), (204, 121, 167), (240, 228, 66), (213, 94, 0), (0, 114, 178))
"""The colours of the classes after the first, which is not coloured; further classes begin again."""

STRENGTH = 0.75
LARGEST_VALUE = 255

Tile = tuple[np.ndarray, str]
"""An image, uint8 ``[H, W, 3]``, with its caption."""


def draw_sheet(rows: Mapping[str, Sequence[Tile]], title: str, side: float = 1.4, key: Sequence[str] = ()) -> bytes:
    """Return a PNG with a row of tiles, ``side`` inches large, for each name; ``key``: the classes to explain."""
    patches = load_extra("matplotlib.patches", "--sheets", "lab")
    columns = max(map(len, rows.values()))
    sides = (columns * side + 1, len(rows) * (side + 0.3) + 0.6)
    figure = load_extra("matplotlib.figure", "--sheets", "lab").Figure(sides, layout="constrained")
    figure.suptitle(title)
    grid = figure.subplots(len(rows), columns, squeeze=False)
    for place in grid.flat:
        place.axis("off")
    for axes, (name, tiles) in zip(grid, rows.items(), strict=True):
        axes[0].text(-0.05, 0.5, name, transform=axes[0].transAxes, ha="right", va="center")
        for place, (pixels, caption) in zip(axes, tiles, strict=False):
            place.imshow(pixels)
            place.set_title(caption, fontsize="small")
    if classes := key[1:]:
        colours = _colours(len(classes)) / LARGEST_VALUE
        handles = [patches.Patch(color=colour, label=name) for colour, name in zip(colours, classes, strict=True)]
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
    opacity = STRENGTH * (labels > 0)[..., None]
    covered = pixels + opacity * (_colours(int(labels.max()))[labels - 1] - pixels)
    return [(np.rint(pixels).astype(np.uint8), caption), (np.rint(covered).astype(np.uint8), "")]


def _colours(count: int) -> np.ndarray:
    """Return the colours of ``count`` classes after the first, at least one, ``[count, 3]``."""
    return np.array([COLOURS[number % len(COLOURS)] for number in range(max(1, count))], dtype=np.float64)
