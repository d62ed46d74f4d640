# SPDX-License-Identifier: Apache-2.0
"""Accuracy against a setting: which one, in which groups, on which axis."""

import statistics
from collections.abc import Sequence
from typing import Any

import pytest

from fdg_plugins.errors import DataError, SettingsError
from fdg_plugins.lab.analysis import Run
from fdg_plugins.lab.analysis.figures import Chart, Request, make_pictures
from fdg_plugins.lab.analysis.figures.picture import Scale
from fdg_plugins.lab.analysis.figures.sensitivity import AVERAGE
from fdg_plugins.lab.analysis.varied import varied_settings
from fdg_plugins.record.run_record import InitialWeights
from tests.figures.figure_stubs import DOMAINS, FEDAVG, fedomg, figure_run, with_accuracy

KAPPAS = {0.1: (0.5, 0.6), 0.3: (0.7, 0.9)}


def kappa_runs(target: str = "photo") -> list[Run]:
    return [
        with_accuracy(fedomg(kappa), target, seed, accuracy)
        for kappa, values in KAPPAS.items()
        for seed, accuracy in enumerate(values)
    ]


def chart_of(runs: Sequence[Run], **request: Any) -> Chart:
    (chart,) = make_pictures("sensitivity", runs, Request(**request))
    assert isinstance(chart, Chart)
    return chart


def test_the_only_setting_that_varies_is_the_axis_and_points_are_means_over_seeds() -> None:
    chart = chart_of(kappa_runs())
    assert (chart.name, chart.x_label, chart.scale) == ("sensitivity-kappa", "kappa", Scale.LINEAR)
    ((line,),) = [panel.lines for panel in chart.panels]
    assert line.label == "FedOMG"
    for kappa, values in KAPPAS.items():
        point = line.points[kappa]
        assert (point.mean, point.std) == pytest.approx((statistics.fmean(values), statistics.stdev(values)))
    assert "selection: source validation, mean" in chart.caption


def test_a_method_without_the_setting_is_a_level_line_over_all_its_values() -> None:
    chart = chart_of([*kappa_runs(), with_accuracy(FEDAVG, "photo", 0, 0.4)])
    level = next(line for line in chart.panels[0].lines if line.is_constant)
    assert (level.label, {x: point.mean for x, point in level.points.items()}) == ("FedAvg", {0.1: 0.4, 0.3: 0.4})


def test_the_average_is_shown_only_with_a_run_on_every_domain_and_is_taken_within_seeds() -> None:
    three = [run for target in DOMAINS[:3] for run in kappa_runs(target)]
    assert [panel.title for panel in chart_of(three).panels] == [f"held out: {target}" for target in DOMAINS[:3]]
    whole = chart_of([*three, *kappa_runs("sketch")])
    assert whole.panels[-1].title == AVERAGE
    (line,) = whole.panels[-1].lines
    assert line.points[0.1].mean == pytest.approx(0.55)
    assert line.points[0.1].by_seed == pytest.approx({0: 0.5, 1: 0.6})


def test_a_setting_of_the_protocol_may_vary_where_it_is_the_axis() -> None:
    runs = [with_accuracy(FEDAVG, "photo", 0, epochs / 10, protocol={"local_epochs": epochs}) for epochs in (1, 2, 5)]
    chart = chart_of(runs)
    assert {x: point.mean for x, point in chart.panels[0].lines[0].points.items()} == {1: 0.1, 2: 0.2, 5: 0.5}
    differing = [*runs, with_accuracy(FEDAVG, "photo", 0, 0.5, protocol={"local_epochs": 1, "image_size": 32})]
    with pytest.raises(SettingsError, match=r"image_size of the protocol is 224 in .* and 32 in"):
        chart_of(differing, setting="local_epochs")


def test_networks_on_the_axis_may_each_have_a_pretrained_file() -> None:
    runs = [
        with_accuracy(
            FEDAVG,
            "photo",
            0,
            0.5,
            protocol={"model": model},
            initial_weights=InitialWeights(label="pretrained file", file=model, sha256=64 * digit),
        )
        for model, digit in (("resnet18", "a"), ("resnet50", "b"))
    ]
    chart = chart_of(runs)
    assert chart.categories == ("resnet18", "resnet50")
    assert "pretrained file, resnet18 or resnet50, 224 px" in chart.caption


def test_a_data_set_of_ones_own_is_no_axis_and_no_obstacle() -> None:
    own = {"dataset": {"name": "mine", "domains": DOMAINS, "classes": ["dog", "elephant"]}}
    runs = [with_accuracy(fedomg(kappa), "photo", 0, 0.5, protocol=own) for kappa in KAPPAS]
    assert varied_settings(runs) == ("kappa",)
    assert chart_of(runs).x_label == "kappa"


def test_values_over_more_than_a_decade_get_a_logarithmic_axis_beside_zero_too() -> None:
    for kappas, scale in (
        ((0.01, 0.5), Scale.LOG),
        ((0.1, 1.0), Scale.LINEAR),
        ((0.0, 0.5), Scale.LINEAR),
        ((0.0, 0.01, 0.5), Scale.ZERO_AND_LOG),
    ):
        assert chart_of([with_accuracy(fedomg(kappa), "photo", 0, 0.5) for kappa in kappas]).scale is scale


def test_values_that_are_no_numbers_are_categories() -> None:
    chart = chart_of([with_accuracy(fedomg(rescale=value), "photo", 0, 0.5 + value / 10) for value in (True, False)])
    assert (chart.scale, chart.categories) == (Scale.CATEGORIES, ("False", "True"))
    assert {x: point.mean for x, point in chart.panels[0].lines[0].points.items()} == {0: 0.5, 1: 0.6}
    assert [row["rescale"] for row in chart.rows()] == ["False", "True"]


def test_values_that_are_objects_are_categories_too() -> None:
    rules = ("all", {"personal": ["classifier.*"]}, {"personal": ["extractor.*"]})
    runs = [
        with_accuracy(FEDAVG, "photo", 0, place / 10, protocol={"travels": rule}) for place, rule in enumerate(rules)
    ]
    chart = chart_of(runs, setting="travels")
    assert chart.scale is Scale.CATEGORIES
    assert len(set(chart.categories)) == 3
    found = {chart.categories[int(x)]: point.mean for x, point in chart.panels[0].lines[0].points.items()}
    assert found["all"] == 0.0
    assert next(mean for text, mean in found.items() if "extractor" in text) == pytest.approx(0.2)


def test_where_another_setting_varies_too_each_of_its_values_is_a_line() -> None:
    runs = [
        with_accuracy(fedomg(kappa, server_lr=rate), "photo", 0, 0.5) for kappa in (0.1, 0.5) for rate in (0.05, 1.0)
    ]
    assert varied_settings(runs) == ("kappa", "server_lr")
    lines = chart_of(runs, setting="kappa").panels[0].lines
    assert [line.label for line in lines] == ["FedOMG (server_lr 0.05)", "FedOMG (server_lr 1.0)"]
    with pytest.raises(SettingsError, match="several settings vary: kappa, server_lr among these runs"):
        chart_of(runs)


def test_a_setting_that_changes_no_number_is_no_axis() -> None:
    runs = [
        with_accuracy(fedomg(kappa), "photo", 0, 0.5, protocol={"keep_local_models": kappa < 0.3}) for kappa in KAPPAS
    ]
    assert varied_settings(runs) == ("kappa",)


def test_methods_that_differ_in_a_setting_do_not_vary_it() -> None:
    runs = [with_accuracy(FEDAVG, "photo", 0, 0.5), with_accuracy(fedomg(server_lr=0.05), "photo", 0, 0.5)]
    assert varied_settings(runs) == ()
    with pytest.raises(SettingsError, match="no setting of a method varies among these runs"):
        chart_of(runs)


@pytest.mark.parametrize(
    ("setting", "reason"),
    [
        (
            "server_lr",
            "setting 'server_lr' .--setting. is 1.0 in every run of a method; expected one that varies: kappa",
        ),
        ("kapa", "setting 'kapa' .--setting. is not a setting of these runs; expected one that varies: kappa"),
    ],
)
def test_a_setting_that_does_not_vary_is_refused(setting: str, reason: str) -> None:
    with pytest.raises(SettingsError, match=reason):
        chart_of(kappa_runs(), setting=setting)


def test_runs_without_a_score_are_refused_by_the_rule() -> None:
    runs = [figure_run(fedomg(kappa), scores=[{}]) for kappa in (0.1, 0.5)]
    with pytest.raises(DataError, match="no run has a score on its held-out domain for the rule oracle"):
        chart_of(runs, selection="oracle")
