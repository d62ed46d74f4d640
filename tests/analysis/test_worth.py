# SPDX-License-Identifier: Apache-2.0
"""What a federation gives a site: pairs with its own model, intervals over independent values, and their absence."""

import itertools

import pytest
from scipy import stats

from fdg_plugins.errors import SettingsError
from fdg_plugins.lab.analysis import Run, Table, build_table
from fdg_plugins.record.round_record import Method
from tests.analysis.run_stubs import DOMAINS, FEDAVG, evaluation, lines, means, run

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


def compared(targets: tuple[str, ...], seeds: int) -> tuple[Table, dict[tuple[str, int], float]]:
    """Return the table of runs with a gain by domain and by seed, and the gain of each pair."""
    by_domain, by_seed = {"photo": 0.1, "sketch": 0.2, "cartoon": 0.4}, (0.0, 0.1, -0.05)
    gains = {(target, seed): by_domain[target] + by_seed[seed] for target in targets for seed in range(seeds)}
    runs = [trained_alone(*pair) for pair in gains]
    return build_table([*runs, *(federated(*pair, 0.5 + gain, 0.3 + gain) for pair, gain in gains.items())]), gains


def test_the_difference_has_an_interval_over_seeds_at_home_and_over_held_out_domains_elsewhere() -> None:
    targets = ("photo", "sketch", "cartoon")
    table, gains = compared(targets, 3)
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
    table, _ = compared(("photo", "sketch"), 2)
    (line,) = lines(table, kind="federated_minus_alone", site="cartoon", on="held out")
    assert (line["mean"], line["standard_error"], line["interval"]) == (pytest.approx(0.2), pytest.approx(0.05), None)
    assert "+20.0 (n=2, SE 5.0)" in table.text()
    table = build_table([trained_alone("photo", 0), federated("photo", 0, 0.9, 0.5)])
    assert {line["interval"] for line in lines(table, kind="federated_minus_alone")} == {None}
    text = table.text()
    assert "+10.0" in text
    assert "fdg evaluate local_models/" in text
    assert "Is the federation" not in build_table([federated("photo", 0, 0.9, 0.5)]).text()
    bare = trained_alone("photo", 0)
    for one in bare.record.evaluations:  # as of a study, which does not keep them
        one.own.clear()
    assert "Is the federation" not in build_table([bare, federated("photo", 0, 0.9, 0.5)]).text()


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
