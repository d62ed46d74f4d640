# SPDX-License-Identifier: Apache-2.0
"""The numbers of figures against rounds, and of the time per round, on runs small enough to follow by hand."""

import math
import statistics
from collections.abc import Sequence

import pytest

from fdg_plugins.errors import DataError
from fdg_plugins.lab.analysis import Run
from fdg_plugins.lab.analysis.figures import Bars, Chart, make_pictures
from fdg_plugins.lab.analysis.figures.convergence import sources_by_round
from fdg_plugins.lab.analysis.figures.gaps import deviation_by_round, gaps_by_round, mean_by_round
from fdg_plugins.lab.analysis.figures.picture import Line
from fdg_plugins.lab.analysis.figures.seconds import quartiles
from fdg_plugins.messages import Evaluation
from fdg_plugins.record.run_record import Method
from fdg_plugins.tasks import CLASSIFICATION, SEGMENTATION, Task
from tests.figures.figure_stubs import FEDAVG, FEDGA, Site, fedomg, figure_run, judged, one_round

SITES = {"cartoon": "cartoon", "photo-1": "photo", "photo-2": "photo", "sketch": "sketch"}


def charts(kind: str, runs: Sequence[Run]) -> list[Chart]:
    pictures = make_pictures(kind, runs)
    assert all(isinstance(picture, Chart) for picture in pictures)
    return [picture for picture in pictures if isinstance(picture, Chart)]


def means(line: Line) -> dict[float, float]:
    return {x: point.mean for x, point in line.points.items()}


def test_convergence_shows_target_and_sources_of_each_held_out_domain() -> None:
    def scores(source: float, target: float) -> dict[str, Evaluation]:
        return {
            "art_painting": judged(accuracy=source),
            "cartoon": judged(accuracy=source),
            "sketch": judged(accuracy=source),
            "photo": judged(accuracy=target),
        }

    runs = [figure_run(FEDAVG, "photo", seed, [scores(0.5, 0.1), scores(0.7, 0.3 + seed / 10)]) for seed in (0, 1)]
    runs.append(figure_run(fedomg(), "sketch", scores=[{"sketch": judged(accuracy=0.4)}]))
    (chart,) = charts("convergence", runs)
    assert [panel.title for panel in chart.panels] == ["held out: photo", "held out: sketch"]
    target, sources = chart.panels[0].lines
    assert (target.label, target.quantity, sources.quantity) == ("FedAvg", *chart.quantities)
    assert means(target) == pytest.approx({0: 0.1, 1: 0.35})
    assert target.points[1].std == pytest.approx(statistics.stdev([0.3, 0.4]))
    assert means(sources) == pytest.approx({0: 0.5, 1: 0.7})
    # Nobody judged the sources of the other run: there is no such line, not one of zeros.
    assert [(line.label, means(line)) for line in chart.panels[1].lines] == [("FedOMG", {0: 0.4})]


def test_a_mean_over_some_of_the_source_domains_is_not_shown_as_that_over_all() -> None:
    held = {"cartoon-1of2": "cartoon", "cartoon-2of2": "cartoon", "sketch": "sketch", "photo": "photo"}
    run = figure_run(domains=held, scores=[dict.fromkeys(held, judged(accuracy=0.5))])

    def add(after_round: int, *drawn: str) -> None:
        scores = dict.fromkeys((*drawn, "photo"), judged(accuracy=0.9))
        run.record.add_evaluation(after_round, scores, expected=drawn)

    add(1, "cartoon-1of2", "cartoon-2of2")
    assert run.record.evaluations[-1].source_mean == 0.9
    assert sources_by_round(run) == {0: 0.5}
    assert "drawn" not in charts("convergence", [run])[0].caption
    add(2, "cartoon-2of2", "sketch")  # of every domain, but not by every site
    assert sources_by_round(run) == {0: 0.5, 2: 0.9}
    assert charts("convergence", [run])[0].caption.endswith("; source validation: by the sites drawn for each round")


def test_a_reference_with_more_checkpoints_than_rounds_is_a_level_line() -> None:
    erm = Method(aggregator="CentralisedERM", settings={"optimizer": "adam", "steps": 300, "checkpoint_every": 25})
    (chart,) = charts("convergence", [figure_run(), figure_run(erm, protocol={"rounds": 12})])
    levels = [line for line in chart.panels[0].lines if line.is_constant]
    assert [(line.label, list(line.points)) for line in levels] == [("ERM", [0, 2])]


def test_cosines_are_a_chart_per_method_with_a_line_per_site_and_the_mean_beside_the_direction() -> None:
    rounds = [
        one_round(1, {"cartoon": Site(with_direction=0.9, with_mean=0.7), "sketch": Site()}),
        one_round(2, {"cartoon": Site(with_direction=0.5, with_mean=0.6)}),
        one_round(3, {"cartoon": Site()}, moved=False),
    ]
    found = charts("cosines", [figure_run(fedomg(), rounds=rounds), figure_run(FEDAVG, rounds=rounds)])
    assert [chart.name for chart in found] == ["cosines-fedavg", "cosines-fedomg"]
    (panel,) = found[1].panels
    lines = {(line.label, line.quantity): means(line) for line in panel.lines}
    direction, mean = found[1].quantities
    assert lines["cartoon", direction] == {1: 0.9, 2: 0.5}
    assert lines["cartoon", mean] == {1: 0.7, 2: 0.6}
    assert lines["sketch", direction] == {1: 0.9}
    assert len(lines) == 4


@pytest.mark.parametrize("rounding", [0.0, 1e-9])
def test_where_the_direction_is_the_mean_it_is_shown_once_and_the_title_says_which(rounding: float) -> None:
    rounds = [one_round(1, {"cartoon": Site(with_direction=0.8, with_mean=0.8 + rounding)})]
    (chart,) = charts("cosines", [figure_run(rounds=rounds)])
    assert len(chart.panels[0].lines) == 1
    assert chart.quantities == ("with the direction of the step",)
    assert chart.title == "Cosine of each site's update, FedAvg (with the direction of the step)"


def test_weights_show_gamma_beside_the_reference_weights_only_where_updates_are_matched() -> None:
    matched = [one_round(1, {"cartoon": Site(weight=0.5, gamma=0.9), "sketch": Site(weight=0.5, gamma=0.1)})]
    plain = [one_round(1, {"cartoon": Site(weight=0.3), "sketch": Site(weight=0.7)})]
    average, omg = charts("weights", [figure_run(FEDAVG, rounds=plain), figure_run(fedomg(), rounds=matched)])
    assert [means(line) for line in average.panels[0].lines] == [{1: 0.3}, {1: 0.7}]
    assert [(line.name, means(line)) for line in omg.panels[0].lines] == [
        ("cartoon", {1: 0.9}),
        ("sketch", {1: 0.1}),
        ("cartoon", {1: 0.5}),
        ("sketch", {1: 0.5}),
    ]


def test_sites_of_one_domain_have_lines_of_their_own_under_one_entry_of_the_legend() -> None:
    rounds = [one_round(1, {"cartoon": Site(weight=0.2), "photo-1": Site(weight=0.3), "photo-2": Site(weight=0.5)})]
    (chart,) = charts("weights", [figure_run(target="sketch", rounds=rounds, domains=SITES)])
    lines = chart.panels[0].lines
    assert [(line.name, line.label) for line in lines] == [
        ("cartoon", "cartoon"),
        ("photo-1", "photo (2 sites)"),
        ("photo-2", "photo (2 sites)"),
    ]
    assert chart.legend == ("cartoon", "photo (2 sites)")
    assert lines[1].look == lines[2].look != lines[0].look
    assert [row["line"] for row in chart.rows()] == ["cartoon", "photo-1", "photo-2"]


def test_the_caption_says_where_quartiles_stand_for_many_sites() -> None:
    held = {f"photo-{number}": "photo" for number in range(21)} | {"sketch": "sketch"}
    rounds = [one_round(1, dict.fromkeys([*held][:21], Site(with_direction=0.5, with_mean=0.5)))]
    runs = [figure_run(target="sketch", seed=seed, rounds=rounds, domains=held) for seed in (0, 1)]
    one, two = (charts("cosines", some)[0].caption for some in (runs[:1], runs))
    assert one.endswith("one seed (0); median, quartiles and range over the sites of a domain")
    assert two.endswith(
        "seeds 0, 1; median, quartiles and range over the sites of a domain, of each site's mean over seeds"
    )


def test_runs_whose_model_never_moved_have_no_cosines() -> None:
    with pytest.raises(DataError, match="hold no numbers for a figure of the kind cosines"):
        make_pictures("cosines", [figure_run(rounds=[one_round(1, {"cartoon": Site()}, moved=False)])])


def gap_run(received: Sequence[dict[str, float]], rounds: Sequence[dict[str, float | None]]) -> Run:
    """Return a run from losses: of the model received in each round and, after it, of the sites' own."""
    scores = [{site: judged(loss) for site, loss in losses.items()} for losses in received]
    done = [
        one_round(number, {site: Site(own_loss=loss) for site, loss in losses.items()})
        for number, losses in enumerate(rounds, start=1)
    ]
    return figure_run(FEDGA, scores=scores, rounds=done)


def test_a_gap_is_the_loss_of_the_model_received_minus_that_of_the_own_model_before() -> None:
    run = gap_run(
        [{"cartoon": 9.0, "sketch": 9.0}, {"cartoon": 1.5, "sketch": 1.0}, {"cartoon": 0.5}],
        [{"cartoon": 1.0, "sketch": 1.25}, {"cartoon": 0.75, "sketch": 0.5}, {"cartoon": 0.1}],
    )
    # Round 2: 1.5 - 1.0 and 1.0 - 1.25. In round 3 only one site trains: 0.5 - 0.75.
    assert gaps_by_round(run) == {2: {"cartoon": 0.5, "sketch": -0.25}, 3: {"cartoon": -0.25}}
    assert mean_by_round(run) == {2: 0.125, 3: -0.25}
    assert deviation_by_round(run) == {2: 0.375}  # one site has no deviation
    (chart,) = charts("gaps", [run])
    assert [means(line) for panel in chart.panels for line in panel.lines] == [{2: 0.125, 3: -0.25}, {2: 0.375}]


@pytest.mark.parametrize("task", [CLASSIFICATION, SEGMENTATION])
def test_gaps_are_called_by_the_loss_of_the_task(task: Task) -> None:
    run = gap_run([{"cartoon": 9.0, "sketch": 9.0}, {"cartoon": 1.5}], [{"cartoon": 1.0, "sketch": 1.25}] * 2)
    protocol = run.record.protocol.model_copy(update={"task": task.name})
    (chart,) = charts("gaps", [Run(run.folder, run.record.model_copy(update={"protocol": protocol}))])
    assert f"gap: validation {task.loss_words} of the global model" in chart.caption
    assert {"nats" in panel.y_label for panel in chart.panels} == {task is CLASSIFICATION}
    assert {"cross entropy" in chart.caption, "Dice" in chart.caption} == {True, task is SEGMENTATION}


def test_a_site_that_was_away_is_measured_against_its_last_own_model() -> None:
    run = gap_run(
        [{"cartoon": 9.0, "sketch": 9.0}, {"sketch": 1.0}, {"cartoon": 2.0, "sketch": 1.0}],
        [{"cartoon": 1.75, "sketch": 1.0}, {"sketch": 1.0}, {"cartoon": 1.0, "sketch": 1.0}],
    )
    assert gaps_by_round(run)[3] == {"cartoon": 0.25, "sketch": 0.0}


def test_withheld_and_infinite_losses_leave_no_gap() -> None:
    run = gap_run(
        [{"cartoon": 9.0, "sketch": 9.0, "photo": 1.0}, {"cartoon": 1.0, "sketch": math.inf}],
        [{"cartoon": None, "sketch": 1.0}, {"cartoon": 1.0, "sketch": 1.0}],
    )
    assert gaps_by_round(run) == {}
    with pytest.raises(DataError, match="no run has a generalization gap; expected at least two rounds"):
        make_pictures("gaps", [run])


def test_time_is_the_median_over_all_rounds_of_a_method_and_the_slowest_site_counts() -> None:
    runs = [
        figure_run(
            seed=seed, rounds=[one_round(1, {"cartoon": Site(seconds=1.0), "sketch": Site(seconds=slow)}, whole)]
        )
        for seed, slow, whole in ((0, 4.0, 10.0), (1, 6.0, 20.0), (2, 5.0, 40.0))
    ]
    (bars,) = make_pictures("time", runs)
    assert isinstance(bars, Bars)
    found = {title: (bar.lower, bar.median, bar.upper, bar.count) for title, (bar,) in bars.panels.items()}
    assert found["whole round"] == (15.0, 20.0, 30.0, 3)
    assert found["local training, slowest site"] == (4.5, 5.0, 5.5, 3)
    assert found["aggregation at the server"] == pytest.approx((0.15, 0.2, 0.3, 3))
    assert bars.caption.endswith("devices of the sites: cpu")


def test_the_time_of_a_reference_has_no_panel_of_an_aggregation_that_it_does_not_have() -> None:
    federated = one_round(1, {"cartoon": Site(), "sketch": Site()})
    reference = federated.model_copy(update={"aggregation_seconds": 0.0})
    (alone,) = make_pictures("time", [figure_run(rounds=[reference])])
    assert isinstance(alone, Bars)
    assert list(alone.panels) == ["whole round", "local training, slowest site"]
    (beside,) = make_pictures("time", [figure_run(seed=0, rounds=[reference]), figure_run(seed=1, rounds=[federated])])
    assert isinstance(beside, Bars)
    assert [bar.count for bar in beside.panels["aggregation at the server"]] == [1]


def test_quartiles_lie_in_order_and_those_of_one_value_are_that_value() -> None:
    assert quartiles([3.0]) == (3.0, 3.0, 3.0)
    lower, median, upper = quartiles([5.0, 1.0, 9.0, 2.0, 2.0])
    assert 1.0 <= lower <= median == 2.0 <= upper <= 9.0
