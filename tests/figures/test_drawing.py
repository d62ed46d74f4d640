# SPDX-License-Identifier: Apache-2.0
"""What is drawn: bytes repeat, nothing is covered, and the lines are the numbers they stand for."""

import itertools
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg

from fdg_plugins.lab.analysis.figures.drawing import MANY_SITES, draw, render
from fdg_plugins.lab.analysis.figures.picture import Counts, Picture
from tests.figures.figure_stubs import ORIGIN, small_chart

COMMON: dict[str, Any] = {"title": "A title", "caption": "STAND-IN for PACS, from scratch", "origin": ORIGIN}
LONG = "FedOMG + GA + DIM (kappa 0.1, server_lr 1.0, idle_below 1e-05, damping released)"


def counts(sites: int = 30) -> Counts:
    rows = tuple((number, 0, 7) for number in range(sites))
    names = tuple(f"train-{number}of{sites}" for number in range(1, sites + 1))
    domains = ("first",) * (sites // 2) + ("second",) * (sites - sites // 2)
    return Counts(
        name="partition", sites=names, domains=domains, classes=("airplane", "cat", "ship"), counts=rows, **COMMON
    )


def long_lines() -> Picture:
    panels = [
        replace(one, lines=tuple(replace(line, label=f"{line.label}: {LONG}") for line in one.lines))
        for one in small_chart().panels
    ]
    return small_chart(panels=tuple(panels))


PICTURES: dict[str, Picture] = {"chart": small_chart(), "long": long_lines(), "counts": counts(), "one site": counts(1)}


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
            np.testing.assert_array_equal(drawn.get_xdata(), list(line.points))
            np.testing.assert_array_equal(drawn.get_ydata(), [point.mean for point in line.points.values()])
    panel = chart.panels[0]
    many = replace(panel, lines=(panel.lines[0],) * (MANY_SITES + 1))
    (axes,) = draw(small_chart(panels=(many,))).axes
    assert len(axes.lines) == 1
    assert len(axes.collections) == 2  # the range, and that between the quartiles
