# SPDX-License-Identifier: Apache-2.0
"""What is drawn: bytes repeat, nothing is covered, and the lines are the numbers they stand for."""

import itertools
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg

from fdg_plugins.lab.analysis.figures.drawing import MANY_SITES, draw, render
from fdg_plugins.lab.analysis.figures.picture import Chart, Counts, Picture, numbered_look
from fdg_plugins.lab.analysis.figures.reliability import Curve, Reliability
from tests.figures.figure_stubs import small_chart

LONG = "FedOMG + GA + DIM (kappa 0.1, server_lr 1.0, idle_below 1e-05, damping released)"


def counts(sites: int = 30) -> Counts:
    index = pd.MultiIndex.from_tuples([("second" if one > sites / 2 else "first", f"{one}") for one in range(sites)])
    table = pd.DataFrame([(one, 0, 7) for one in range(sites)], index=index, columns=["airplane", "cat", "ship"])
    return Counts(name="partition", title="A title", caption="STAND-IN for PACS, from scratch", counts=table)


def long_lines() -> Chart:
    chart = small_chart()
    lines = tuple(replace(line, label=f"{line.label}: {LONG}") for line in chart.panels[0].lines)
    return replace(chart, panels=tuple(replace(panel, lines=lines) for panel in chart.panels))


def diagrams() -> Reliability:
    histogram = np.zeros((2, 512), dtype=int)
    histogram[:, [200, 400, 511]] = [[20, 10, 2], [20, 60, 3]]
    curves = [Curve(label, numbered_look(number), histogram) for number, label in enumerate(("FedAvg", LONG))]
    panels = {f"held out: {target}": curves for target in ("photo", "sketch", "cartoon")}
    return Reliability(name="reliability", title="A title", caption="STAND-IN for PACS", panels=panels)


PICTURES: dict[str, Picture] = {
    "chart": small_chart(),
    "long": long_lines(),
    "counts": counts(),
    "one site": counts(1),
    "reliability": diagrams(),
}


@pytest.mark.parametrize("kind", PICTURES)
def test_bytes_repeat_carry_the_caption_and_nothing_is_covered(kind: str) -> None:
    picture = PICTURES[kind]
    first, second = (render(draw(picture), picture, "svg") for _ in range(2))
    assert first == second
    assert picture.caption in first.decode()
    figure = draw(picture)
    assert isinstance(figure.canvas, FigureCanvasAgg)
    renderer = figure.canvas.get_renderer()
    figure.draw(renderer)
    boxes = [box for axes in figure.axes if (box := axes.get_tightbbox(renderer)) is not None]
    boxes += [part.get_window_extent(renderer) for part in (*figure.legends, *figure.texts)]
    for one, other in itertools.combinations(boxes, 2):
        overlap = [min(one.max[axis], other.max[axis]) - max(one.min[axis], other.min[axis]) for axis in (0, 1)]
        assert min(overlap) <= 1.0  # pixels
    for box in boxes:
        assert np.min(box.min) >= -1.0
        assert (np.asarray(box.max) <= np.asarray(figure.bbox.max) + 1.0).all()


def test_every_line_is_its_numbers_and_many_alike_are_their_median() -> None:
    chart = small_chart()
    for axes, panel in zip(draw(chart).axes, chart.panels, strict=True):
        for drawn, line in zip(axes.lines, panel.lines, strict=True):
            np.testing.assert_array_equal(drawn.get_xydata(), np.transpose(line.means))
    many = replace(chart.panels[0], lines=(chart.panels[0].lines[0],) * (MANY_SITES + 1))
    (axes,) = draw(replace(chart, panels=(many,))).axes
    assert len(axes.lines) == 1
    assert len(axes.collections) == 2  # the range, and that between the quartiles
