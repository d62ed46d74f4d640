# SPDX-License-Identifier: Apache-2.0
"""Methods compared cell by cell: mean ranks, and paired differences to FedAvg with their standard errors."""

import csv
import math
from collections.abc import Sequence
from typing import Any

import pytest

from fdg_plugins.data import dataset_spec
from fdg_plugins.lab.analysis import Run, build_table
from fdg_plugins.lab.analysis.grid import to_grid
from fdg_plugins.lab.analysis.pairing import Comparison, Paired, mean_ranks
from fdg_plugins.lab.analysis.render_csv import render_csv
from fdg_plugins.lab.analysis.render_latex import render_latex
from fdg_plugins.lab.analysis.render_markdown import render_markdown
from fdg_plugins.lab.analysis.render_text import render_text
from fdg_plugins.record.run_record import Method
from fdg_plugins.tasks import ScoreKind
from tests.analysis.run_stubs import DOMAINS, FEDAVG, FEDGA, FEDOMG, compared_in, fedomg, run, runs_of

# Differences of FedOMG: +0.1, +0.3 on photo, -0.1 on sketch with seed 0; FedAvg has no run on sketch with seed 1.
RUNS: Sequence[Run] = [
    *runs_of(FEDAVG, {"photo": (0.5, 0.6), "sketch": (0.4,)}),
    *runs_of(FEDOMG, {"photo": (0.6, 0.9), "sketch": (0.3, 0.8)}),
    *runs_of(FEDGA, {"photo": (0.6,)}),
]


def compared(runs: Sequence[Run], rules: Sequence[str] = ("last",)) -> Comparison:
    found = compared_in(build_table(runs, rules))
    assert found is not None
    return found


def weighed(weighting: str, **settings: Any) -> Method:
    """Return FedAvg with a weighting."""
    return FEDAVG.model_copy(update={"settings": {**FEDAVG.settings, "weighting": weighting, **settings}})


def row(found: Comparison, method: str) -> Paired:
    return next(row for row in found.rows if row.method.method == method)


def test_a_difference_is_over_the_cells_that_both_have_with_the_standard_error_of_pairs() -> None:
    found = row(compared(RUNS), "fedomg")
    assert found.pairs == pytest.approx({("photo", 0): 0.1, ("photo", 1): 0.3, ("sketch", 0): -0.1})
    assert found.difference is not None
    assert found.difference.mean == pytest.approx(0.1)
    # The deviations from 0.1 are 0, 0.2 and -0.2: variance 0.08 / 2, error its root over the root of 3.
    assert found.difference.standard_error == pytest.approx(math.sqrt(0.04 / 3))
    # The domains' means are 0.2 and -0.1: variance 0.3**2 / 2, error its root over the root of 2.
    assert found.by_images is not None
    assert found.by_images.count == 2
    assert found.by_images.standard_error == pytest.approx(0.15)


def test_one_pair_has_a_difference_and_no_standard_error() -> None:
    found = row(compared(RUNS), "fedga")
    assert found.difference is not None
    assert found.difference.mean == pytest.approx(0.1)
    assert (len(found.pairs), found.difference.standard_error) == (1, None)
    below = to_grid(build_table(RUNS, ("last",))).below
    assert below is not None
    assert below.caption.endswith("over the 1 such cell that all methods have.")
    assert [[cell.text for cell in row] for row in below.rows] == [
        ["FedAvg", "3.00", "-", "-", "-", "-"],
        ["FedDG-GA", "1.50", "+10.0", "-", "-", "1"],
        ["FedOMG", "1.50", "+10.0", "11.5", "15.0", "3"],
    ]


@pytest.mark.parametrize(
    ("scores", "errors"),
    [
        ({"photo": (0.5, 0.6), "sketch": (0.4, 0.7)}, ("SE", "SE over domains")),
        ({"photo": (0.5,), "sketch": (0.4,)}, ("SE",)),  # the same number twice
        ({"photo": (0.5, 0.6)}, ("SE",)),  # one domain has no deviation
    ],
)
def test_the_error_over_domains_stands_beside_that_over_pairs_where_it_says_more(
    scores: dict[str, tuple[float, ...]], errors: tuple[str, ...]
) -> None:
    below = to_grid(build_table([*runs_of(FEDAVG, scores), *runs_of(FEDGA, scores)], ("last",))).below
    assert below is not None
    assert below.header == ("method", "mean rank", "minus FedAvg", *errors, "pairs")
    assert ("the SE over domains takes the mean of each as one value" in below.notes[0]) == (len(errors) == 2)


def test_ranks_are_over_the_cells_that_all_have_and_equal_scores_share_theirs() -> None:
    found = compared(RUNS)
    assert found.common == {"last": 1}
    assert {row.method.method: row.rank for row in found.rows} == {"fedavg": 3.0, "fedomg": 1.5, "fedga": 1.5}
    without = compared([run for run in RUNS if run.method != "fedga"])
    assert without.common == {"last": 3}
    assert {row.method.method: row.rank for row in without.rows} == {"fedavg": pytest.approx(5 / 3), "fedomg": 4 / 3}


def test_what_is_common_to_all_cells_of_a_domain_or_seed_changes_no_difference() -> None:
    harder = [
        *runs_of(FEDAVG, {"photo": (0.5, 0.6), "sketch": (0.1,)}),
        *runs_of(FEDOMG, {"photo": (0.6, 0.9), "sketch": (0.0,)}),
    ]
    first, second = (row(compared(runs), "fedomg").difference for runs in (RUNS, harder))
    assert first is not None
    assert second is not None
    assert (first.mean, first.std) == pytest.approx((second.mean, second.std))


def test_the_oracle_is_not_compared() -> None:
    found = compared(RUNS, ("last", "source_validation", "oracle"))
    assert set(found.common) == {"last", "source_validation"}
    assert len(found.rows) == 6


@pytest.mark.parametrize(
    "runs",
    [
        [*runs_of(FEDOMG, {"photo": (0.5, 0.6)}), *runs_of(FEDGA, {"photo": (0.5, 0.6)})],
        [*runs_of(FEDAVG, {"photo": (0.5, 0.6)})],
        [*runs_of(FEDAVG, {"photo": (0.5,)}), *runs_of(FEDOMG, {"photo": (0.5, 0.6)})],
    ],
    ids=["no FedAvg", "FedAvg alone", "one pair"],
)
def test_without_two_pairs_with_fedavg_nothing_is_said(runs: Sequence[Run]) -> None:
    table = build_table(runs, ("last",))
    assert compared_in(table) is None
    assert to_grid(table).below is None
    assert "paired" not in render_csv(table)
    assert "paired" not in render_text(to_grid(table)).plain


def test_of_several_fedavgs_the_one_with_default_settings_is_compared_with() -> None:
    halved = FEDAVG.model_copy(update={"settings": {"server_lr": 0.5}})
    runs = [*RUNS, *runs_of(halved, {"photo": (0.45, 0.4)})]
    table = build_table(runs, ("last",))
    found = compared_in(table)
    assert found is not None
    assert found.base.label == "FedAvg (server_lr 1.0)"
    differences = {row.method.label: row.difference.mean for row in found.rows if row.difference is not None}
    alone = {row.method.label: row.difference.mean for row in compared(RUNS).rows if row.difference is not None}
    assert differences == {**alone, "FedAvg (server_lr 0.5)": pytest.approx(-0.125)}
    text = render_text(to_grid(table)).plain
    assert "paired with FedAvg (server_lr 1.0)" in text
    assert "minus FedAvg (server_lr 1.0)" in text


@pytest.mark.parametrize(
    ("dataset", "default", "other"), [("pacs", "samples", "uniform"), ("rotateddigits", "uniform", "samples")]
)
def test_the_defaults_are_those_of_the_data_set(dataset: str, default: str, other: str) -> None:
    domains = dataset_spec(dataset).domains[:4]
    protocol = {"dataset": dataset, "rounds": 5, "keep_momentum": False}
    runs = [
        run(f"{method}-{seed}", method, domains[0], seed, (0.5,), domains=domains, protocol=protocol)
        for method in (*(weighed(weighting) for weighting in (default, other)), FEDOMG)
        for seed in (0, 1)
    ]
    assert compared(runs).base.label == f"FedAvg (weighting {default})"


def test_the_base_is_the_same_whatever_was_chosen_for_it() -> None:
    def swept(weighting: str, best: dict[str, float]) -> list[Run]:
        return [
            run(
                f"{weighting}-{rate}-{target}",
                weighed(weighting, server_lr=rate),
                target,
                0,
                (0.5,),
                sources=[(0.6 if rate == best[target] else 0.5,) * 3],
            )
            for target in best
            for rate in (0.5, 1.0)
        ]

    for first, second in ((0.5, 1.0), (1.0, 0.5)):
        best = {"photo": first, "sketch": second}
        table = build_table([*swept("samples", best), *swept("uniform", best)], ("last",), choosing=("server_lr",))
        found = compared_in(table)
        assert found is not None
        assert found.base.label == "FedAvg (weighting samples, server_lr chosen)"


def test_several_fedavgs_none_of_which_has_default_settings_are_named() -> None:
    other = [
        pair
        for rate in (0.5, 0.7)
        for pair in runs_of(FEDAVG.model_copy(update={"settings": {"server_lr": rate}}), {"photo": (0.5, 0.6)})
    ]
    table = build_table([*other, *runs_of(FEDOMG, {"photo": (0.5, 0.6)})], ("last",))
    assert compared_in(table) is None
    text = render_text(to_grid(table)).plain
    assert text.rstrip().endswith("found FedAvg (server_lr 0.5), FedAvg (server_lr 0.7).")
    assert "No paired" not in render_text(to_grid(table, paired=False)).plain


def test_every_form_has_it_after_what_it_had_before_and_can_leave_it_out() -> None:
    table = build_table(RUNS, ("last",))
    with_it, without = to_grid(table), to_grid(table, paired=False)
    texts = [
        (render_text(with_it).plain, render_text(without).plain),
        (render_markdown(with_it), render_markdown(without)),
        (render_latex(with_it), render_latex(without)),
        (render_csv(table), render_csv(table, paired=False)),
    ]
    for longer, shorter in texts:
        assert longer.startswith(shorter)
        assert "11.5" in longer[len(shorter) :] or "paired_difference" in longer[len(shorter) :]


def test_csv_has_ranks_and_every_pair() -> None:
    lines = [line for line in csv.DictReader(render_csv(build_table(RUNS, ("last",))).splitlines()) if line["pairs"]]
    assert {(line["kind"], line["method"]): line["pairs"] for line in lines} == {
        **{("mean_rank", method): "1" for method in ("fedavg", "fedga", "fedomg")},
        **{("paired_difference", "fedga"): "1", ("paired_difference", "fedomg"): "3"},
    }
    (found,) = (line for line in lines if line["kind"] == "paired_difference" and line["method"] == "fedomg")
    places = [pair.split(":")[0] for pair in found["values"].split(";")]
    assert places == ["photo/0", "photo/1", "sketch/0"]
    assert float(found["standard_error"]) == pytest.approx(math.sqrt(0.04 / 3))


def test_settings_of_one_method_are_compared_as_rows_of_their_own() -> None:
    runs = [*RUNS[:3], run("a", fedomg(kappa=0.1), "photo", 0, (0.7,)), run("b", FEDOMG, "photo", 0, (0.6,))]
    assert [row.method.label for row in compared([*runs, run("c", FEDOMG, "photo", 1, (0.6,))]).rows] == [
        "FedAvg",
        "FedOMG (kappa 0.1)",
        "FedOMG (kappa 0.5)",
    ]


def test_the_average_over_the_domains_is_no_cell() -> None:
    everywhere = dict.fromkeys(DOMAINS, (0.5, 0.6))
    found = row(compared([*runs_of(FEDAVG, everywhere), *runs_of(FEDOMG, everywhere)]), "fedomg")
    assert found.pairs == {(domain, seed): 0.0 for domain in sorted(DOMAINS) for seed in (0, 1)}


def test_where_less_is_better_the_smallest_value_is_first() -> None:
    cells = [{("photo", 0): 0.1}, {("photo", 0): 0.3}, {("photo", 0): 0.2}]
    distance = ScoreKind("distance", "Distance", higher_is_better=False)
    assert mean_ranks(cells, [("photo", 0)], distance) == [1.0, 3.0, 2.0]
