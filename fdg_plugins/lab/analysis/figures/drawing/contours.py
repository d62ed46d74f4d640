# SPDX-License-Identifier: Apache-2.0
"""A surface from above: contours of the loss and of the error, and the models marked in the plane."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.colors import BoundaryNorm
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patheffects import withStroke
from matplotlib.ticker import FixedLocator, FuncFormatter, MaxNLocator

from fdg_plugins.lab.analysis.figures.drawing.canvas import SMALL_SIZE, mark_axes, new_figure, style
from fdg_plugins.lab.analysis.figures.picture import PlacedModel, Surface

SIDE_BY_SIDE = 5.0  # inches, the smallest width of two panels in a row
AROUND = 0.4
BAR_INCHES = 0.9  # of a colour bar and all labels beside a panel
MIN_RATIO, MAX_RATIO = 0.4, 1.0
LEVELS = 8
EDGE = 0.04  # of the plane's sides, without labels
CROWDED = 0.4  # largest share of the values that may be between two evenly spaced levels
FLAT = 1e-4  # largest difference of values that are called equal, as a fraction of the largest
COLOURS = "viridis"  # monotonic in brightness, so a greyscale print keeps the order
DISTANCE = "distance in the plane (L2)"


class Levels(NamedTuple):
    """The rising levels of contours, in the unit of their labels, and the decimals that tell them apart."""

    values: tuple[float, ...]
    decimals: int


def draw_surface(surface: Surface, width: float) -> Figure:
    """Return the figure: loss and error, side by side if there is room, with equal units in x and y."""
    ratio = (surface.y[-1] - surface.y[0]) / (surface.x[-1] - surface.x[0])
    rows, columns = (1, 2) if width >= SIDE_BY_SIDE else (2, 1)
    height = (width / columns - BAR_INCHES) * min(max(ratio, MIN_RATIO), MAX_RATIO) + AROUND
    legend = [_marker(model, label=model.label) for model in surface.models]
    with style():
        figure = new_figure(surface, width, rows * height, [legend])
        loss, error = figure.subplots(rows, columns, sharex=True, sharey=True, squeeze=False).flat
        _draw(loss, surface, np.array(surface.loss), surface.loss_words, "")
        _draw(error, surface, 100.0 * np.array(surface.error), "error", " %")
        for axes in (loss, error):
            axes.set_xlabel(DISTANCE if axes is error or columns == 2 else "")
            axes.set_ylabel(DISTANCE if axes is loss or rows == 2 else "")
    return figure


def _draw(axes: Axes, surface: Surface, values: np.ndarray, title: str, unit: str) -> None:
    known = np.ma.masked_invalid(values)
    levels = levels_of(known.compressed())
    if len(levels.values) > 1:
        _draw_contours(axes, surface, known, levels, unit)
    else:
        title = f"{title}: {levels.values[0]:.{levels.decimals}f}{unit} throughout"
    for model in surface.models:
        axes.add_line(_marker(model, x=model.x, y=model.y))
    axes.set_aspect("equal")
    axes.set_xlim(surface.x[0], surface.x[-1])
    axes.set_ylim(surface.y[0], surface.y[-1])
    axes.grid(visible=False)
    mark_axes(axes, title)


def _draw_contours(axes: Axes, surface: Surface, values: np.ma.MaskedArray, levels: Levels, unit: str) -> None:
    def text(value: float, place: int | None = None) -> str:
        return f"{value:.{levels.decimals}f}"

    norm = BoundaryNorm(levels.values, colormaps[COLOURS].N)
    filled = axes.contourf(surface.x, surface.y, values, levels=levels.values, norm=norm, cmap=COLOURS)
    lines = axes.contour(surface.x, surface.y, values, levels=levels.values[1:-1], colors="white", linewidths=0.4)
    for label in axes.clabel(lines, list(levels.values[1:-1:2]), fontsize=SMALL_SIZE - 0.5, fmt=text, colors="black"):
        label.set_path_effects([withStroke(linewidth=1.2, foreground="white")])
        if not _is_inside(surface, *label.get_position()):
            label.remove()  # the edge would cut it; the colour bar has the value too
    bar = axes.figure.colorbar(filled, ax=axes, spacing="uniform", pad=0.02, aspect=16)
    bar.ax.yaxis.set_major_locator(FixedLocator(levels.values))
    bar.ax.yaxis.set_major_formatter(FuncFormatter(lambda value, place: text(value) + unit))


def _is_inside(surface: Surface, x: float, y: float) -> bool:
    """Return whether a place is at some distance from the edges of the plane."""
    shares = [(at - side[0]) / (side[-1] - side[0]) for at, side in ((x, surface.x), (y, surface.y))]
    return all(EDGE < share < 1.0 - EDGE for share in shares)


def levels_of(values: np.ndarray) -> Levels:
    """Return the levels of contours of finite ``values``, from below all of them to above: one if they are equal.

    The levels are evenly spaced round numbers. If many values would lie between two of them, they are quantiles
    instead, so that contours are where the models are.
    """
    if not len(values):
        return Levels((0.0,), 0)
    low, high = float(values.min()), float(values.max())
    if high - low <= FLAT * max(abs(low), abs(high)):
        return Levels((low,), 3)
    even = MaxNLocator(LEVELS, steps=[1, 2, 2.5, 5, 10]).tick_values(low, high)
    counts, _ = np.histogram(values, even)
    if counts.max() > CROWDED * len(values):
        return _rounded(np.quantile(values, np.linspace(0.0, 1.0, LEVELS)))
    return _rounded(even)


def _rounded(levels: Sequence[float] | np.ndarray) -> Levels:
    """Return the levels with as few decimals as tell neighbours apart; the outermost still enclose all values."""
    levels = np.unique(levels)
    gap = float(np.median(np.diff(levels)))
    decimals = max(0, 1 - int(np.floor(np.log10(gap))) - 1)
    step = 10.0**-decimals
    inner = {round(float(level), decimals) for level in levels[1:-1]}
    lowest = round(float(np.floor(levels[0] / step) * step), decimals)
    highest = round(float(np.ceil(levels[-1] / step) * step), decimals)
    return Levels(tuple(sorted({lowest, highest, *inner})), decimals)


def _marker(model: PlacedModel, *, x: float | None = None, y: float | None = None, label: str = "") -> Line2D:
    return Line2D(
        [] if x is None else [x],
        [] if y is None else [y],
        linestyle="",
        marker=model.look.marker,
        color=model.look.colour,
        markeredgecolor="white",
        markeredgewidth=0.7,
        markersize=10 if model.look.marker == "*" else 6.5,
        zorder=10,  # above the labels of the contours
        label=label,
    )
