# SPDX-License-Identifier: Apache-2.0
"""From the numbers of a figure to an image: :func:`draw` draws it, :func:`render` returns its bytes. Needs matplotlib.

It uses no state of ``pyplot``, and the same numbers result in the same bytes.
"""

from matplotlib.figure import Figure

from fdg_plugins.analysis.figures.drawing.bars import draw_bars
from fdg_plugins.analysis.figures.drawing.canvas import FORMATS, render
from fdg_plugins.analysis.figures.drawing.contours import draw_surface
from fdg_plugins.analysis.figures.drawing.lines import draw_chart
from fdg_plugins.analysis.figures.drawing.masks import draw_overlays
from fdg_plugins.analysis.figures.drawing.points import draw_scatter
from fdg_plugins.analysis.figures.picture import Bars, Chart, Overlays, Picture, Scatter, Surface

__all__ = ["FORMATS", "draw", "render"]


def draw(picture: Picture) -> Figure:
    """Return the figure; raise ``TypeError`` for a kind of picture that has no drawing."""
    match picture:
        case Chart():
            return draw_chart(picture)
        case Bars():
            return draw_bars(picture)
        case Surface():
            return draw_surface(picture)
        case Scatter():
            return draw_scatter(picture)
        case Overlays():
            return draw_overlays(picture)
    raise TypeError(f"there is no drawing for a {type(picture).__name__}.")
