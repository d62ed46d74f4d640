# SPDX-License-Identifier: Apache-2.0
"""Draws figures with matplotlib, without the state of ``pyplot``: the same numbers result in the same bytes.

A figure is drawn in the size in which it is printed, so text has the same size in every figure.
"""

import io
import textwrap
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path
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
from matplotlib.ticker import MaxNLocator, NullLocator, PercentFormatter

from fdg_plugins.lab.analysis.estimates import Estimate
from fdg_plugins.lab.analysis.figures.evaluation import Comparison
from fdg_plugins.lab.analysis.figures.picture import GREY, Chart, Counts, Line, Panel, Picture, Scale, numbered_look
from fdg_plugins.lab.analysis.figures.reliability import Reliability
from fdg_plugins.lab.analysis.runs import grouped
from fdg_plugins.storage import write_bytes
from fdg_plugins.tasks.counts import FEWEST

FORMATS = ("png", "svg")
COLUMN_INCHES = 3.3  # a column of a paper with two
TEXT_SIZE, SMALL_SIZE = 7.0, 6.5  # points
LETTERS = 19  # of an inch of text, about
LINE_INCHES = 0.12
PANEL_WIDTH, PANEL_HEIGHT = 1.6, 1.35
MARKERS_PER_LINE, TICKS = 8, 6
SOLID, DOTTED, LEVEL, CHANCE = get_args(Literal["-", ":", "--", "-."])
MANY_SITES = 20  # of one domain; more lines of one colour would be a block
MOST_CLASSES = 30  # that are named

_STYLE: dict[Any, Any] = {
    "font.size": TEXT_SIZE,
    **dict.fromkeys(("figure.titlesize", "axes.titlesize", "axes.labelsize"), TEXT_SIZE),
    **dict.fromkeys(("legend.fontsize", "xtick.labelsize", "ytick.labelsize"), SMALL_SIZE),
    "figure.constrained_layout.use": True,
    "axes.grid": True,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "grid.alpha": 0.4,
    "legend.frameon": False,
    "lines.linewidth": 1.0,
    "lines.markersize": 3.0,
    "text.parse_math": False,  # a $ in a name is a plain $
    "svg.fonttype": "none",  # text stays text
    "svg.hashsalt": "fdg",  # otherwise ids are random
}


def draw(picture: Picture, width: float = COLUMN_INCHES) -> Figure:
    """Return the figure in a width in inches, by default that of a paper's column."""
    drawn: Mapping[type[Picture], Callable[[Any, float], Figure]] = {
        Chart: _draw_chart,
        Counts: _draw_counts,
        Comparison: _draw_comparison,
        Reliability: _draw_reliability,
    }
    with style():
        return drawn[type(picture)](picture, width)


def write_figure(picture: Picture, to: Path) -> str:
    """Write a figure and its numbers to the folder ``to``; return a line that says so."""
    figure = draw(picture)
    contents = {form: render(figure, picture, form) for form in FORMATS}
    contents["csv"] = picture.numbers().to_csv(index=False, lineterminator="\n").encode()
    for suffix, content in contents.items():
        write_bytes(to / f"{picture.name}.{suffix}", content)
    return f"{to / picture.name}: {', '.join(contents)}"


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
    labels = [textwrap.wrap(str(handle.get_label()), letters - 6) for handle in handles]
    columns = max(1, letters // (6 + max((len(line) for label in labels for line in label), default=0)))
    rows = sum(map(len, labels)) / columns + bool(handles)
    figure = Figure(figsize=(width, height + LINE_INCHES * (len(caption) + rows)))
    FigureCanvasAgg(figure)
    figure.suptitle("\n".join(caption))
    if handles:
        texts = ["\n".join(label) for label in labels]
        figure.legend(list(handles), texts, loc="outside lower center", ncols=columns)
    return figure


# --- charts of lines ---


def _draw_chart(chart: Chart, width: float) -> Figure:
    """Return the figure: panels that share their axes, in rows of equal length if possible."""
    titles = [(panel.title, panel.y_label) for panel in chart.panels]
    figure, grid, inches = _panels(chart, titles, chart.x_label, width, _legend(chart))
    for axes, panel in zip(grid, chart.panels, strict=True):
        _draw_panel(axes, chart, panel)
    _set_scale(grid[0], chart, inches)
    for axes, panel in zip(grid, chart.panels, strict=True):  # scaled together
        low, high = axes.get_ylim()
        axes.set_ylim(max(low, panel.bounds[0]), min(high, panel.bounds[1]))
    return figure


def _panels(
    picture: Picture, titles: Sequence[tuple[str, str]], x_label: str, width: float, handles: Sequence[Artist]
) -> tuple[Figure, list[Axes], float]:
    """Return a figure, its axes by titles and labels of ``y``, and the width of one."""
    count = len(titles)
    rows = -(-count // min(4, max(1, int(width / PANEL_WIDTH))))
    columns = -(-count // rows)
    figure = new_figure(picture, width, PANEL_HEIGHT * rows, handles)
    grid = list(figure.subplots(rows, columns, sharex=True, sharey=True, squeeze=False).flat)
    for axes in grid[count:]:
        axes.remove()
    for place, (axes, (title, y_label)) in enumerate(zip(grid, titles, strict=False)):
        is_lowest = place + columns >= count
        text = textwrap.fill(title, int(LETTERS * width / columns) - 5)
        axes.set(title=text, xlabel=x_label if is_lowest else "", ylabel="" if place % columns else y_label)
        axes.tick_params(labelbottom=is_lowest)
    return figure, grid[:count], width / columns


def _draw_panel(axes: Axes, chart: Chart, panel: Panel) -> None:
    for (_, quantity), alike in grouped(panel.lines, lambda line: (line.label, line.quantity)).items():
        is_second = quantity in chart.quantities[1:]
        for line in [_summarised(axes, alike, spread=not is_second)] if len(alike) > MANY_SITES else alike:
            look: dict[str, Any] = {"linestyle": DOTTED if is_second else LEVEL}
            if not is_second and not line.is_constant:
                look = {"marker": line.look.marker, "markevery": max(1, len(line.points) // MARKERS_PER_LINE)}
            axes.plot(*line.means, color=line.look.colour, **look)
            if not is_second and any(point.std for point in line.points.values()):
                _draw_deviation(axes, line, panel.bounds, as_band=chart.scale is Scale.ROUNDS or line.is_constant)
    if panel.chance is not None:
        axes.axhline(panel.chance, linestyle=CHANCE, color=GREY, linewidth=0.7, zorder=1)
    if panel.is_fraction:
        axes.yaxis.set_major_formatter(PercentFormatter(1.0))


def _summarised(axes: Axes, lines: Sequence[Line], *, spread: bool) -> Line:
    """Return the median of many lines; with ``spread``, fill their range and, darker, that between their quartiles."""
    means = pd.DataFrame([dict(zip(*line.means, strict=True)) for line in lines]).sort_index(axis="columns")
    for low, high, alpha in ((0.0, 1.0, 0.07), (0.25, 0.75, 0.15)) if spread else ():
        edges = means.quantile([low, high])
        axes.fill_between(means.columns, *edges.to_numpy(), color=lines[0].look.colour, alpha=alpha, linewidth=0)
    medians = means.median()
    return replace(lines[0], points={x: Estimate(float(value), None, len(lines)) for x, value in medians.items()})


def _draw_deviation(axes: Axes, line: Line, bounds: tuple[float, float], *, as_band: bool) -> None:
    x, mean = map(np.array, line.means)
    deviation = np.array([point.std or 0.0 for point in line.points.values()])
    low, high = np.clip(mean - deviation, *bounds), np.clip(mean + deviation, *bounds)
    if as_band:
        axes.fill_between(x, low, high, color=line.look.colour, alpha=0.15, linewidth=0)
    else:
        axes.errorbar(x, mean, yerr=[mean - low, high - mean], fmt="none", ecolor=line.look.colour, capsize=2)


def _set_scale(axes: Axes, chart: Chart, inches: float) -> None:
    if chart.scale is Scale.ROUNDS:
        axes.xaxis.set_major_locator(MaxNLocator(nbins=TICKS, integer=True))
        return
    places = sorted({x for line in chart.lines for x in line.points})
    if chart.scale is not Scale.LINEAR:
        least = {"linthresh": min(place for place in places if place > 0)}
        axes.set_xscale(chart.scale.value, **(least if chart.scale is Scale.ZERO_AND_LOG else {}))
    labels = [chart.categories[int(place)] if chart.categories else f"{place:g}" for place in places]
    axes.set_xticks(places, labels)
    axes.xaxis.set_minor_locator(NullLocator())
    for each in axes.figure.axes:
        each.tick_params(axis="x", labelrotation=90 if len("  ".join(labels)) > 0.6 * LETTERS * inches else 0)


def _legend(chart: Chart) -> list[Artist]:
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


def _draw_counts(picture: Counts, width: float) -> Figure:
    counts = picture.counts
    values, names = counts.to_numpy().T, list(counts.columns)
    figure = new_figure(picture, width, 0.5 + 0.13 * min(MOST_CLASSES, len(names)))
    axes = figure.subplots()
    # Monotonic in brightness and read by colour-blind readers; small numbers are seen beside large ones.
    norm = PowerNorm(0.5, vmin=1, vmax=max(2, int(values.max())))
    shown = axes.imshow(np.ma.masked_equal(values, 0), aspect="auto", interpolation="none", cmap="cividis_r", norm=norm)
    axes.xaxis.set_major_locator(MaxNLocator(nbins=10, integer=True))
    axes.xaxis.set_major_formatter(lambda place, _: f"{place + 1:.0f}")
    every = -(-len(names) // MOST_CLASSES)
    axes.set_yticks(range(0, len(names), every), names[::every])
    axes.grid(visible=False)
    axes.set(xlabel="site", ylabel="class")
    places = pd.Series(range(len(counts)), index=counts.index.get_level_values(0)).groupby(level=0)
    above = axes.secondary_xaxis("top")
    above.set_xticks(list(places.mean()), list(places.groups), rotation=0 if len(places) < 4 else 20)
    above.tick_params(length=0)
    for first in list(places.min())[1:]:
        axes.axvline(first - 0.5, color="black", linewidth=0.8)
    figure.colorbar(shown, ax=axes, pad=0.02, aspect=16, label="images")
    return figure


# --- reliability: how often models are right at each confidence ---


def _draw_reliability(picture: Reliability, width: float) -> Figure:
    """Return the figure: a panel per domain or site with its number of images, and each line's calibration error."""
    curves = {curve.label: curve.look for panel in picture.panels.values() for curve in panel}
    handles: list[Artist] = [
        Line2D([], [], color=look.colour, marker=look.marker, label=label) for label, look in curves.items()
    ]
    few = f"fewer than {FEWEST} images"
    handles.append(Line2D([], [], color=GREY, marker="o", markerfacecolor="white", linestyle="", label=few))
    titles = [(f"{title}, {panel[0].images:,} images", "share right") for title, panel in picture.panels.items()]
    figure, grid, _ = _panels(picture, titles, "confidence", width, handles)
    for axes, panel in zip(grid, picture.panels.values(), strict=True):
        axes.plot([0, 1], [0, 1], color=GREY, linestyle=CHANCE, linewidth=0.7, zorder=1)
        for number, curve in enumerate(panel):
            colour, marker = curve.look
            axes.plot(*zip(*(one[1:] for one, _ in curve.bins), strict=True), color=colour)
            for (_, *point), is_few in curve.bins:
                filling = "white" if is_few else colour
                axes.plot(*point, marker, color=colour, markerfacecolor=filling, clip_on=False, zorder=3)
            text, line = f"{100 * curve.error:.1f} %", 72 * LINE_INCHES * number
            place: dict[str, Any] = {"xycoords": "axes fraction", "xytext": (0, -line), "textcoords": "offset points"}
            axes.annotate(text, (0.04, 0.98), **place, color=colour, va="top")  # where a curve is rarely
        axes.set(xlim=(0, 1), ylim=(0, 1), xticks=(0, 0.5, 1), yticks=(0, 0.5, 1))
        for axis in (axes.xaxis, axes.yaxis):
            axis.set_major_formatter(PercentFormatter(1.0))
    return figure


# --- models at sites that trained none of them ---


def _draw_comparison(picture: Comparison, width: float) -> Figure:
    """Return the figure: sites from the top down, scores on the left, differences on the right if there are any."""
    looks = {model.name: numbered_look(number) for number, model in enumerate(picture.result.models)}
    sites = list(dict.fromkeys(line.site for line in picture.lines))
    handles = [
        Line2D([], [], color=look.colour, marker=look.marker, linestyle="", label=name) for name, look in looks.items()
    ]
    figure = new_figure(picture, width, 0.6 + LINE_INCHES * len(sites) * (1 + len(looks)), handles)
    score, (first, *_) = picture.result.score, looks
    columns = {score.title + score.unit: [(line, line.values[score.name]) for line in picture.lines]}
    if compared := [(line, line.difference) for line in picture.lines if line.difference is not None]:
        columns[f"difference to {first}"] = compared
    grid = figure.subplots(1, len(columns), sharey=True, squeeze=False).flat
    for axes, (label, shown) in zip(grid, columns.items(), strict=True):
        for line, (value, interval) in shown:
            look, (low, high) = looks[line.model], interval or (value, value)
            ends = [[score.factor * max(0.0, value - low)], [score.factor * max(0.0, high - value)]]
            where = sites.index(line.site) + (list(looks).index(line.model) - (len(looks) - 1) / 2) * 0.7 / len(looks)
            axes.errorbar(score.factor * value, where, xerr=ends, color=look.colour, marker=look.marker, capsize=2)
        axes.set_xlabel(label)
    grid[0].set_yticks(range(len(sites)), sites)
    grid[0].invert_yaxis()
    for axes in grid[1:]:
        axes.axvline(0, color=GREY, linewidth=0.7)
    return figure
