# SPDX-License-Identifier: Apache-2.0
"""A surface from above: contours of the loss and of the error, and the models marked in the plane."""

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import LogNorm, Normalize
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patheffects import withStroke
from matplotlib.ticker import FuncFormatter

from fdg_plugins.analysis.figures.drawing.canvas import mark_axes, new_figure, style
from fdg_plugins.analysis.figures.picture import PlacedModel, Surface

WIDTH, PANEL_WIDTH, AROUND = 9.0, 3.2, 0.8
MIN_RATIO, MAX_RATIO = 0.4, 1.5
LEVELS = 12
LOG_FROM = 10.0  # above this ratio of the largest to the smallest loss, levels are evenly spaced in its logarithm
COLOURS = "viridis"  # monotonic in brightness, so a greyscale print keeps the order
DISTANCE = "distance in the plane (L2 of parameters)"


def draw_surface(surface: Surface) -> Figure:
    """Return the figure: loss on the left, error on the right, with equal units in x and y."""
    ratio = (surface.y[-1] - surface.y[0]) / (surface.x[-1] - surface.x[0])
    height = PANEL_WIDTH * min(max(ratio, MIN_RATIO), MAX_RATIO) + AROUND
    with style():
        figure = new_figure(surface, WIDTH, height, [[_marker(model, label=model.label) for model in surface.models]])
        left, right = figure.subplots(1, 2, sharex=True, sharey=True)
        loss = np.ma.masked_invalid(np.array(surface.loss))
        error = np.ma.masked_invalid(np.array(surface.error))
        _draw(left, surface, loss, "loss (cross entropy)", "{:.3g}", 1.0)
        _draw(right, surface, error, "error", "{:.0f} %", 100.0)
        left.set_ylabel(DISTANCE)
    return figure


def _draw(axes: Axes, surface: Surface, values: np.ma.MaskedArray, title: str, form: str, factor: float) -> None:
    def text(value: float, place: int | None = None) -> str:
        return form.format(factor * value)

    levels, norm = levels_of(values)
    filled = axes.contourf(surface.x, surface.y, values, levels=levels, norm=norm, cmap=COLOURS)
    lines = axes.contour(surface.x, surface.y, values, levels=levels, colors="white", linewidths=0.5)
    for label in axes.clabel(lines, levels[1:-1:2].tolist(), fontsize=7, fmt=text, colors="black"):
        label.set_path_effects([withStroke(linewidth=1.5, foreground="white")])
    for model in surface.models:
        axes.add_line(_marker(model, x=model.x, y=model.y))
    axes.set_aspect("equal")
    axes.grid(visible=False)
    mark_axes(axes, title, DISTANCE)
    axes.figure.colorbar(filled, ax=axes, ticks=levels[::2].tolist(), format=FuncFormatter(text))


def levels_of(values: np.ma.MaskedArray) -> tuple[np.ndarray, Normalize]:
    """Return the rising levels of the contours and their colour scale, both logarithmic if they span a wide range."""
    low, high = _span(values.compressed())
    if low > 0 and high / low > LOG_FROM:
        return np.geomspace(low, high, LEVELS), LogNorm(low, high)
    return np.linspace(low, high, LEVELS), Normalize(low, high)


def _span(values: np.ndarray) -> tuple[float, float]:
    """Return the smallest and the largest value; the latter is raised if it is not above the former."""
    low, high = (float(values.min()), float(values.max())) if len(values) else (0.0, 1.0)
    return (low, high) if high > low else (low, low + max(abs(low), 1.0) * 1e-6)


def _marker(model: PlacedModel, *, x: float | None = None, y: float | None = None, label: str = "") -> Line2D:
    return Line2D(
        [] if x is None else [x],
        [] if y is None else [y],
        linestyle="",
        marker=model.look.marker,
        color=model.look.colour,
        markeredgecolor="white",
        markeredgewidth=1.0,
        markersize=14 if model.look.marker == "*" else 9,
        zorder=10,  # above the labels of the contours
        label=label,
    )
