# SPDX-License-Identifier: Apache-2.0
"""Estimates compared: mean ranks, paired differences to FedAvg, and what a federation gives a site; by hand."""

import itertools
import math
from collections.abc import Sequence
from typing import Any

import pytest
from scipy import stats

from fdg_plugins.errors import SettingsError
from fdg_plugins.lab.analysis import Run, Table, build_table
from fdg_plugins.lab.analysis.comparisons import differences
from fdg_plugins.lab.analysis.estimates import cell_of, difference, estimate, text_of
from fdg_plugins.record.round_record import Method
from fdg_plugins.tasks import ScoreKind
from tests.analysis.run_stubs import DOMAINS, FEDAVG, FEDGA, FEDOMG, evaluation, lines, means, run, runs_of
from tests.analysis.test_comparable import reference_run


def test_estimate_by_hand() -> None:
    found = estimate({2: 0.7, 0: 0.5, 1: 0.6})
    # Deviations -0.1, 0, 0.1: squares sum to 0.02, over n - 1 = 2 gives 0.01.
    assert (found["mean"], found["std"], found["seeds"]) == pytest.approx((0.6, 0.1, 3))
    assert found["standard_error"] == pytest.approx(0.1 / math.sqrt(3))
    assert found["values"] == "0:0.5;1:0.6;2:0.7"
    assert text_of(found, 100) == "60.0 ± 10.0"
    assert {**estimate({4: 0.25}), **cell_of(0.25, None, 1)} == estimate({4: 0.25})
    assert estimate({}) == {}


@pytest.mark.parametrize(
    ("ours", "theirs", "error", "verdict"),
    [
        # 0.03^2 / 9 + 0.04^2 / 4 = 0.0001 + 0.0004; twice the error is 0.0447
        ((0.80, 0.03, 9), (0.75, 0.04, 4), math.sqrt(0.0005), "no"),
        ((0.80, 0.03, 9), (0.76, 0.04, 4), math.sqrt(0.0005), "yes"),
        ((0.80, 0.03, 9), (0.84, 0.04, 4), math.sqrt(0.0005), "yes"),
        ((0.80, 0.03, 9), (0.85, 0.04, 4), math.sqrt(0.0005), "no"),
        ((0.8, None, 1), (0.8, 0.1, 3), None, "unknown"),
        ((0.8, 0.1, 3), (0.8, None, 3), None, "unknown"),
        ((0.8, 0.1, 2), (0.8, 0.2, 4), math.sqrt(0.015), "unknown"),  # two runs are too few
    ],
)
def test_difference(
    ours: tuple[float, float | None, int], theirs: tuple[float, float | None, int], error: float | None, verdict: str
) -> None:
    found = difference(cell_of(*ours), cell_of(*theirs))
    assert found["mean"] == pytest.approx(ours[0] - theirs[0])
    assert found["standard_error"] == (None if error is None else pytest.approx(error))
    assert found["within_two_standard_errors"] == verdict


# Differences of FedOMG: +0.1, +0.3 on photo, -0.1 on sketch with seed 0; FedAvg has no run on sketch with seed 1.
RUNS: Sequence[Run] = [
    *runs_of(FEDAVG, {"photo": (0.5, 0.6), "sketch": (0.4,)}),
    *runs_of(FEDOMG, {"photo": (0.6, 0.9), "sketch": (0.3, 0.8)}),
    *runs_of(FEDGA, {"photo": (0.6,)}),
]


def compared(runs: Sequence[Run], kind: str = "paired_difference", *rules: str) -> dict[str, dict[str, Any]]:
    """Return the lines of ranks or differences by label."""
    return {line["label"]: line for line in lines(build_table(runs, rules or ("last",)), kind=kind)}


def test_a_difference_is_over_the_cells_that_both_have_with_the_standard_error_of_pairs() -> None:
    found = compared(RUNS)["FedOMG"]
    pairs = {place: float(value) for place, value in (one.split(":") for one in found["values"].split(";"))}
    assert pairs == pytest.approx({"photo/0": 0.1, "photo/1": 0.3, "sketch/0": -0.1})
    # The deviations from 0.1 are 0, 0.2 and -0.2: variance 0.08 / 2, error its root over the root of 3.
    assert (found["mean"], found["standard_error"], found["pairs"]) == pytest.approx((0.1, math.sqrt(0.04 / 3), 3))
    one = compared(RUNS)["FedDG-GA"]
    assert (one["mean"], one["pairs"]) == pytest.approx((0.1, 1))
    assert one["standard_error"] is None


def test_ranks_are_over_the_cells_that_all_have_and_equal_scores_share_theirs() -> None:
    found = compared(RUNS, "mean_rank")
    assert {line["pairs"] for line in found.values()} == {1}
    assert {label: line["mean"] for label, line in found.items()} == {"FedAvg": 3.0, "FedOMG": 1.5, "FedDG-GA": 1.5}
    without = compared([run for run in RUNS if run.method != "fedga"], "mean_rank")
    assert {label: line["mean"] for label, line in without.items()} == pytest.approx({"FedAvg": 5 / 3, "FedOMG": 4 / 3})
    distance = ScoreKind("distance", "Distance", higher_is_better=False)
    values = {"fedavg": 0.1, "fedomg": 0.3, "fedga": 0.2}
    scores = [(name, "last", "photo", seed, value) for name, value in values.items() for seed in (0, 1)]
    assert list(differences(scores, "fedavg", distance)["rank"]) == [1.0, 3.0, 2.0]


def test_oracle_average_and_references_are_not_compared() -> None:
    table = build_table(RUNS, ("last", "source_validation", "oracle"))
    found = lines(table, kind="mean_rank")
    assert ({line["selection"] for line in found}, len(found)) == ({"last", "source_validation"}, 6)
    pairs = compared([*RUNS[:5], reference_run("erm", "erm", "photo", 0, (0.9,))])
    assert list(pairs) == ["FedOMG"]


def test_of_several_fedavgs_the_one_with_default_settings_is_compared_with() -> None:
    def fedavg(server_lr: float) -> list[Run]:
        settings = {**FEDAVG.settings, "server_lr": server_lr}
        return runs_of(FEDAVG.model_copy(update={"settings": settings}), {"photo": (0.5, 0.6)})

    assert "minus FedAvg (server_lr 1.0)" in build_table([*RUNS, *fedavg(0.5)], ("last",)).text()
    other = [*fedavg(0.5), *fedavg(0.7)]
    for runs in ([*other, *runs_of(FEDOMG, {"photo": (0.5, 0.6)})], RUNS[-3:], RUNS[:3], [RUNS[0], *RUNS[3:]]):
        assert build_table(runs, ("last",)).below == ()


ALONE = Method(aggregator="LocalOnly", settings={})
OWN = (0.2, 0.8, 0.4)  # accuracies of a site's model after each round on its own images: the second is chosen


def trained_alone(target: str, seed: int, **protocol: int) -> Run:
    """Return a run of sites alone: each has OWN at home, and 0.3 at any other."""
    stub = run(f"alone-{target}-{seed}", ALONE, target, seed, protocol=protocol)
    sources = stub.record.sources
    stub.record.evaluations.clear()
    for number, accuracy in enumerate(OWN):
        own = {site: {at: evaluation(accuracy if at == site else 0.3) for at in (*sources, target)} for site in sources}
        stub.record.add_evaluation(number, own[sources[0]], own=own)
    return stub


def federated(target: str, seed: int, source: float, accuracy: float) -> Run:
    return run(f"fed-{target}-{seed}", FEDAVG, target, seed, (accuracy,), sources=[(source,) * 3])


def gained(targets: tuple[str, ...], seeds: int) -> tuple[Table, dict[tuple[str, int], float]]:
    """Return the table of runs with a gain by domain and by seed, and the gain of each pair."""
    by_domain, by_seed = {"photo": 0.1, "sketch": 0.2, "cartoon": 0.4}, (0.0, 0.1, -0.05)
    gains = {(target, seed): by_domain[target] + by_seed[seed] for target in targets for seed in range(seeds)}
    runs = [trained_alone(*pair) for pair in gains]
    return build_table([*runs, *(federated(*pair, 0.5 + gain, 0.3 + gain) for pair, gain in gains.items())]), gains


def test_the_difference_has_an_interval_over_seeds_at_home_and_over_held_out_domains_elsewhere() -> None:
    targets = ("photo", "sketch", "cartoon")
    table, gains = gained(targets, 3)
    assert means(table)["Local", "photo"] == pytest.approx(0.3)
    found = {(line["site"], line["on"]): line for line in lines(table, kind="federated_minus_alone")}
    assert set(found) == set(itertools.product(DOMAINS, ("own data", "held out")))
    home, away = found["art_painting", "own data"], found["art_painting", "held out"]
    of_seeds = [sum(gains[target, seed] - 0.3 for target in targets) / 3 for seed in range(3)]
    of_domains = [sum(gains[target, seed] for seed in range(3)) / 3 for target in targets]
    for line, values in ((home, of_seeds), (away, of_domains)):
        low, high = stats.t.interval(0.95, 2, sum(values) / 3, stats.sem(values))
        assert (line["mean"] - line["interval"], line["mean"] + line["interval"]) == pytest.approx((low, high))
        assert line["pairs"] == 9
    alone, both = (lines(table, kind=kind, site="art_painting", on="own data")[0] for kind in ("alone", "federated"))
    assert (alone["mean"], both["mean"]) == (pytest.approx(0.8), pytest.approx(0.8 + sum(of_seeds) / 3))


def test_two_values_have_a_standard_error_and_one_seed_no_interval() -> None:
    table, _ = gained(("photo", "sketch"), 2)
    (line,) = lines(table, kind="federated_minus_alone", site="cartoon", on="held out")
    assert (line["mean"], line["standard_error"], line["interval"]) == (pytest.approx(0.2), pytest.approx(0.05), None)
    assert "+20.0 (n=2, SE 5.0)" in table.text()
    both = federated("photo", 0, 0.9, 0.5)
    table = build_table([trained_alone("photo", 0), both])
    assert {line["interval"] for line in lines(table, kind="federated_minus_alone")} == {None}
    bare = trained_alone("photo", 0)
    for one in bare.record.evaluations:  # as of a study, which does not keep them
        one.own.clear()
    for runs in ([both], [bare, both]):
        assert lines(build_table(runs), kind="federated_minus_alone") == []


def test_a_sites_personal_model_counts_at_home() -> None:
    theirs = federated("photo", 0, 0.5, 0.5)
    (only,), sources = theirs.record.evaluations, theirs.record.sources
    theirs.record.evaluations.clear()
    theirs.record.add_evaluation(0, only.sites, personal=dict.fromkeys(sources, evaluation(0.95)))
    table = build_table([trained_alone("photo", 0), theirs])
    assert {line["mean"] for line in lines(table, kind="federated", on="own data")} == {0.95}
    assert {line["mean"] for line in lines(table, kind="federated", on="held out")} == {0.5}


def test_other_passes_over_the_images_are_refused() -> None:
    with pytest.raises(SettingsError):
        build_table([trained_alone("photo", 0, local_epochs=3), federated("photo", 0, 0.9, 0.5)])
