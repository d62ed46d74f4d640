# SPDX-License-Identifier: Apache-2.0
"""What is drawn: bytes repeat, nothing is covered, and the lines are the numbers they stand for."""

import itertools
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg

from fdg_plugins.lab.analysis.figures.drawing import MANY_SITES, draw, render
from fdg_plugins.lab.analysis.figures.picture import Chart, Counts, Picture, Reliability, numbered_look
from tests.figures.figure_stubs import small_chart

LONG = "FedOMG + GA + DIM (kappa 0.1, server_lr 1.0, idle_below 1e-05, damping released)"


def counts(sites: int = 30) -> Counts:
    rows = [
        {"site": f"{site}", "domain": "second" if site > sites / 2 else "first", "class": name, "images": images}
        for site in range(sites)
        for name, images in (("airplane", site), ("cat", 0), ("ship", 7))
    ]
    caption = "STAND-IN for PACS, from scratch"
    return Counts(name="partition", title="A title", caption=caption, frame=pd.DataFrame(rows))


def long_lines() -> Chart:
    chart = small_chart()
    return replace(chart, frame=chart.frame.assign(label=chart.frame["label"] + f": {LONG}"))


def diagrams() -> Reliability:
    bins = [
        {"images": images, "confidence": confidence, "correct": correct, "few": str(images < 30).lower()}
        for images, confidence, correct in ((40, 0.4, 0.5), (70, 0.8, 0.9), (5, 1.0, 0.6))
    ]
    curves = [
        {"panel": f"held out: {target}", "line": label, "look": numbered_look(number), **one}
        for target in ("photo", "sketch", "cartoon")
        for number, label in enumerate(("FedAvg", LONG))
        for one in bins
    ]
    frame = pd.DataFrame(curves, dtype=object).assign(histograms=1, calibration_error=0.1)
    return Reliability(name="reliability", title="A title", caption="STAND-IN for PACS", frame=frame)


PICTURES: dict[str, Picture] = {
    "chart": small_chart(),
    "long": long_lines(),
    "counts": counts(),
    "one site": counts(1),
    "reliability": diagrams(),
    "powers": replace(small_chart(), scale="symlog"),
    "names": replace(small_chart(), scale="linear", categories=("all", "the extractor alone", "the head alone")),
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
        lines = [line for _, line in chart.of(panel).groupby(["label", "quantity"], sort=False)]
        for drawn, line in zip(axes.lines, lines, strict=True):
            np.testing.assert_array_equal(drawn.get_xydata(), line[["x", "mean"]].to_numpy(float))
    line = chart.of(chart.panels[0])[:3]
    many = pd.concat([line.assign(line=f"site-{number}") for number in range(MANY_SITES + 1)])
    (axes,) = draw(replace(chart, panels=chart.panels[:1], frame=many)).axes
    assert len(axes.lines) == 1
    assert len(axes.collections) == 2  # the range, and that between the quartiles
