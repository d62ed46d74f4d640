# SPDX-License-Identifier: Apache-2.0
"""From the numbers of a figure to an image: :func:`draw` draws it, :func:`render` returns its bytes. Needs matplotlib.

It uses no state of ``pyplot``, and the same numbers result in the same bytes.
"""

from collections.abc import Callable, Mapping
from typing import Any

from matplotlib.figure import Figure

from fdg_plugins.lab.analysis.figures.drawing.bars import draw_bars
from fdg_plugins.lab.analysis.figures.drawing.canvas import COLUMN_INCHES, FORMATS, render
from fdg_plugins.lab.analysis.figures.drawing.counts import draw_counts
from fdg_plugins.lab.analysis.figures.drawing.lines import draw_chart
from fdg_plugins.lab.analysis.figures.drawing.masks import draw_overlays
from fdg_plugins.lab.analysis.figures.picture import Bars, Chart, Counts, Overlays, Picture

__all__ = ["COLUMN_INCHES", "FORMATS", "draw", "render"]

_DRAWINGS: Mapping[type[Picture], Callable[[Any, float], Figure]] = {
    Chart: draw_chart,
    Bars: draw_bars,
    Counts: draw_counts,
    Overlays: draw_overlays,
}


def draw(picture: Picture, width: float = COLUMN_INCHES) -> Figure:
    """Return the figure in a width in inches, by default that of a paper's column.

    Raises ``TypeError`` for a kind of picture that has no drawing.
    """
    if type(picture) not in _DRAWINGS:
        raise TypeError(f"there is no drawing for a {type(picture).__name__}.")
    return _DRAWINGS[type(picture)](picture, width)
