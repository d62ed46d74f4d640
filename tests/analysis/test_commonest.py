# SPDX-License-Identifier: Apache-2.0
"""The accuracy of a constant answer, which a table names below the methods' own."""

import csv
import io
from typing import Any

import pytest

from fdg_plugins.lab.analysis import Run, build_table
from fdg_plugins.lab.analysis.commonest import commonest_at_sites, commonest_in_domains, note_on_domains
from fdg_plugins.lab.analysis.figures import Chart, make_pictures
from fdg_plugins.lab.analysis.figures.groups import score_panel
from fdg_plugins.lab.analysis.grid import to_grid
from fdg_plugins.lab.analysis.render_csv import render_csv
from fdg_plugins.lab.analysis.sites_table import sites_grid
from tests.analysis.run_stubs import FEDAVG, FEDOMG, census_reply, run
from tests.analysis.test_sites_table import SOURCES, skewed

NAMED = "Always naming "


def judged(target: str, *counts: tuple[int, ...], seed: int = 0, **changes: Any) -> Run:
    """Return a run whose held-out sites have these counts of images by class."""
    made = run(f"{target}-{seed}", FEDAVG, target, seed, **changes)
    sites = [target, *(f"{target}-{number}" for number in range(2, len(counts) + 1))]
    replies = {site: census_reply(target, seed, class_counts=own) for site, own in zip(sites, counts, strict=True)}
    made.record.held_out = tuple(sites)
    made.record.census = {**made.record.census, **replies}
    return made


def test_the_share_is_of_all_images_of_the_held_out_sites_and_no_others() -> None:
    assert commonest_in_domains([judged("photo", (30, 10))]) == {"photo": 0.75}
    assert commonest_in_domains([judged("photo", (30, 10), (0, 40))]) == {"photo": 0.625}
    assert commonest_in_domains([judged("photo", ())]) == {}


def test_seeds_count_alike_however_many_methods_have_them() -> None:
    runs = [judged("photo", (6, 4)), judged("photo", (6, 4)), judged("photo", (8, 2), seed=1)]
    assert commonest_in_domains(runs) == {"photo": pytest.approx(0.7)}


def test_the_note_has_the_columns_of_the_table_in_their_order_and_their_mean() -> None:
    shares = {"sketch": 0.3, "photo": 0.5, "cartoon": 0.9}
    (note,) = note_on_domains(shares, ("photo", "sketch", "average"))
    assert note.endswith("percentage of its images: photo 50.0, sketch 30.0, on average 40.0.")
    (alone,) = note_on_domains(shares, ("photo",))
    assert alone.endswith("percentage of its images: photo 50.0.")
    assert note_on_domains(shares, ("art_painting",)) == []


def test_a_table_and_its_csv_have_the_note() -> None:
    table = build_table([judged("photo", (30, 10)), judged("sketch", (10, 10))])
    (note,) = (one for one in to_grid(table).notes if one.startswith(NAMED))
    assert note.endswith("photo 75.0, sketch 50.0, on average 62.5.")
    lines = csv.DictReader(io.StringIO(render_csv(table)))
    assert [line["note"] for line in lines if line["kind"] == "note" and line["note"].startswith(NAMED)] == [note]


def test_the_panel_of_a_figure_has_the_share_of_its_own_held_out_domain() -> None:
    runs = [judged("photo", (30, 10)), judged("sketch", (10, 10))]
    (chart,) = make_pictures("convergence", runs)
    assert isinstance(chart, Chart)
    assert {panel.title: panel.chance for panel in chart.panels} == {"held out: photo": 0.75, "held out: sketch": 0.5}
    assert score_panel(runs, "average", ()).chance == pytest.approx(0.625)


def test_a_task_of_pixels_has_none() -> None:
    made = judged("photo", (30, 10))
    made.record.protocol = made.record.protocol.model_copy(update={"task": "segmentation"})
    assert commonest_in_domains([made]) == {}
    assert commonest_at_sites(made) is None


def test_at_skewed_sites_each_has_its_own_class_weighed_by_its_test_images() -> None:
    made = skewed()
    for site, images, counts in zip(SOURCES, (1, 3, 0, 0, 0), ((4, 0), (2, 6), (1, 0), (0, 0), (5, 5)), strict=True):
        reply = census_reply("train", num_train=8, num_validation=images, class_counts=counts)
        made.record.census = {**made.record.census, site: reply}
    # One image of a site with one class, three of a site of which three quarters have one.
    assert commonest_at_sites(made) == pytest.approx((1 + 3 * 0.75) / 4)
    (note,) = (one for one in sites_grid([made, skewed(FEDOMG, dataset="cifar10")]).notes if one.startswith(NAMED))
    assert note.endswith("of the sites' own test images: MNIST alpha=0.1 81.2, CIFAR-10 alpha=0.1 50.0.")
