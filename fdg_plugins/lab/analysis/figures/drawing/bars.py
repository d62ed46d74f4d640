# SPDX-License-Identifier: Apache-2.0
"""Bars of medians with their quartiles, one panel per part of a round, each with its own axis from zero."""

from collections.abc import Mapping, Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from fdg_plugins.lab.analysis.figures.drawing.canvas import SMALL_SIZE, mark_axes, new_figure, style
from fdg_plugins.lab.analysis.figures.drawing.words import inches_of, wrapped
from fdg_plugins.lab.analysis.figures.picture import Bar, Bars

BAR_WIDTH = 1.3  # inches of the narrowest panel
BAR_HEIGHT, AROUND = 0.15, 0.45
LINE_INCHES = 0.125
MOST_NAMED = 0.45  # of the width, for the labels of the bars


def draw_bars(bars: Bars, width: float) -> Figure:
    """Return the figure: horizontal bars in the given order, from the top, with the median next to each.

    The panels are side by side if there is room, else one above the other.
    """
    names = dict.fromkeys(bar.label for panel in bars.panels.values() for bar in panel)
    labels = {name: wrapped(name, MOST_NAMED * width, SMALL_SIZE) for name in names}
    named = max(inches_of(line, SMALL_SIZE) for lines in labels.values() for line in lines)
    is_wide = width - named >= BAR_WIDTH * len(bars.panels)
    height = BAR_HEIGHT + LINE_INCHES * (max(map(len, labels.values())) - 1)
    rows, columns = (1, len(bars.panels)) if is_wide else (len(bars.panels), 1)
    with style():
        figure = new_figure(bars, width, rows * (height * len(labels) + AROUND))
        grid = figure.subplots(rows, columns, sharey=True, squeeze=False)
        for axes, (title, panel) in zip(grid.flat, bars.panels.items(), strict=True):
            _draw_panel(axes, panel, labels)
            mark_axes(axes, title, bars.x_label)
    return figure


def _draw_panel(axes: Axes, panel: Sequence[Bar], labels: Mapping[str, Sequence[str]]) -> None:
    places = [list(labels).index(bar.label) for bar in panel]
    medians = [bar.median for bar in panel]
    below = [bar.median - bar.lower for bar in panel]
    above = [bar.upper - bar.median for bar in panel]
    axes.barh(
        places,
        medians,
        height=0.7,
        color=[bar.look.colour for bar in panel],
        alpha=0.6,
    )
    axes.errorbar(medians, places, xerr=[below, above], fmt="none", ecolor="black", elinewidth=0.7, capsize=2)
    for place, bar in zip(places, panel, strict=True):
        text = f" {bar.median:#.3g}".rstrip(".") + " s"
        axes.annotate(text, (bar.upper, place), va="center", ha="left", size=SMALL_SIZE, annotation_clip=False)
    axes.set_yticks(range(len(labels)), ["\n".join(lines) for lines in labels.values()])
    axes.set_ylim(len(labels) - 0.4, -0.6)
    axes.set_xlim(0, 1.35 * max((bar.upper for bar in panel), default=1.0) or 1.0)
    axes.grid(visible=False, axis="y")
