# SPDX-License-Identifier: Apache-2.0
"""The table as numbers: which runs make a cell, what is missing, and what rows are called."""

from collections.abc import Sequence

import pytest

from fdg_plugins.errors import SettingsError
from fdg_plugins.lab.analysis import Run, Table, build_table
from fdg_plugins.lab.analysis.estimates import Estimate
from fdg_plugins.lab.analysis.papers import AVERAGE
from fdg_plugins.record.run_record import Method
from tests.analysis.run_stubs import DOMAINS, FEDAVG, FEDGA, FEDOMG, fedomg, run, runs_of

# FedAvg by seed 0, 1, 2: averages over the four domains 0.5, 0.6, 0.7.
FULL = {
    "art_painting": (0.4, 0.5, 0.6),
    "cartoon": (0.5, 0.6, 0.7),
    "photo": (0.6, 0.7, 0.8),
    "sketch": (0.5, 0.6, 0.7),
}


def cells(table: Table, row: int = 0, result: int = 0) -> dict[str, Estimate]:
    return dict(table.methods[row].results[result].cells)


def test_methods_with_rules_of_their_own_for_batch_norm_are_named_with_them() -> None:
    own = run("b", FEDGA, protocol={"model": "resnet18", "batch_norm": "reestimate"})
    plain = run("a", protocol={"model": "resnet18"})
    text = (
        "batch_norm is average for FedAvg; reestimate for FedDG-GA: a difference between these is also one of "
        "BatchNorm's statistics."
    )
    assert text in build_table([plain, own]).notes
    without = [run("a", protocol={"model": "cnn"}), run("b", FEDGA, protocol={"model": "cnn", "batch_norm": "frozen"})]
    for runs in ([plain], [own], without):
        assert not any("batch_norm" in note for note in build_table(runs).notes)


def labels(runs: Sequence[Run]) -> list[str]:
    return [rows.label for rows in build_table(runs).methods]


def test_a_cell_is_mean_and_deviation_over_seeds_and_the_average_is_taken_within_each_seed() -> None:
    table = build_table(runs_of(FEDAVG, FULL))
    assert table.columns == (*DOMAINS, "average")
    found = cells(table)
    assert (found["photo"].mean, found["photo"].std, found["photo"].count) == pytest.approx((0.7, 0.1, 3))
    assert (found["average"].mean, found["average"].std, found["average"].count) == pytest.approx((0.6, 0.1, 3))
    assert found["average"].by_seed == pytest.approx({0: 0.5, 1: 0.6, 2: 0.7})


def test_columns_stand_in_the_catalogues_order_whatever_was_run_first() -> None:
    runs = runs_of(FEDAVG, FULL)
    assert build_table(runs[::-1]) == build_table(runs)


def test_a_domain_that_was_not_run_is_missing_and_so_is_the_average() -> None:
    found = cells(build_table(runs_of(FEDAVG, {name: FULL[name] for name in ("photo", "sketch")})))
    assert set(found) == {"photo", "sketch"}


def test_the_average_is_over_the_seeds_that_have_all_domains() -> None:
    found = cells(build_table(runs_of(FEDAVG, {**FULL, "sketch": (0.5,)})))
    assert (found["average"].count, found["average"].std) == (1, None)
    assert found["average"].mean == pytest.approx(0.5)
    assert found["photo"].count == 3


def test_a_row_names_the_settings_that_are_not_its_methods_defaults_though_no_other_row_has_others() -> None:
    assert labels([run("a"), run("b", fedomg(server_lr=1.0))]) == ["FedAvg", "FedOMG (server_lr 1.0)"]
    assert labels([run("a", fedomg(server_lr=1.0, kappa=0.1))]) == ["FedOMG (kappa 0.1, server_lr 1.0)"]
    assert labels([run("a", FEDAVG.model_copy(update={"settings": {"weighting": "uniform"}}))]) == [
        "FedAvg (weighting uniform)"
    ]


def test_a_data_set_that_the_catalogue_does_not_know_has_the_domains_of_its_sites() -> None:
    made = run("a", target="b", domains=("c", "b", "a"), protocol={"dataset": "my_scanners"})
    assert build_table([made]).columns == ("a", "b", "c", "average")


def test_methods_are_rows_in_their_usual_order() -> None:
    runs = [run("a", FEDOMG), run("b", Method(aggregator="Mine", settings={})), run("c", FEDAVG)]
    assert labels(runs) == ["FedAvg", "FedOMG", "Mine"]


def test_settings_that_differ_make_rows_of_their_own_and_stand_in_the_label() -> None:
    runs = [run("a", FEDOMG), run("b", fedomg(kappa=0.1, server_lr=1.0)), run("c", FEDAVG)]
    expected = ["FedAvg", "FedOMG (kappa 0.1, server_lr 1.0)", "FedOMG (kappa 0.5, server_lr 0.05)"]
    assert labels(runs) == expected
    assert labels([runs[0], run("d", FEDOMG, seed=1)]) == ["FedOMG"]


def test_a_setting_that_only_one_of_them_has_is_unset_in_the_other() -> None:
    assert labels([run("a", FEDOMG), run("b", fedomg(extra=1))]) == ["FedOMG (extra 1)", "FedOMG (extra unset)"]


def test_another_weighting_is_a_setting_and_not_a_seed() -> None:
    runs = [run("a", FEDOMG), run("b", fedomg(weighting="samples"), seed=1)]
    assert labels(runs) == ["FedOMG (weighting samples)", "FedOMG (weighting uniform)"]


def test_every_rule_asked_for_is_a_result() -> None:
    made = run("a", accuracies=(0.75, 0.25), sources=[(0.1, 0.1, 0.1), (0.2, 0.2, 0.2)])
    table = build_table([made], ("last", "oracle"))
    assert [result.rule for result in table.methods[0].results] == ["last", "oracle"]
    assert (cells(table)["photo"].mean, cells(table, result=1)["photo"].mean) == (0.25, 0.75)


def test_a_run_that_nobody_judged_is_missing_and_named() -> None:
    runs = [run("a", accuracies=(0.5, None)), run("b", seed=1)]
    table = build_table(runs, ("last", "oracle"))
    assert cells(table)["photo"].by_seed == {1: 0.5}
    assert cells(table, result=1)["photo"].count == 2
    assert table.notes == (
        "runs/a has no accuracy on photo for the rule last, and is missing there.",
        "runs/a lacks the scores of the held-out site photo in 1 of 2 evaluations.",
    )


def test_a_held_out_domain_that_the_data_set_does_not_have_any_more_has_a_column() -> None:
    table = build_table([run("a"), run("b", FEDAVG, "comic", domains=(*DOMAINS, "comic"))])
    assert (table.columns[-2:], cells(table)["comic"].count) == (("comic", "average"), 1)


def test_a_copy_is_counted_once_and_named() -> None:
    table = build_table([run("a"), run("b")])
    assert cells(table)["photo"].count == 1
    assert table.notes == ("runs/b repeats runs/a and is counted once.",)


def test_the_table_carries_what_its_runs_share() -> None:
    runs = [run("a"), run("b", seed=4, versions={"fdg-plugins": "0.2.0"})]
    facts = build_table(runs).facts
    assert (facts.data, facts.stand_in, facts.initial_weights, facts.model) == ("PACS", False, "imagenet", "resnet18")
    assert (facts.rounds, facts.image_size, facts.max_samples) == (100, 224, None)
    assert (facts.sources, facts.seeds, facts.versions) == ((3,), (0, 4), ("0.1.0", "0.2.0"))


def test_runs_that_do_not_fit_make_no_table() -> None:
    with pytest.raises(SettingsError, match="rounds of the protocol is 100 in runs/a and 5 in runs/b"):
        build_table([run("a"), run("b", FEDOMG, protocol={"rounds": 5})])
    with pytest.raises(SettingsError, match="two runs of fedavg"):
        build_table([run("a"), run("b", accuracies=(0.25,))])


def test_printed_numbers_stand_beside_the_methods_that_have_them() -> None:
    runs = [run("a", FEDAVG), run("b", fedomg(weighting="ga"))]
    table = build_table(runs, against="paper")
    assert [len(rows.printed) for rows in table.methods] == [4, 0]
    assert [row.paper.key for row in build_table(runs, against="fediir").methods[0].printed] == ["fediir"]
    assert build_table(runs).methods[0].printed == ()


def test_the_stand_in_never_stands_beside_printed_numbers() -> None:
    drawn = run("a", stand_in=True, data="STAND-IN for PACS")
    assert build_table([drawn]).facts.stand_in
    with pytest.raises(SettingsError, match="the runs used STAND-IN for PACS, and the papers real data"):
        build_table([drawn], against="paper")


def test_a_domain_called_average_has_a_column_beside_the_average() -> None:
    domains = (AVERAGE, "b", "c")
    own = {"dataset": {"name": "mine", "domains": domains, "classes": ["dog", "elephant"]}}
    runs = [
        run(target, FEDAVG, target, 0, (accuracy,), domains=domains, protocol=own)
        for target, accuracy in zip(domains, (0.1, 0.5, 0.9), strict=True)
    ]
    found = build_table(runs, rules=("last",))
    assert found.columns == ("average (domain)", "b", "c", AVERAGE)
    assert {name: cell.mean for name, cell in cells(found).items()} == pytest.approx(
        {"average (domain)": 0.1, "b": 0.5, "c": 0.9, AVERAGE: 0.5}
    )
