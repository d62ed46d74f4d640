# SPDX-License-Identifier: Apache-2.0
"""From the numbers of a figure to an image: :func:`draw` draws it, :func:`render` returns its bytes. Needs matplotlib.

It uses no state of ``pyplot``, and the same numbers result in the same bytes. A figure is drawn in the size in which it
is printed, so text has the same size in every figure.
"""

import io
import textwrap
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import Any, Literal, get_args

import numpy as np
import pandas as pd
from matplotlib import rc_context
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import PowerNorm
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FixedLocator, MaxNLocator, NullLocator

from fdg_plugins.lab.analysis.estimates import Estimate
from fdg_plugins.lab.analysis.figures.picture import Chart, Counts, Line, Panel, Picture, Scale
from fdg_plugins.lab.analysis.figures.style import GREY
from fdg_plugins.lab.analysis.runs import grouped

FORMATS = ("png", "svg")
COLUMN_INCHES = 3.3  # a column of a paper with two
TEXT_SIZE, SMALL_SIZE = 7.0, 6.5  # points
LETTERS = 19  # of an inch of text, about
LINE_INCHES = 0.12
PANEL_WIDTH, PANEL_HEIGHT = 1.6, 1.35
MARKERS_PER_LINE, TICKS = 8, 6
Stroke = Literal["-", ":", "--", "-."]
SOLID, DOTTED, LEVEL, CHANCE = get_args(Stroke)
MANY_SITES = 20  # of one domain; more lines of one colour would be a block
MOST_CLASSES = 30  # that are named

_STYLE: dict[Any, Any] = {
    "font.family": "DejaVu Sans",
    "font.size": TEXT_SIZE,
    "figure.titlesize": TEXT_SIZE,
    "figure.constrained_layout.use": True,
    "axes.titlesize": TEXT_SIZE,
    "axes.labelsize": TEXT_SIZE,
    "axes.linewidth": 0.6,
    "axes.grid": True,
    "axes.axisbelow": True,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "grid.color": "#DDDDDD",
    "grid.linewidth": 0.4,
    "legend.fontsize": SMALL_SIZE,
    "legend.frameon": False,
    "lines.linewidth": 1.0,
    "lines.markersize": 3.0,
    "xtick.labelsize": SMALL_SIZE,
    "ytick.labelsize": SMALL_SIZE,
    "text.parse_math": False,  # a $ in a name is a plain $
    "svg.fonttype": "none",  # text stays text
    "svg.hashsalt": "fdg",  # otherwise ids are random
}


def draw(picture: Picture, width: float = COLUMN_INCHES) -> Figure:
    """Return the figure in a width in inches, by default that of a paper's column."""
    if isinstance(picture, Counts):
        return _draw_counts(picture, width)
    assert isinstance(picture, Chart)
    return _draw_chart(picture, width)


def render(figure: Figure, picture: Picture, form: str) -> bytes:
    """Return the figure as a ``png`` or ``svg`` file; its metadata contain title and caption, but no date."""
    metadata = {"Title": picture.title, "Description": picture.caption, ("Date" if form == "svg" else "Software"): None}
    content = io.BytesIO()
    with style():
        figure.savefig(content, format=form, dpi=300, metadata=metadata)
    return content.getvalue()


def style() -> AbstractContextManager[None]:
    """Return the context in which every figure is drawn and saved; global settings are restored on exit."""
    return rc_context(_STYLE)


def new_figure(picture: Picture, width: float, height: float, handles: Sequence[Artist] = ()) -> Figure:
    """Return a figure ``width`` inches wide, with room for contents of the given height.

    Title and caption are above the contents, the legend of ``handles`` is below them.
    """
    letters = int(LETTERS * width)
    caption = [*textwrap.wrap(picture.title, letters), *textwrap.wrap(picture.caption, letters)]
    lines = longest = 0
    for handle in handles:
        label = textwrap.wrap(str(handle.get_label()), letters - 6)
        handle.set_label("\n".join(label))
        lines, longest = lines + len(label), max(longest, *map(len, label))
    columns = max(1, letters // (longest + 6))
    rows = lines / columns + bool(handles)
    figure = Figure(figsize=(width, height + LINE_INCHES * (len(caption) + rows)))
    FigureCanvasAgg(figure)
    figure.suptitle("\n".join(caption), color="#222222")
    if handles:
        figure.legend(handles=list(handles), loc="outside lower center", ncols=columns)
    return figure


def mark_axes(axes: Axes, title: str, x_label: str = "", y_label: str = "") -> None:
    """Set title and labels; an empty label is omitted."""
    axes.set_title(title)
    axes.set_xlabel(x_label)
    axes.set_ylabel(y_label)


# --- charts of lines ---


def _draw_chart(chart: Chart, width: float) -> Figure:
    """Return the figure: panels that share their axes, in rows of equal length if possible."""
    count = len(chart.panels)
    rows = -(-count // min(4, max(1, int(width / PANEL_WIDTH))))
    columns = -(-count // rows)
    with style():
        figure = new_figure(chart, width, PANEL_HEIGHT * rows, _legend(chart))
        grid = list(figure.subplots(rows, columns, sharex=True, sharey=True, squeeze=False).flat)
        for axes in grid[count:]:
            axes.remove()
        for place, (axes, panel) in enumerate(zip(grid, chart.panels, strict=False)):
            _draw_panel(axes, chart, panel)
            is_lowest = place + columns >= count
            title = textwrap.fill(panel.title, int(LETTERS * width / columns) - 5)
            mark_axes(axes, title, chart.x_label if is_lowest else "", "" if place % columns else panel.y_label)
            axes.tick_params(labelbottom=is_lowest)
        _set_scale(grid[0], chart, width / columns)
        for axes, panel in zip(grid, chart.panels, strict=False):  # scaled together
            low, high = axes.get_ylim()
            axes.set_ylim(max(low, panel.bounds[0]), min(high, panel.bounds[1]))
    return figure


def _draw_panel(axes: Axes, chart: Chart, panel: Panel) -> None:
    drawn = 0
    for (_, quantity), alike in grouped(panel.lines, lambda line: (line.label, line.quantity)).items():
        is_second = quantity in chart.quantities[1:]
        for line in [_summarised(axes, alike, spread=not is_second)] if len(alike) > MANY_SITES else alike:
            if is_second or line.is_constant:
                axes.plot(*_means(line), linestyle=DOTTED if is_second else LEVEL, color=line.look.colour)
            else:
                _draw_marked(axes, line, drawn)
                drawn += 1
            if not is_second and any(point.std for point in line.points.values()):
                _draw_deviation(axes, line, panel.bounds, as_band=chart.scale is Scale.ROUNDS or line.is_constant)
    if panel.chance is not None:
        axes.axhline(panel.chance, linestyle=CHANCE, color=GREY, linewidth=0.7, zorder=1)
    axes.yaxis.set_major_locator(MaxNLocator(nbins=TICKS, steps=[1, 2, 2.5, 5, 10]))
    if panel.is_fraction:
        axes.yaxis.set_major_formatter(lambda value, _: f"{100 * value:.10g} %")


def _summarised(axes: Axes, lines: Sequence[Line], *, spread: bool) -> Line:
    """Return the median of many lines; with ``spread``, fill their range and, darker, that between their quartiles.

    Where few sites have all the weight, the quartiles alone would say that none has any.
    """
    means = pd.DataFrame([dict(zip(*_means(line), strict=True)) for line in lines]).sort_index(axis="columns")
    for low, high, alpha in ((0.0, 1.0, 0.07), (0.25, 0.75, 0.15)) if spread else ():
        edges = means.quantile([low, high])
        axes.fill_between(means.columns, *edges.to_numpy(), color=lines[0].look.colour, alpha=alpha, linewidth=0)
    medians = means.median()
    return replace(lines[0], points={x: Estimate(float(value), None, len(lines)) for x, value in medians.items()})


def _draw_marked(axes: Axes, line: Line, place: int) -> None:
    """Draw a line with its marker, at other rounds than those of the other lines, so that none hides another's."""
    every = max(1, len(line.points) // MARKERS_PER_LINE)
    look: dict[str, Any] = {"color": line.look.colour, "marker": line.look.marker}
    axes.plot(*_means(line), markevery=(place % every, every), clip_on=False, **look)  # whole also on the edge


def _draw_deviation(axes: Axes, line: Line, bounds: tuple[float, float], *, as_band: bool) -> None:
    x, mean = map(np.array, _means(line))
    deviation = np.array([point.std or 0.0 for point in line.points.values()])
    low, high = np.clip(mean - deviation, *bounds), np.clip(mean + deviation, *bounds)
    if as_band:
        axes.fill_between(x, low, high, color=line.look.colour, alpha=0.15, linewidth=0)
    else:
        ends = np.array([mean - low, high - mean])
        axes.errorbar(x, mean, yerr=ends, fmt="none", ecolor=line.look.colour, elinewidth=0.7, capsize=2)


def _means(line: Line) -> tuple[list[float], list[float]]:
    return list(line.points), [point.mean for point in line.points.values()]


def _set_scale(axes: Axes, chart: Chart, inches: float) -> None:
    """Set the shared ``x`` axis; its ticks are at the values that were tried."""
    if chart.scale is Scale.ROUNDS:
        axes.xaxis.set_major_locator(MaxNLocator(nbins=TICKS, integer=True, steps=[1, 2, 5, 10]))
        return
    places = sorted({x for line in chart.lines for x in line.points})
    if chart.scale is Scale.LOG:
        axes.set_xscale("log")
    elif chart.scale is Scale.ZERO_AND_LOG:
        axes.set_xscale("symlog", linthresh=min(place for place in places if place > 0))
    labels = [chart.categories[int(place)] if chart.categories else f"{place:g}" for place in places]
    is_crowded = len("  ".join(labels)) > 0.6 * LETTERS * inches
    axes.set_xticks(places, labels, rotation=90 if is_crowded else 0)
    axes.xaxis.set_minor_locator(NullLocator())
    for other in axes.figure.axes:
        other.tick_params(axis="x", labelrotation=90 if is_crowded else 0)


def _legend(chart: Chart) -> list[Artist]:
    """Return the handles of the compared lines, of the quantities if there are two, and of chance."""
    handles: list[Artist] = []
    for label, (line, *_) in grouped(chart.lines, lambda line: line.label).items():
        look: dict[str, Any] = {"linestyle": LEVEL} if line.is_constant else {"marker": line.look.marker}
        handles.append(Line2D([], [], color=line.look.colour, label=label, **look))
    if len(chart.quantities) > 1:
        strokes = zip((SOLID, DOTTED), chart.quantities, strict=True)
        handles += [Line2D([], [], color=GREY, linestyle=stroke, label=name) for stroke, name in strokes]
    if chances := sorted({panel.chance for panel in chart.panels if panel.chance is not None}):
        values = "-".join(dict.fromkeys(f"{100 * one:.0f}" for one in (chances[0], chances[-1])))
        handles.append(Line2D([], [], color=GREY, linestyle=CHANCE, label=f"commonest class {values} %"))
    return handles


# --- numbers of images by site and class ---


def _draw_counts(counts: Counts, width: float) -> Figure:
    """Return the figure: sites from left to right, classes from the top down, and the scale; none is white."""
    values = np.array(counts.counts).T
    names = dict.fromkeys(counts.domains)
    classes = list(range(0, len(counts.classes), -(-len(counts.classes) // MOST_CLASSES)))
    with style():
        figure = new_figure(counts, width, 0.5 + 0.13 * min(MOST_CLASSES, len(counts.classes)))
        axes = figure.subplots()
        # Monotonic in brightness and read by colour-blind readers; small numbers are seen beside large ones.
        norm = PowerNorm(0.5, vmin=1, vmax=max(2, int(values.max())))
        shown = axes.imshow(
            np.ma.masked_equal(values, 0), aspect="auto", interpolation="none", cmap="cividis_r", norm=norm
        )
        axes.xaxis.set_major_locator(MaxNLocator(nbins=10, integer=True))
        axes.xaxis.set_major_formatter(lambda place, _: f"{place + 1:.0f}")
        axes.yaxis.set_major_locator(FixedLocator(classes))
        axes.set_yticklabels([counts.classes[place] for place in classes])
        axes.grid(visible=False)
        mark_axes(axes, "", "site", "class")
        above = axes.secondary_xaxis("top")
        centres = [counts.domains.index(name) + (counts.domains.count(name) - 1) / 2 for name in names]
        above.set_xticks(centres, list(names), rotation=0 if len(names) < 4 else 20)
        above.tick_params(length=0)
        for name in [*names][1:]:
            axes.axvline(counts.domains.index(name) - 0.5, color="black", linewidth=0.8)
        figure.colorbar(shown, ax=axes, pad=0.02, aspect=16, label="images")
    return figure
