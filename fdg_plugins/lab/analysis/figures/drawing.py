# SPDX-License-Identifier: Apache-2.0
"""Draws figures with matplotlib, without the state of ``pyplot``: the same numbers result in the same bytes.

A figure is drawn in the size in which it is printed, so text has the same size in every figure.
"""

import io
import textwrap
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

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

from fdg_plugins.lab.analysis.figures.picture import (
    GREY,
    Chart,
    Comparison,
    Counts,
    Picture,
    Reliability,
    numbered_look,
)
from fdg_plugins.lab.analysis.table import csv_of
from fdg_plugins.storage import write_bytes
from fdg_plugins.tasks.counts import FEWEST

FORMATS = ("png", "svg")
STYLE = Path(__file__).with_name("figures.mplstyle")
COLUMN_INCHES = 3.3  # a column of a paper with two
LETTERS = 19  # of an inch of text, about
LINE_INCHES = 0.12
PANEL_HEIGHT = 1.35
MARKERS_PER_LINE, TICKS = 8, 6
SOLID, DOTTED, LEVEL, CHANCE = "-", ":", "--", "-."
MANY_SITES = 20  # of one domain; more lines of one colour would be a block
MOST_CLASSES = 30  # that are named


def draw(picture: Picture) -> Figure:
    """Return the figure in the width of a paper's column."""
    drawn: Mapping[type[Picture], Callable[[Any], Figure]] = {
        Chart: _draw_chart,
        Counts: _draw_counts,
        Comparison: _draw_comparison,
        Reliability: _draw_reliability,
    }
    with style():
        return drawn[type(picture)](picture)


def write_figure(picture: Picture, to: Path) -> str:
    """Write a figure and its numbers to the folder ``to``; return a line that says so."""
    figure = draw(picture)
    contents = {form: render(figure, picture, form) for form in FORMATS}
    contents["csv"] = csv_of(picture.numbers()).encode()
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
    return rc_context(fname=STYLE)


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


def _draw_chart(chart: Chart) -> Figure:
    """Return the figure: panels that share their axes, in rows of equal length if possible."""
    titles = [(panel.title, panel.y_label) for panel in chart.panels]
    figure, grid = _panels(chart, titles, chart.x_label, _legend(chart))
    for axes, panel in zip(grid, chart.panels, strict=True):
        for (_, quantity), alike in chart.of(panel).groupby(["label", "quantity"], sort=False):
            _draw_lines(axes, chart, alike, is_second=quantity in chart.quantities[1:])
        if panel.chance is not None:
            axes.axhline(panel.chance, linestyle=CHANCE, color=GREY, linewidth=0.7, zorder=1)
        if chart.is_fraction:
            axes.yaxis.set_major_formatter(PercentFormatter(1.0))
    _set_scale(figure, grid, chart)
    for axes in grid:  # scaled together
        low, high = axes.get_ylim()
        axes.set_ylim(max(low, chart.bounds[0]), min(high, chart.bounds[1]))
    return figure


def _panels(
    picture: Picture, titles: Sequence[tuple[str, str]], x_label: str, handles: Sequence[Artist]
) -> tuple[Figure, list[Axes]]:
    """Return a figure, and its axes by titles and labels of ``y``, at most two in a row."""
    count, columns = len(titles), min(2, len(titles))
    rows = -(-count // columns)
    figure = new_figure(picture, COLUMN_INCHES, PANEL_HEIGHT * rows, handles)
    grid = list(figure.subplots(rows, columns, sharex=True, sharey=True, squeeze=False).flat)
    for axes in grid[count:]:
        axes.remove()
    for place, (axes, (title, y_label)) in enumerate(zip(grid, titles, strict=False)):
        is_lowest = place + columns >= count
        text = textwrap.fill(title, int(LETTERS * COLUMN_INCHES / columns) - 5)
        axes.set(title=text, xlabel=x_label if is_lowest else "", ylabel="" if place % columns else y_label)
        axes.tick_params(labelbottom=is_lowest)
    return figure, grid[:count]


def _draw_lines(axes: Axes, chart: Chart, alike: pd.DataFrame, *, is_second: bool) -> None:
    """Draw lines of one label; of many, the median, their range and, darker, that between their quartiles."""
    (colour, marker), level = alike[["look", "level"]].iloc[0]
    alike = alike.astype({"x": float, "mean": float, "std": float})
    lines = [line.set_index("x")[["mean", "std"]] for _, line in alike.groupby("line", sort=False)]
    if len(lines) > MANY_SITES:
        means = alike.pivot(index="line", columns="x", values="mean")
        for low, high, alpha in ((0.0, 1.0, 0.07), (0.25, 0.75, 0.15)) if not is_second else ():
            edges = means.quantile([low, high])
            axes.fill_between(means.columns, *edges.to_numpy(), color=colour, alpha=alpha, linewidth=0)
        lines = [pd.DataFrame({"mean": means.median(), "std": 0.0})]
    for line in lines:
        look: dict[str, Any] = {"linestyle": DOTTED if is_second else LEVEL}
        if not is_second and not level:
            look = {"marker": marker, "markevery": max(1, len(line) // MARKERS_PER_LINE)}
        axes.plot(line.index, line["mean"], color=colour, **look)
        if not is_second and (line["std"] > 0).any():
            _draw_deviation(axes, line.fillna(0.0), colour, chart.bounds, as_band=chart.scale == "rounds" or level)


def _draw_deviation(axes: Axes, line: pd.DataFrame, colour: str, bounds: tuple[float, float], *, as_band: bool) -> None:
    x, mean = line.index, line["mean"]
    low, high = (mean - line["std"]).clip(*bounds), (mean + line["std"]).clip(*bounds)
    if as_band:
        axes.fill_between(x, low, high, color=colour, alpha=0.15, linewidth=0)
    else:
        axes.errorbar(x, mean, yerr=[mean - low, high - mean], fmt="none", ecolor=colour, capsize=2)


def _set_scale(figure: Figure, grid: Sequence[Axes], chart: Chart) -> None:
    axes = grid[0]
    if chart.scale == "rounds":
        axes.xaxis.set_major_locator(MaxNLocator(nbins=TICKS, integer=True))
        return
    places = sorted(set(chart.frame["x"]))
    if chart.scale != "linear":
        least = {"linthresh": min(place for place in places if place > 0)}
        axes.set_xscale(chart.scale, **(least if chart.scale == "symlog" else {}))
    labels = [chart.categories[int(place)] if chart.categories else f"{place:g}" for place in places]
    axes.set_xticks(places, labels)
    axes.xaxis.set_minor_locator(NullLocator())
    if len("  ".join(labels)) > 0.6 * LETTERS * COLUMN_INCHES / min(2, len(grid)):
        figure.set_figheight(figure.get_figheight() + max(map(len, labels)) / LETTERS)
        for each in grid:
            each.tick_params(axis="x", labelrotation=90)


def _legend(chart: Chart) -> list[Artist]:
    first = chart.frame.drop_duplicates("label")
    handles = [
        _handle(label, colour, **({"linestyle": LEVEL} if level else {"marker": marker}))
        for label, (colour, marker), level in zip(first["label"], first["look"], first["level"], strict=True)
    ]
    if len(chart.quantities) > 1:
        strokes = zip(chart.quantities, (SOLID, DOTTED), strict=True)
        handles += [_handle(name, GREY, linestyle=stroke) for name, stroke in strokes]
    if chances := sorted({panel.chance for panel in chart.panels if panel.chance is not None}):
        values = "-".join(dict.fromkeys(f"{100 * one:.0f}" for one in (chances[0], chances[-1])))
        handles.append(_handle(f"commonest class {values} %", GREY, linestyle=CHANCE))
    return handles


def _handle(label: str, colour: str, **look: Any) -> Artist:
    return Line2D([], [], color=colour, label=label, **look)


# --- numbers of images by site and class ---


def _draw_counts(picture: Counts) -> Figure:
    names = list(dict.fromkeys(picture.frame["class"]))
    values = picture.frame["images"].to_numpy(int).reshape(-1, len(names)).T
    figure = new_figure(picture, COLUMN_INCHES, 0.5 + 0.13 * min(MOST_CLASSES, len(names)))
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
    domains = list(picture.frame["domain"][:: len(names)])
    places = pd.Series(range(len(domains)), index=domains).groupby(level=0)
    above = axes.secondary_xaxis("top")
    above.set_xticks(list(places.mean()), list(places.groups), rotation=0 if len(places) < 4 else 20)
    above.tick_params(length=0)
    for first in list(places.min())[1:]:
        axes.axvline(first - 0.5, color="black", linewidth=0.8)
    figure.colorbar(shown, ax=axes, pad=0.02, aspect=16, label="images")
    return figure


# --- reliability: how often models are right at each confidence ---


def _draw_reliability(picture: Reliability) -> Figure:
    """Return the figure: a panel per domain or site with its number of images, and each line's calibration error."""
    looks = picture.frame.drop_duplicates("line").set_index("line")["look"]
    handles = [_handle(label, colour, marker=marker) for label, (colour, marker) in looks.items()]
    handles.append(_handle(f"fewer than {FEWEST} images", GREY, marker="o", markerfacecolor="white", linestyle=""))
    curves = picture.frame.groupby(["panel", "line"], sort=False)
    images = (curves["images"].sum() // curves["histograms"].first()).groupby(level="panel", sort=False).first()
    titles = [(f"{title}, {count:,} images", "share right") for title, count in images.items()]
    figure, grid = _panels(picture, titles, "confidence", handles)
    for axes, (_, panel) in zip(grid, picture.frame.groupby("panel", sort=False), strict=True):
        axes.plot([0, 1], [0, 1], color=GREY, linestyle=CHANCE, linewidth=0.7, zorder=1)
        for number, (line, bins) in enumerate(panel.groupby("line", sort=False)):
            colour, marker = looks[line]
            axes.plot(bins["confidence"], bins["correct"], color=colour)
            for x, y, few in zip(bins["confidence"], bins["correct"], bins["few"], strict=True):
                filling = "white" if few == "true" else colour
                axes.plot(x, y, marker, color=colour, markerfacecolor=filling, clip_on=False, zorder=3)
            text, below = f"{100 * bins['calibration_error'].iloc[0]:.1f} %", -72 * LINE_INCHES * number
            place: dict[str, Any] = {"xycoords": "axes fraction", "xytext": (0, below), "textcoords": "offset points"}
            axes.annotate(text, (0.04, 0.98), **place, color=colour, va="top")  # where a curve is rarely
        axes.set(xlim=(0, 1), ylim=(0, 1), xticks=(0, 0.5, 1), yticks=(0, 0.5, 1))
        for axis in (axes.xaxis, axes.yaxis):
            axis.set_major_formatter(PercentFormatter(1.0))
    return figure


# --- models at sites that trained none of them ---


def _draw_comparison(picture: Comparison) -> Figure:
    """Return the figure: sites from the top down, scores on the left, differences on the right if there are any."""
    frame, score, factor = picture.frame, picture.score, picture.score.factor
    looks = [(name, *numbered_look(number)) for number, name in enumerate(picture.models)]
    sites = list(dict.fromkeys(frame["site"]))
    handles = [_handle(name, colour, marker=marker, linestyle="") for name, colour, marker in looks]
    figure = new_figure(picture, COLUMN_INCHES, 0.6 + LINE_INCHES * len(sites) * (1 + len(looks)), handles)
    columns = {"score": score.title + score.unit}
    columns |= {"difference": f"difference to {picture.models[0]}"} if frame["difference"].notna().any() else {}
    grid = figure.subplots(1, len(columns), sharey=True, squeeze=False).flat
    for axes, (name, label) in zip(grid, columns.items(), strict=True):
        known = frame[["site", "model", name, f"{name}_low", f"{name}_high"]].dropna(subset=name)
        for site, model, value, low, high in known.itertuples(index=False):
            number = picture.models.index(model)
            ends = [[0.0], [0.0]] if pd.isna(low) else [[max(0.0, value - low)], [max(0.0, high - value)]]
            where = sites.index(site) + (number - (len(looks) - 1) / 2) * 0.7 / len(looks)
            _, colour, marker = looks[number]
            xerr = factor * np.array(ends)
            axes.errorbar(factor * value, where, xerr=xerr, color=colour, marker=marker, capsize=2)
        axes.set_xlabel(label)
        axes.xaxis.set_major_locator(MaxNLocator(nbins=4))
    grid[0].set_yticks(range(len(sites)), sites)
    grid[0].set_ylim(len(sites) - 0.5, -0.5)
    for axes in grid[1:]:
        axes.axvline(0, color=GREY, linewidth=0.7)
    return figure
