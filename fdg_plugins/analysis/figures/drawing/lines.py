# SPDX-License-Identifier: Apache-2.0
"""Charts of lines: panels of axes, solid lines with markers and a standard deviation, dotted ones without, legends."""

from typing import Literal

from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FixedFormatter, FixedLocator, MaxNLocator, NullLocator, PercentFormatter

from fdg_plugins.analysis.figures.drawing.canvas import mark_axes, new_figure, style
from fdg_plugins.analysis.figures.picture import Chart, Line, Panel, Scale
from fdg_plugins.analysis.figures.style import GREY

PANEL_WIDTH, PANEL_HEIGHT = 3.2, 2.6
MARKERS_PER_LINE = 8
MARKER_SIZE, LINE_WIDTH = 4.5, 1.4
Stroke = Literal["-", ":", "--"]
STROKES: tuple[Stroke, Stroke] = ("-", ":")
LEVEL: Stroke = "--"


def draw_chart(chart: Chart) -> Figure:
    """Return the figure: panels that share their axes, in rows of equal length if possible."""
    rows = -(-len(chart.panels) // chart.columns)
    columns = -(-len(chart.panels) // rows)
    with style():
        figure = new_figure(chart, PANEL_WIDTH * columns, PANEL_HEIGHT * rows, _legends(chart))
        one_quantity = len({panel.y_label for panel in chart.panels}) == 1
        grid = figure.subplots(rows, columns, sharex=True, sharey="all" if one_quantity else "row", squeeze=False)
        for place, axes in enumerate(grid.flat):
            if place >= len(chart.panels):
                axes.remove()
                continue
            is_lowest = place + columns >= len(chart.panels)
            _draw_panel(axes, chart, chart.panels[place], is_leftmost=place % columns == 0, is_lowest=is_lowest)
    return figure


def _draw_panel(axes: Axes, chart: Chart, panel: Panel, *, is_leftmost: bool, is_lowest: bool) -> None:
    for place, line in enumerate(panel.lines):
        _draw_line(axes, chart, line, place)
    _mark_panel(axes, chart, panel, is_leftmost=is_leftmost, is_lowest=is_lowest)
    _set_scale(axes, chart)
    if panel.is_fraction:
        axes.yaxis.set_major_formatter(PercentFormatter(xmax=1.0, symbol=" %"))


def _mark_panel(axes: Axes, chart: Chart, panel: Panel, *, is_leftmost: bool, is_lowest: bool) -> None:
    """Set the title, and the labels that the panels of a row or column share."""
    mark_axes(axes, panel.title, chart.x_label if is_lowest else "", panel.y_label if is_leftmost else "")
    if is_lowest:
        axes.tick_params(labelbottom=True)  # for the lowest panel of a column, even in an upper row


def _draw_line(axes: Axes, chart: Chart, line: Line, place: int) -> None:
    if line.quantity in chart.quantities[1:]:
        _draw_plain(axes, line, STROKES[1])
    elif line.is_constant:
        _draw_plain(axes, line, LEVEL)
        _draw_band(axes, line)
    else:
        _draw_marked(axes, line, place)
        _draw_band(axes, line) if chart.scale is Scale.ROUNDS else _draw_bars(axes, line)


def _draw_plain(axes: Axes, line: Line, stroke: Stroke) -> None:
    axes.plot(*_means(line), linestyle=stroke, color=line.look.colour, linewidth=LINE_WIDTH, label=line.label)


def _draw_marked(axes: Axes, line: Line, place: int) -> None:
    # The lines of a panel have their markers at different rounds, so none hides another's.
    every = max(1, len(line.points) // MARKERS_PER_LINE)
    markers = (place % every, every)
    axes.plot(
        *_means(line),
        linestyle=STROKES[0],
        linewidth=LINE_WIDTH,
        color=line.look.colour,
        marker=line.look.marker,
        markersize=MARKER_SIZE,
        markevery=markers,
        label=line.label,
    )


def _draw_band(axes: Axes, line: Line) -> None:
    x, mean = _means(line)
    spread = _spreads(line)
    if any(spread):
        low = [value - deviation for value, deviation in zip(mean, spread, strict=True)]
        high = [value + deviation for value, deviation in zip(mean, spread, strict=True)]
        axes.fill_between(x, low, high, color=line.look.colour, alpha=0.15, linewidth=0)


def _draw_bars(axes: Axes, line: Line) -> None:
    x, mean = _means(line)
    spread = _spreads(line)
    if any(spread):
        axes.errorbar(x, mean, yerr=spread, fmt="none", ecolor=line.look.colour, elinewidth=1.0, capsize=3)


def _means(line: Line) -> tuple[list[float], list[float]]:
    return list(line.points), [point.mean for point in line.points.values()]


def _spreads(line: Line) -> list[float]:
    return [point.std or 0.0 for point in line.points.values()]


def _set_scale(axes: Axes, chart: Chart) -> None:
    if chart.scale is Scale.ROUNDS:
        axes.xaxis.set_major_locator(MaxNLocator(integer=True, steps=[1, 2, 5, 10]))
        return
    places = sorted({x for panel in chart.panels for line in panel.lines for x in line.points})
    if chart.scale is Scale.LOG:
        axes.set_xscale("log")
    # Ticks are at the values that were tried.
    labels = [chart.categories[int(place)] if chart.categories else f"{place:g}" for place in places]
    axes.xaxis.set_major_locator(FixedLocator(places))
    axes.xaxis.set_major_formatter(FixedFormatter(labels))
    axes.xaxis.set_minor_locator(NullLocator())


def _legends(chart: Chart) -> list[list[Artist]]:
    """Return the handles of two legends: of the compared lines, and of the quantities if there are two."""
    lines = [line for panel in chart.panels for line in panel.lines]
    first = {line.label: line for line in reversed(lines)}
    order = chart.legend or tuple(dict.fromkeys(line.label for line in lines))
    compared = [_handle(first[label]) for label in order]
    quantities = [
        Line2D([], [], color=GREY, linestyle=stroke, linewidth=LINE_WIDTH, label=quantity)
        for stroke, quantity in zip(STROKES, chart.quantities, strict=False)
    ]
    return [list(compared), list(quantities) if len(quantities) > 1 else []]


def _handle(line: Line) -> Line2D:
    return Line2D(
        [],
        [],
        linestyle=LEVEL if line.is_constant else STROKES[0],
        linewidth=LINE_WIDTH,
        color=line.look.colour,
        marker="" if line.is_constant else line.look.marker,
        markersize=MARKER_SIZE,
        label=line.label,
    )
