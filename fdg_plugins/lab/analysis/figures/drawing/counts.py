# SPDX-License-Identifier: Apache-2.0
"""Numbers of images by site and class, as the darkness of cells; none at all is white."""

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import PowerNorm
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator

from fdg_plugins.lab.analysis.figures.drawing.canvas import SMALL_SIZE, mark_axes, new_figure, style
from fdg_plugins.lab.analysis.figures.drawing.words import POINTS_PER_INCH
from fdg_plugins.lab.analysis.figures.picture import Counts

COLOURS = "cividis_r"  # monotonic in brightness, and read by colour-blind readers
ROW_INCHES, MOST_INCHES, AROUND = 0.13, 4.0, 0.5
MOST_TICKS, STEPS = 10, [scale * unit for scale in (1, 10, 100, 1000) for unit in (1, 2, 5)]
EMPHASIS = 0.5  # the exponent of the colour scale: small numbers are seen beside large ones


def draw_counts(counts: Counts, width: float) -> Figure:
    """Return the figure: sites from left to right, classes from the top down, and the scale."""
    values = np.array(counts.counts).T
    most = max(2, int(values.max()))
    height = min(MOST_INCHES, ROW_INCHES * len(counts.classes)) + AROUND
    with style():
        figure = new_figure(counts, width, height)
        axes = figure.subplots()
        shown = axes.imshow(
            np.ma.masked_equal(values, 0),
            aspect="auto",
            interpolation="none",
            cmap=COLOURS,
            norm=PowerNorm(EMPHASIS, vmin=1, vmax=most),
        )
        step = next(step for step in STEPS if len(counts.sites) <= MOST_TICKS * step)
        axes.xaxis.set_major_locator(FixedLocator(list(range(step - 1, len(counts.sites), step))))
        axes.xaxis.set_major_formatter(lambda place, _: f"{place + 1:.0f}")
        _name_classes(axes, counts, height)
        axes.grid(visible=False)
        mark_axes(axes, "", "site", "class")
        _name_domains(axes, counts.domains)
        bar = figure.colorbar(shown, ax=axes, pad=0.02, aspect=16, label="images")
        bar.ax.yaxis.set_major_locator(FixedLocator(_numbers_beside_the_bar(most)))
    return figure


def _numbers_beside_the_bar(most: int) -> list[int]:
    """Return numbers about equally far apart on the scale: 1, 20, 70, 200, 296 up to 296.

    All but the largest are rounded to a digit and zeros; rounded too, it might lie outside the scale, and be left out.
    """
    numbers = (1 + (most - 1) * part ** (1 / EMPHASIS) for part in (0, 0.25, 0.5, 0.75))
    return sorted({*(int(float(f"{number:.0e}")) for number in numbers), most})


def _name_domains(axes: Axes, domains: tuple[str, ...]) -> None:
    """Name the domains above their sites, with a line between each two."""
    names = dict.fromkeys(domains)
    centres = [domains.index(name) + (domains.count(name) - 1) / 2 for name in names]
    above = axes.secondary_xaxis("top")
    above.set_xticks(centres, list(names), rotation=0 if len(names) < 4 else 20)
    above.tick_params(length=0)
    for name in [*names][1:]:
        axes.axvline(domains.index(name) - 0.5, color="black", linewidth=0.8)


def _name_classes(axes: Axes, counts: Counts, height: float) -> None:
    """Name as many classes as there is room for."""
    fitting = max(1, int((height - AROUND) / (1.2 * SMALL_SIZE / POINTS_PER_INCH)))
    step = -(-len(counts.classes) // fitting)
    places = range(0, len(counts.classes), step)
    axes.yaxis.set_major_locator(FixedLocator(list(places)))
    axes.set_yticklabels([counts.classes[place] for place in places])
