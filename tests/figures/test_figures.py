# SPDX-License-Identifier: Apache-2.0
"""The numbers of figures, on runs small enough to follow by hand."""

import math
import statistics
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from fdg_plugins.errors import DataError, SettingsError
from fdg_plugins.lab.analysis import Run
from fdg_plugins.lab.analysis.comparable import varied_settings
from fdg_plugins.lab.analysis.figures import Chart, make_pictures
from fdg_plugins.lab.analysis.figures.charts import AVERAGE, over_seeds, sources_by_round
from fdg_plugins.messages import Evaluation
from fdg_plugins.record.round_record import Method
from fdg_plugins.tasks.counts import pack
from tests.analysis.run_stubs import DOMAINS, FEDAVG, FEDGA, census_reply, fedomg
from tests.figures.figure_stubs import Site, figure_run, judged, one_round, with_accuracy

KAPPAS = {0.1: (0.5, 0.6), 0.3: (0.7, 0.9)}


def charts(kind: str, runs: Sequence[Run]) -> list[Chart]:
    pictures = make_pictures(kind, runs)
    assert all(isinstance(picture, Chart) for picture in pictures)
    return [picture for picture in pictures if isinstance(picture, Chart)]


def lines(chart: Chart, *by: str) -> dict[Any, dict[float, float]]:
    """Return the means of each line by ``x``; ``by``: the columns that name a line."""
    found = chart.frame.groupby([*by], sort=False)
    return {key if by[1:] else key[0]: dict(zip(of["x"], of["mean"], strict=True)) for key, of in found}


def test_over_seeds_where_there_are_finite_values() -> None:
    values: dict[int, dict[float, float | None]] = {0: {0.0: 0.1, 1.0: 0.2}, 1: {0.0: 0.3, 1.0: math.nan, 2.0: 0.4}}
    points = over_seeds([figure_run(seed=seed) for seed in (1, 0)], lambda run: values[run.seed])
    assert (points[0.0]["mean"], points[0.0]["std"]) == pytest.approx((0.2, math.sqrt(0.02)))
    assert [(x, point["seeds"]) for x, point in points.items()] == [(0.0, 2), (1.0, 1), (2.0, 1)]


def test_captions() -> None:
    drawn = [figure_run(seed=seed, stand_in=True, data="STAND-IN for PACS") for seed in (3, 4)]
    (chart,) = charts("convergence", drawn)
    assert chart.caption.startswith("STAND-IN for PACS")
    assert chart.caption.endswith("over seeds 3, 4")
    assert set(chart.numbers()["stand_in"]) == {"true"}
    with pytest.raises(SettingsError):
        charts("convergence", [figure_run(), figure_run(seed=1, protocol={"local_epochs": 1})])


def test_convergence_shows_target_and_sources_of_each_held_out_domain() -> None:
    def scores(source: float, target: float) -> dict[str, Evaluation]:
        found = dict.fromkeys(("art_painting", "cartoon", "sketch"), judged(accuracy=source))
        return {**found, "photo": judged(accuracy=target)}

    runs = [figure_run(FEDAVG, "photo", seed, [scores(0.5, 0.1), scores(0.7, 0.3 + seed / 10)]) for seed in (0, 1)]
    runs.append(figure_run(fedomg(), "sketch", scores=[{"sketch": judged(accuracy=0.4)}]))
    (chart,) = charts("convergence", runs)
    assert [panel.title for panel in chart.panels] == ["held out: photo", "held out: sketch"]
    target, sources = chart.quantities
    found = lines(chart, "panel", "label", "quantity")
    assert found["held out: photo", "FedAvg", target] == pytest.approx({0: 0.1, 1: 0.35})
    assert found["held out: photo", "FedAvg", sources] == pytest.approx({0: 0.5, 1: 0.7})
    assert chart.frame["std"][1] == pytest.approx(statistics.stdev([0.3, 0.4]))
    # Nobody judged the sources of the other run: there is no such line, not one of zeros.
    assert found["held out: sketch", "FedOMG", target] == {0: 0.4}
    assert len(found) == 3


def test_a_mean_over_some_of_the_source_domains_is_not_shown_as_that_over_all() -> None:
    held = {"cartoon-1of2": "cartoon", "cartoon-2of2": "cartoon", "sketch": "sketch", "photo": "photo"}
    run = figure_run(domains=held, scores=[dict.fromkeys(held, judged(accuracy=0.5))])
    for after_round, drawn in ((1, ("cartoon-1of2", "cartoon-2of2")), (2, ("cartoon-2of2", "sketch"))):
        scores = dict.fromkeys((*drawn, "photo"), judged(accuracy=0.9))
        run.record.add_evaluation(after_round, scores, expected=drawn)
    assert run.record.evaluations[1].source_mean == 0.9
    assert sources_by_round(run) == {0: 0.5, 2: 0.9}


def test_a_reference_with_more_checkpoints_than_rounds_is_a_level_line() -> None:
    erm = Method(aggregator="CentralisedERM", settings={"optimizer": "adam", "steps": 300, "checkpoint_every": 25})
    (chart,) = charts("convergence", [figure_run(), figure_run(erm, protocol={"rounds": 12})])
    levels = chart.frame[chart.frame["level"].astype(bool)]
    assert [*zip(levels["label"], levels["x"], strict=True)] == [("ERM", 0), ("ERM", 2)]
    assert "25 steps of a reference count as a round" in chart.caption


def test_cosines_have_a_line_per_site_and_the_mean_beside_the_direction_where_they_differ() -> None:
    rounds = [
        one_round(1, {"cartoon": Site(with_direction=0.9, with_mean=0.7), "sketch": Site()}),
        one_round(2, {"cartoon": Site(with_direction=0.5, with_mean=0.6)}),
        one_round(3, {"cartoon": Site()}, moved=False),
    ]
    found = charts("cosines", [figure_run(fedomg(), rounds=rounds), figure_run(FEDAVG, rounds=rounds)])
    assert [chart.name for chart in found] == ["cosines-fedavg", "cosines-fedomg"]
    shown, (direction, mean) = lines(found[1], "label", "quantity"), found[1].quantities
    assert shown["cartoon", direction] == {1: 0.9, 2: 0.5}
    assert shown["cartoon", mean] == {1: 0.7, 2: 0.6}
    assert shown["sketch", direction] == {1: 0.9}
    same = [one_round(1, {"cartoon": Site(with_direction=0.8, with_mean=0.8 + 1e-9)})]
    (chart,) = charts("cosines", [figure_run(rounds=same)])
    assert (len(lines(chart, "line")), chart.quantities) == (1, (direction,))
    with pytest.raises(DataError):
        make_pictures("cosines", [figure_run(rounds=[one_round(1, {"cartoon": Site()}, moved=False)])])


def test_weights_show_gamma_beside_the_reference_weights_only_where_updates_are_matched() -> None:
    matched = [one_round(1, {"cartoon": Site(weight=0.5, gamma=0.9), "sketch": Site(weight=0.5, gamma=0.1)})]
    plain = [one_round(1, {"cartoon": Site(weight=0.3), "sketch": Site(weight=0.7)})]
    average, omg = charts("weights", [figure_run(FEDAVG, rounds=plain), figure_run(fedomg(), rounds=matched)])
    assert lines(average, "line") == {"cartoon": {1: 0.3}, "sketch": {1: 0.7}}
    found = lines(omg, "quantity", "line")
    assert [found[name, "cartoon"] for name in omg.quantities] == [{1: 0.9}, {1: 0.5}]


def test_measures_have_a_panel_each_where_a_method_has_them() -> None:
    plain, aligned = (one_round(1, {"cartoon": Site(), "sketch": Site()}) for _ in range(2))
    for made, distance in ((plain, 2.0), (aligned, 1.0)):
        assert made.aggregation is not None
        made.aggregation.gradient_divergence = distance
    aligned.classifier_disagreement = 0.25
    (chart,) = charts("measures", [figure_run(FEDAVG, rounds=[plain]), figure_run(fedomg(), rounds=[aligned])])
    assert [panel.y_label for panel in chart.panels] == ["gradient divergence", "classifier disagreement"]
    assert list(lines(chart, "y_label", "line").values()) == [{1: 2.0}, {1: 1.0}, {1: 0.25}]
    with pytest.raises(DataError):
        make_pictures("measures", [figure_run(rounds=[one_round(1, {"cartoon": Site()})])])


def kappa_runs(target: str = "photo") -> list[Run]:
    return [
        with_accuracy(fedomg(kappa=kappa), accuracy, target, seed)
        for kappa, values in KAPPAS.items()
        for seed, accuracy in enumerate(values)
    ]


def chart_of(runs: Sequence[Run]) -> Chart:
    (chart,) = charts("sensitivity", runs)
    return chart


def test_sensitivity_is_over_the_only_setting_that_varies_with_level_lines_of_other_methods() -> None:
    chart = chart_of([*kappa_runs(), with_accuracy(FEDAVG, 0.4)])
    assert (chart.name, chart.x_label, chart.scale) == ("sensitivity-kappa", "kappa", "linear")
    points = chart.frame[chart.frame["label"] == "FedOMG"].set_index("x")
    for kappa, values in KAPPAS.items():
        point = points.loc[kappa]
        assert (point["mean"], point["std"]) == pytest.approx((statistics.fmean(values), statistics.stdev(values)))
    level = chart.frame[chart.frame["label"] == "FedAvg"]
    assert (set(level["level"]), lines(chart, "label")["FedAvg"]) == ({True}, {0.1: 0.4, 0.3: 0.4})


def test_sensitivity_has_the_average_only_with_a_run_on_every_domain() -> None:
    three = [run for target in DOMAINS[:3] for run in kappa_runs(target) if run.seed == 0]
    assert [panel.title for panel in chart_of(three).panels] == [f"held out: {target}" for target in DOMAINS[:3]]
    whole = chart_of([*three, *(run for run in kappa_runs("sketch") if run.seed == 0)])
    assert whole.panels[-1].title == AVERAGE
    assert whole.of(whole.panels[-1])["values"].iloc[0] == "0:0.5"


def test_sensitivity_to_settings_of_the_protocol_and_its_scales() -> None:
    runs = [with_accuracy(FEDAVG, epochs / 10, protocol={"local_epochs": epochs}) for epochs in (1, 2, 5)]
    assert lines(chart_of(runs), "line") == {"FedAvg": {1: 0.1, 2: 0.2, 5: 0.5}}
    rules = ("all", {"personal": ["classifier.*"]}, {"personal": ["extractor.*"]})
    objects = [with_accuracy(FEDAVG, 0.5, protocol={"travels": rule}) for rule in rules]
    assert len(chart_of(objects).categories) == 3
    scales = {(0.01, 0.5): "log", (0.1, 1.0): "linear", (0.0, 0.5): "linear", (0.0, 0.01, 0.5): "symlog"}
    for kappas, scale in scales.items():
        assert chart_of([with_accuracy(fedomg(kappa=kappa), 0.5) for kappa in kappas]).scale == scale
    chart = chart_of([with_accuracy(fedomg(rescale=value), 0.5 + value / 10) for value in (True, False)])
    assert chart.categories == ("False", "True")
    assert list(chart.numbers()["rescale"]) == ["False", "True"]


def test_a_divided_domain_has_the_images_of_each_class_at_its_sites() -> None:
    with pytest.raises(SettingsError):
        make_pictures("partition", [figure_run(protocol={"partition": "dirichlet"})])
    census = {site: census_reply(site, split=f"pacs/iid@0/part{site[-1]}of2") for site in ("art-1", "art-2")}
    run = figure_run(target="art-2", domains={site: site for site in census}, census=census)
    run.record.protocol = run.record.protocol.model_copy(update={"partition": "dirichlet"})
    (picture,) = make_pictures("partition", [run])
    assert picture.frame["images"].sum() == sum(census["art-1"].class_counts)


def test_varied_settings() -> None:
    rates = [with_accuracy(fedomg(kappa=kappa, server_lr=rate), 0.5) for kappa in (0.1, 0.5) for rate in (0.05, 1)]
    assert varied_settings(rates) == ("kappa", "server_lr")
    for runs in (rates, [with_accuracy(FEDAVG, 0.5), with_accuracy(fedomg(), 0.5)]):
        with pytest.raises(SettingsError):
            chart_of(runs)
    with pytest.raises(DataError):
        chart_of([figure_run(fedomg(kappa=kappa), scores=[{"cartoon": judged()}]) for kappa in KAPPAS])


def confident(right: int, images: int = 40) -> Evaluation:
    """Return a score of predictions with a confidence of a quarter, or of three quarters for all but ten."""
    histogram = np.zeros((1, 2, 512), dtype=int)
    histogram[0, :, 128] = (5, 5)
    histogram[0, :, 384] = (images - 5 - right, right - 5)
    sums = {"accuracy": {"sum": float(right), "count": images}}
    told = {"split": "validation", "loss": 1.0, "count": images, "sums": sums}
    return Evaluation.model_validate({**told, "counts": {"confidence": pack(histogram)}})


def test_bins_are_those_of_all_seeds_and_runs_without_histograms_have_none() -> None:
    protocol = {"scores": ("calibration_error",)}
    runs = [
        figure_run(one, seed=seed, scores=[dict.fromkeys(DOMAINS, confident(right + seed))] * 2, protocol=protocol)
        for one, right in ((FEDAVG, 20), (FEDGA, 30))
        for seed in (0, 1)
    ]
    (picture,) = make_pictures("reliability", runs)
    assert "seeds 0, 1 together" in picture.caption
    table = picture.numbers()
    first, second = (table[table["line"] == line] for line in ("FedAvg", "FedDG-GA"))
    assert set(table["panel"]) == {"held out: photo"}
    assert set(first["histograms"]) == {2}
    assert list(first["few"]) == ["true", "false"]  # 10 and 30 images of a model
    bins = first[["images", "confidence", "correct"]].to_numpy(float)
    assert bins.tolist() == [pytest.approx([20, 0.25, 0.5], abs=1e-3), pytest.approx([60, 0.75, 31 / 60], abs=1e-3)]
    (error,), (other,) = (set(of["calibration_error"]) for of in (first, second))
    assert error == pytest.approx((20 * 0.25 + 60 * (0.75 - 31 / 60)) / 80, abs=1e-3)
    assert other < error
    assert table.groupby("line")["images"].sum().tolist() == [80, 80]
    with pytest.raises(DataError) as caught:
        make_pictures("reliability", [figure_run()])
    assert "scores" in str(caught.value)
