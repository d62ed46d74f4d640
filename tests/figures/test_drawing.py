# SPDX-License-Identifier: Apache-2.0
"""What is drawn: bytes repeat, and the lines are the numbers they stand for."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from fdg_plugins.lab.analysis.figures.drawing import MANY_SITES, draw, render
from fdg_plugins.lab.analysis.figures.picture import Counts, Picture, Reliability, numbered_look
from tests.figures.figure_stubs import small_chart


def counts() -> Counts:
    rows = [
        {"site": f"{site}", "domain": "second" if site > 15 else "first", "class": name, "images": images}
        for site in range(30)
        for name, images in (("airplane", site), ("cat", 0), ("ship", 7))
    ]
    caption = "STAND-IN for PACS, from scratch"
    return Counts(name="partition", title="A title", caption=caption, frame=pd.DataFrame(rows))


def diagrams() -> Reliability:
    bins = [
        {"images": images, "confidence": confidence, "correct": correct, "few": str(images < 30).lower()}
        for images, confidence, correct in ((40, 0.4, 0.5), (70, 0.8, 0.9), (5, 1.0, 0.6))
    ]
    curves = [
        {"panel": f"held out: {target}", "line": label, "look": numbered_look(number), **one}
        for target in ("photo", "sketch", "cartoon")
        for number, label in enumerate(("FedAvg", "FedOMG"))
        for one in bins
    ]
    frame = pd.DataFrame(curves, dtype=object).assign(histograms=1, calibration_error=0.1)
    return Reliability(name="reliability", title="A title", caption="STAND-IN for PACS", frame=frame)


PICTURES: dict[str, Picture] = {
    "chart": small_chart(),
    "counts": counts(),
    "reliability": diagrams(),
    "powers": replace(small_chart(), scale="symlog"),
    "names": replace(small_chart(), scale="linear", categories=("all", "the extractor alone", "the head alone")),
}


@pytest.mark.parametrize("kind", PICTURES)
def test_bytes_repeat_and_carry_the_caption(kind: str) -> None:
    picture = PICTURES[kind]
    first, second = (render(draw(picture), picture, "svg") for _ in range(2))
    assert first == second
    assert picture.caption in first.decode()


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
