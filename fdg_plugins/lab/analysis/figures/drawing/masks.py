# SPDX-License-Identifier: Apache-2.0
"""Images side by side: as they are, and below, dark and grey, with the outcomes of a segmentation laid over."""

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.patches import Patch

from fdg_plugins.lab.analysis.figures.drawing.canvas import TEXT_SIZE, new_figure, style
from fdg_plugins.lab.analysis.figures.drawing.words import wrapped
from fdg_plugins.lab.analysis.figures.picture import Outcome, Overlays, ShownImage
from fdg_plugins.lab.analysis.figures.style import GREY, SKY_BLUE, VERMILLION, WHITE

TITLE_INCHES, GAP = 0.3, 0.02
DIMMED = 0.4  # the brightest grey below the outcomes
LUMINANCE = (0.2126, 0.7152, 0.0722)

# White, sky blue and vermillion differ in brightness too, and from every grey up to DIMMED, for all colour vision.
OUTCOMES = {
    Outcome.TRUE_POSITIVE: ("true positive", WHITE),
    Outcome.FALSE_POSITIVE: ("false positive", VERMILLION),
    Outcome.FALSE_NEGATIVE: ("missed", SKY_BLUE),
}


def draw_overlays(overlays: Overlays, width: float) -> Figure:
    """Return the figure: a column for each image, the image above, the outcomes below."""
    shown = overlays.shown
    panel = width / max(len(shown), 2)
    legend = [Patch(facecolor=colour, edgecolor=GREY, linewidth=0.6, label=name) for name, colour in OUTCOMES.values()]
    with style():
        figure = new_figure(overlays, width, 2 * panel * _tallest(shown) + TITLE_INCHES, [legend])
        _tighten(figure)
        for (above, below), image in zip(figure.subplots(2, len(shown), squeeze=False).T, shown, strict=True):
            _draw(above, image.pixels, image.ratio)
            _draw(below, laid_over(image), image.ratio)
            above.set_title("\n".join(wrapped(image.label, panel - 4 * GAP, TEXT_SIZE)))
    return figure


def laid_over(image: ShownImage) -> np.ndarray:
    """Return the image in dark grey with the outcomes in their colours, ``[H, W, 3]`` in [0, 1]."""
    grey = DIMMED * (image.pixels / 255.0) @ np.array(LUMINANCE)
    painted = np.repeat(grey[..., np.newaxis], 3, axis=2)
    for outcome, (_, colour) in OUTCOMES.items():
        painted[image.outcomes == outcome] = to_rgb(colour)
    return painted


def _tallest(shown: Sequence[ShownImage]) -> float:
    """Return the largest ratio of height to width."""
    return max(image.ratio * image.pixels.shape[0] / image.pixels.shape[1] for image in shown)


def _tighten(figure: Figure) -> None:
    engine = figure.get_layout_engine()
    assert isinstance(engine, ConstrainedLayoutEngine)
    engine.set(w_pad=GAP, h_pad=GAP, wspace=0.0, hspace=0.0)


def _draw(axes: Axes, pixels: np.ndarray, ratio: float) -> None:
    axes.imshow(pixels, aspect=ratio)
    axes.set_axis_off()
