# SPDX-License-Identifier: Apache-2.0
"""Charts of lines: panels of axes, solid lines with markers and a standard deviation, dotted ones without, legends."""

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Literal

import numpy as np
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import (
    FixedFormatter,
    FixedLocator,
    FuncFormatter,
    MaxNLocator,
    NullLocator,
)

from fdg_plugins.lab.analysis.estimates import Estimate
from fdg_plugins.lab.analysis.figures.drawing.canvas import TEXT_SIZE, mark_axes, new_figure, style
from fdg_plugins.lab.analysis.figures.drawing.words import inches_of, wrapped
from fdg_plugins.lab.analysis.figures.picture import MANY_SITES, Chart, Line, Panel, Scale
from fdg_plugins.lab.analysis.figures.style import GREY

PANEL_WIDTH, PANEL_HEIGHT = 1.6, 1.4  # inches; the width is the smallest
Y_INCHES = 0.45  # of labels and ticks beside a panel
MARKERS_PER_LINE = 8
MARKER_SIZE, LINE_WIDTH, THIN = 3.0, 1.0, 0.7
TICKS = 6
LABEL_GAP, LINE_HEIGHT = 0.05, 1.2  # inches between labels; of a line of text, in its size
Stroke = Literal["-", ":", "--", "-."] | tuple[float, tuple[float, ...]]
STROKES: tuple[Stroke, Stroke] = ("-", ":")
# Level lines have no markers: those of one colour differ by their dashes.
LEVELS: tuple[Stroke, ...] = ("--", (0, (1.5, 1)), (0, (8, 2, 1, 2, 1, 2)), (0, (12, 4)))
CHANCE: Stroke = "-."


def draw_chart(chart: Chart, width: float) -> Figure:
    """Return the figure: panels that share their axes, in rows of equal length if possible."""
    fitting = max(1, int(width / PANEL_WIDTH))
    if chart.is_matrix and chart.columns > fitting:
        chart = _turned(chart)
    rows = -(-len(chart.panels) // min(chart.columns, fitting))
    columns = -(-len(chart.panels) // rows)
    with style():
        figure = new_figure(chart, width, PANEL_HEIGHT * rows, _legends(chart))
        grid = figure.subplots(rows, columns, sharex=True, sharey=_shared(chart, columns), squeeze=False)
        for place, axes in enumerate(grid.flat):
            if place < len(chart.panels):
                _draw_panel(axes, chart, chart.panels[place])
                _mark_panel(axes, chart, place, columns, width / columns - Y_INCHES)
            else:
                axes.remove()
        _set_limits(figure, chart)
    return figure


def _turned(chart: Chart) -> Chart:
    """Return a matrix of panels with its rows as columns."""
    count = len(chart.panels) // chart.columns
    panels = [chart.panels[row * chart.columns + column] for column in range(chart.columns) for row in range(count)]
    return replace(chart, panels=tuple(panels), columns=count)


def _shared(chart: Chart, columns: int) -> Literal["all", "row", "col"]:
    """Return which panels share their ``y`` axis: those of one quantity."""
    if len({panel.y_label for panel in chart.panels}) == 1:
        return "all"
    return "row" if len({panel.y_label for panel in chart.panels[:columns]}) == 1 else "col"


def _draw_panel(axes: Axes, chart: Chart, panel: Panel) -> None:
    if crowds := [lines for lines in panel.alike().values() if len(lines) > MANY_SITES]:
        panel = _summarised(panel)
    for lines in crowds:
        _draw_spread(axes, chart, lines)
    for place in range(len(panel.lines)):
        _draw_line(axes, chart, panel, place)
    if panel.chance is not None:
        axes.axhline(panel.chance, linestyle=CHANCE, color=GREY, linewidth=THIN, zorder=1)
    _set_scale(axes, chart)
    if chart.linear_to is not None:
        _set_symmetric_scale(axes, chart.linear_to)
    else:
        axes.yaxis.set_major_locator(MaxNLocator(nbins=TICKS, steps=[1, 2, 2.5, 5, 10]))
    if panel.is_fraction:
        axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{100 * value:.10g} %"))


def _summarised(panel: Panel) -> Panel:
    """Return the panel with one line, the median at each ``x``, in place of too many of one label and quantity."""
    lines = [
        [replace(found[0], points=_percentiles(found, 50.0))] if len(found) > MANY_SITES else found
        for found in panel.alike().values()
    ]
    return replace(panel, lines=tuple(line for found in lines for line in found))


def _percentiles(lines: Sequence[Line], percent: float) -> dict[float, Estimate]:
    """Return a percentile over the means of ``lines`` at each ``x``; ``count`` is the number of lines that have it."""
    by_x: dict[float, list[float]] = {}
    for line in lines:
        for x, point in line.points.items():
            by_x.setdefault(x, []).append(point.mean)
    return {x: Estimate(float(np.percentile(by_x[x], percent)), None, len(by_x[x])) for x in sorted(by_x)}


def _draw_spread(axes: Axes, chart: Chart, lines: Sequence[Line]) -> None:
    """Fill the range of ``lines`` and, darker, that between their quartiles, if they are of the first quantity.

    Where few sites have all the weight, the quartiles alone would say that none has any.
    """
    if lines[0].quantity in chart.quantities[1:]:
        return
    for shares, alpha in (((0.0, 100.0), 0.07), ((25.0, 75.0), 0.15)):
        low, high = (_percentiles(lines, percent) for percent in shares)
        lower, upper = ([point.mean for point in found.values()] for found in (low, high))
        axes.fill_between(list(low), lower, upper, color=lines[0].look.colour, alpha=alpha, linewidth=0)


def _mark_panel(axes: Axes, chart: Chart, place: int, columns: int, inches: float) -> None:
    """Set the title, and the labels that the panels of a row or column share."""
    panel = chart.panels[place]
    is_lowest = place + columns >= len(chart.panels)
    is_first = place % columns == 0 or chart.panels[place - 1].y_label != panel.y_label
    title = "\n".join(wrapped(panel.title, inches, TEXT_SIZE))
    mark_axes(axes, title, chart.x_label if is_lowest else "", panel.y_label if is_first else "")
    if chart.categories:
        room = inches / len(chart.categories)
        texts = ["\n".join(wrapped(text, room, TEXT_SIZE)) for text in chart.categories]
        axes.xaxis.set_major_formatter(FuncFormatter(lambda place, _: texts[round(place)]))
    elif chart.scale is not Scale.ROUNDS:
        _fit_labels(axes, _places(chart), inches)
    if is_lowest:
        axes.tick_params(labelbottom=True)  # for the lowest panel of a column, even in an upper row


def _draw_line(axes: Axes, chart: Chart, panel: Panel, place: int) -> None:
    line = panel.lines[place]
    if line.quantity in chart.quantities[1:]:
        same = sum(_means(other) == _means(line) for other in panel.lines if other.quantity == line.quantity)
        _draw_plain(axes, line, STROKES[1], GREY if same > 1 else line.look.colour)
    elif line.is_constant:
        _draw_plain(axes, line, _level_strokes(chart)[line.label], line.look.colour)
        _draw_band(axes, line, panel.bounds)
    else:
        _draw_marked(axes, line, sum(other.quantity == line.quantity for other in panel.lines[:place]))
        draw = _draw_band if chart.scale is Scale.ROUNDS else _draw_bars
        draw(axes, line, panel.bounds)


def _level_strokes(chart: Chart) -> dict[str, Stroke]:
    """Return the stroke of each level line by its label: other dashes where a colour recurs."""
    lines = {line.label: line for panel in chart.panels for line in panel.lines if line.is_constant}
    colours: list[str] = []
    strokes: dict[str, Stroke] = {}
    for label, line in lines.items():
        strokes[label] = LEVELS[colours.count(line.look.colour) % len(LEVELS)]
        colours.append(line.look.colour)
    return strokes


def _draw_plain(axes: Axes, line: Line, stroke: Stroke, colour: str) -> None:
    axes.plot(*_means(line), linestyle=stroke, color=colour, linewidth=LINE_WIDTH, label=line.label)


def _draw_marked(axes: Axes, line: Line, place: int) -> None:
    """Draw a line with markers; ``place``: among those with markers in its panel."""
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
        clip_on=False,  # a marker on the edge of the axes is drawn whole
        label=line.label,
    )


def _draw_band(axes: Axes, line: Line, bounds: tuple[float, float]) -> None:
    if _has_spread(line):
        low, high = _spans(line, bounds)
        axes.fill_between(list(line.points), low, high, color=line.look.colour, alpha=0.15, linewidth=0)


def _draw_bars(axes: Axes, line: Line, bounds: tuple[float, float]) -> None:
    if _has_spread(line):
        x, mean = _means(line)
        low, high = _spans(line, bounds)
        ends = np.array([np.subtract(mean, low), np.subtract(high, mean)])
        axes.errorbar(x, mean, yerr=ends, fmt="none", ecolor=line.look.colour, elinewidth=THIN, capsize=2)


def _means(line: Line) -> tuple[list[float], list[float]]:
    return list(line.points), [point.mean for point in line.points.values()]


def _has_spread(line: Line) -> bool:
    return any(point.std for point in line.points.values())


def _spans(line: Line, bounds: tuple[float, float]) -> tuple[list[float], list[float]]:
    """Return the means minus and plus the standard deviation, within the bounds of the quantity."""
    points = line.points.values()
    low = [max(point.mean - (point.std or 0.0), bounds[0]) for point in points]
    return low, [min(point.mean + (point.std or 0.0), bounds[1]) for point in points]


def _set_scale(axes: Axes, chart: Chart) -> None:
    if chart.scale is Scale.ROUNDS:
        axes.xaxis.set_major_locator(MaxNLocator(nbins=TICKS, integer=True, steps=[1, 2, 5, 10]))
        return
    places = _places(chart)
    if chart.scale is Scale.LOG:
        axes.set_xscale("log")
    elif chart.scale is Scale.ZERO_AND_LOG:
        axes.set_xscale("symlog", linthresh=min(place for place in places if place > 0))
    # Ticks are at the values that were tried.
    labels = [chart.categories[int(place)] if chart.categories else f"{place:g}" for place in places]
    axes.xaxis.set_major_locator(FixedLocator(places))
    axes.xaxis.set_major_formatter(FixedFormatter(labels))
    axes.xaxis.set_minor_locator(NullLocator())


def _places(chart: Chart) -> list[float]:
    """Return all values of ``x``, sorted."""
    return sorted({x for panel in chart.panels for line in panel.lines for x in line.points})


def _fit_labels(axes: Axes, places: Sequence[float], inches: float) -> None:
    """Turn the labels at ``places`` if they would overlap on an axis of that length, and leave out those that still do.

    The ticks stay.
    """
    labels = [f"{place:g}" for place in places]
    scaled = axes.xaxis.get_transform().transform(np.array(places, dtype=float))
    at = 0.9 * inches * (scaled - scaled[0]) / max(scaled[-1] - scaled[0], 1e-12)  # a twentieth is free at each end
    room = [inches_of(label, TEXT_SIZE) for label in labels]
    if all(at[i + 1] - at[i] > (room[i] + room[i + 1]) / 2 + LABEL_GAP for i in range(len(at) - 1)):
        return
    axes.tick_params(axis="x", labelrotation=90)
    last = -math.inf
    for i in range(len(labels)):
        if at[i] - last < TEXT_SIZE * LINE_HEIGHT / 72:
            labels[i] = ""
        else:
            last = at[i]
    axes.xaxis.set_major_formatter(FixedFormatter(labels))


def _set_symmetric_scale(axes: Axes, linear_to: float) -> None:
    """Make the ``y`` axis linear around zero and logarithmic beyond, with ticks at 1 and 3 of each power of ten."""
    axes.set_yscale("symlog", linthresh=linear_to)
    positive = [linear_to * factor * 10.0**power for power in range(8) for factor in (1, 3)]
    axes.yaxis.set_major_locator(FixedLocator([*(-tick for tick in reversed(positive)), 0.0, *positive]))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}".replace("-", "\N{MINUS SIGN}")))
    axes.yaxis.set_minor_locator(NullLocator())
    axes.axhline(0.0, color=GREY, linewidth=THIN / 2, zorder=1)


def _set_limits(figure: Figure, chart: Chart) -> None:
    """Keep the ``y`` axes within the bounds of their quantity; axes that are shared have been scaled together."""
    for axes, panel in zip(figure.axes, chart.panels, strict=False):
        low, high = axes.get_ylim()
        axes.set_ylim(max(low, panel.bounds[0]), min(high, panel.bounds[1]))


def _legends(chart: Chart) -> list[list[Artist]]:
    """Return the handles of two legends: of the compared lines, and of the quantities if there are two, with chance."""
    lines = [line for panel in chart.panels for line in panel.lines]
    first = {line.label: line for line in reversed(lines)}
    order = chart.legend or tuple(dict.fromkeys(line.label for line in lines))
    levels = _level_strokes(chart)
    compared = [_handle(first[label], levels.get(label)) for label in order]
    named = chart.quantities if len(chart.quantities) > 1 else ()
    quantities: list[Artist] = [_stroke(stroke, name) for stroke, name in zip(STROKES, named, strict=False)]
    chances = sorted({panel.chance for panel in chart.panels if panel.chance is not None})
    if chances:
        values = " to ".join(dict.fromkeys(f"{100 * one:.3g}" for one in (chances[0], chances[-1])))
        quantities.append(_stroke(CHANCE, f"always the commonest class ({values} %)"))
    return [list(compared), quantities]


def _stroke(stroke: Stroke, label: str) -> Line2D:
    return Line2D([], [], color=GREY, linestyle=stroke, linewidth=LINE_WIDTH, label=label)


def _handle(line: Line, level: Stroke | None) -> Line2D:
    """Return the mark of a line in the legend; ``level`` is the stroke of a level line."""
    return Line2D(
        [],
        [],
        linestyle=STROKES[0] if level is None else level,
        linewidth=LINE_WIDTH,
        color=line.look.colour,
        marker=line.look.marker if level is None else "",
        markersize=MARKER_SIZE,
        label=line.label,
    )
