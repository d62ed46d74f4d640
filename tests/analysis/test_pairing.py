# SPDX-License-Identifier: Apache-2.0
"""Methods compared cell by cell: mean ranks, and paired differences to FedAvg with their standard errors."""

import math
from collections.abc import Sequence
from typing import Any

import pytest

from fdg_plugins.data import dataset_spec
from fdg_plugins.lab.analysis import Run, build_table
from fdg_plugins.lab.analysis.comparisons import differences
from fdg_plugins.record.round_record import Method
from fdg_plugins.tasks import ScoreKind
from tests.analysis.run_stubs import DOMAINS, FEDAVG, FEDGA, FEDOMG, lines, run, runs_of
from tests.analysis.test_comparable import reference_run

# Differences of FedOMG: +0.1, +0.3 on photo, -0.1 on sketch with seed 0; FedAvg has no run on sketch with seed 1.
RUNS: Sequence[Run] = [
    *runs_of(FEDAVG, {"photo": (0.5, 0.6), "sketch": (0.4,)}),
    *runs_of(FEDOMG, {"photo": (0.6, 0.9), "sketch": (0.3, 0.8)}),
    *runs_of(FEDGA, {"photo": (0.6,)}),
]


DIGITS = {"dataset": "rotateddigits", "rounds": 5, "keep_momentum": False}


def compared(runs: Sequence[Run], kind: str = "paired_difference", *rules: str) -> dict[str, dict[str, Any]]:
    """Return the lines of ranks or differences by label."""
    return {line["label"]: line for line in lines(build_table(runs, rules or ("last",)), kind=kind)}


def weighed(**settings: Any) -> Method:
    """Return FedAvg with some settings."""
    return FEDAVG.model_copy(update={"settings": {**FEDAVG.settings, **settings}})


def test_a_difference_is_over_the_cells_that_both_have_with_the_standard_error_of_pairs() -> None:
    found = compared(RUNS)["FedOMG"]
    pairs = {place: float(value) for place, value in (one.split(":") for one in found["values"].split(";"))}
    assert pairs == pytest.approx({"photo/0": 0.1, "photo/1": 0.3, "sketch/0": -0.1})
    # The deviations from 0.1 are 0, 0.2 and -0.2: variance 0.08 / 2, error its root over the root of 3.
    assert (found["mean"], found["standard_error"], found["pairs"]) == pytest.approx((0.1, math.sqrt(0.04 / 3), 3))
    one = compared(RUNS)["FedDG-GA"]
    assert (one["mean"], one["pairs"]) == pytest.approx((0.1, 1))
    assert one["standard_error"] is None
    # What is common to all cells of a domain changes no difference.
    harder = [*runs_of(FEDAVG, {"photo": (0.5, 0.6), "sketch": (0.1,)})]
    harder += runs_of(FEDOMG, {"photo": (0.6, 0.9), "sketch": (0.0,)})
    other = compared(harder)["FedOMG"]
    assert (other["mean"], other["standard_error"]) == pytest.approx((found["mean"], found["standard_error"]))


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
    everywhere = dict.fromkeys(DOMAINS, (0.5, 0.6))
    reference = reference_run("erm", "erm", "photo", 0, (0.9,))
    pairs = compared([*runs_of(FEDAVG, everywhere), *runs_of(FEDOMG, everywhere), reference])
    values = ";".join(f"{domain}/{seed}:0.0" for domain in sorted(DOMAINS) for seed in (0, 1))
    assert pairs["FedOMG"]["values"] == values
    assert list(pairs) == ["FedOMG"]


def test_of_several_fedavgs_the_one_with_default_settings_is_compared_with() -> None:
    table = build_table([*RUNS, *runs_of(weighed(server_lr=0.5), {"photo": (0.45, 0.4)})], ("last",))
    assert "minus FedAvg (server_lr 1.0)" in table.text()
    other = [pair for rate in (0.5, 0.7) for pair in runs_of(weighed(server_lr=rate), {"photo": (0.5, 0.6)})]
    for runs in ([*other, *runs_of(FEDOMG, {"photo": (0.5, 0.6)})], RUNS[-3:], RUNS[:3], [RUNS[0], *RUNS[3:]]):
        assert build_table(runs, ("last",)).below == ()


def test_the_defaults_are_those_of_the_data_set() -> None:
    domains = dataset_spec("rotateddigits").domains[:4]
    runs = [
        run(f"{weighting}-{seed}", weighed(weighting=weighting), domains[0], seed, domains=domains, protocol=DIGITS)
        for weighting in ("samples", "uniform")
        for seed in (0, 1)
    ]
    assert "minus FedAvg (weighting uniform)" in build_table(runs).text()


def test_text_and_numbers_have_ranks_and_pairs() -> None:
    table = build_table(RUNS, ("last",))
    assert [list(sheet.frame["method"]) for sheet in table.sheets()] == [["FedAvg", "FedDG-GA", "FedOMG"]] * 2
    _, _, below = table.text().partition("paired with FedAvg")
    _, _, below = below.partition("\n")
    rows = [line.split() for line in below.splitlines() if line.startswith("Fed")]
    assert rows == [
        ["FedAvg", "3.00", "-", "-", "-", "-"],
        ["FedDG-GA", "1.50", "+10.0", "-", "-", "1"],
        ["FedOMG", "1.50", "+10.0", "11.5", "15.0", "3"],
    ]
    plain = build_table([*runs_of(FEDAVG, {"photo": (0.5, 0.6)}), *runs_of(FEDGA, {"photo": (0.5, 0.6)})], ("last",))
    assert "SE over domains" not in plain.text()  # one domain has no deviation
