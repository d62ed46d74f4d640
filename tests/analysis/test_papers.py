# SPDX-License-Identifier: Apache-2.0
"""The papers' numbers: the data file and its names, which of several tables counts, and what is not comparable."""

import re
from collections import defaultdict
from dataclasses import replace
from typing import Any

import pytest

from fdg_plugins.data import dataset_spec
from fdg_plugins.errors import SettingsError
from fdg_plugins.lab.analysis import Run, build_table
from fdg_plugins.lab.analysis.papers import (
    AVERAGE,
    PRINTED_DATASETS,
    departures,
    method_of,
    papers,
    printed_numbers,
    printed_rows,
)
from fdg_plugins.models import InitialWeights
from fdg_plugins.plugins.composition import OWN_IDEA, parse_method
from fdg_plugins.plugins.own_dataset import read_own_dataset
from fdg_plugins.recipes import settings_of
from fdg_plugins.record.round_record import Method
from fdg_plugins.settings.protocols import PAPER_PROTOCOLS
from tests.analysis.run_stubs import FEDAVG, FEDGA, FEDOMG, census_reply, fedomg, finished, lines, run

FEDERATED = [
    number
    for number in printed_numbers().itertuples()
    if number.dataset in PRINTED_DATASETS.values() and number.sites is not None
]
REPORTED = re.compile(r"reported in (?P<paper>\S+)'s paper \(Tables? (?P<tables>\d( and \d)*)\)")


def test_the_data_file_holds_accuracies_of_known_papers() -> None:
    assert len(printed_numbers()) == 1408
    assert set(printed_numbers()["paper"]) == set(papers())
    assert printed_numbers()["mean"].between(0, 1, inclusive="neither").all()
    assert printed_numbers()["std"].dropna().between(0, 0.1).all()


def test_every_federated_number_has_a_method_with_settings_that_it_knows() -> None:
    for number in FEDERATED:
        assert number.ours is not None
        names = {name.removeprefix("objective ") for name in number.settings}
        assert names <= {*settings_of(number.ours)}
    assert method_of("fedavg+ga") == "fedga"
    assert method_of("fediir+omg") == "fedomg+iir"


@pytest.mark.parametrize("dataset", PRINTED_DATASETS)
def test_printed_domains_are_those_of_the_catalogue(dataset: str) -> None:
    method = "fedga" if dataset.startswith("domainnet") else "fedavg"
    printed = {column for row in printed_rows(dataset, method) for column in row.cells}
    assert printed == {*dataset_spec(dataset).domains, AVERAGE}


def test_records_name_the_tables_in_which_a_paper_prints_a_composition() -> None:
    tables: dict[tuple[str, str], set[int]] = defaultdict(set)
    for number in printed_numbers().itertuples():
        made = None if (name := method_of(number.method)) is None else parse_method(name)
        if made is not None and len(made.records) == 2:
            tables[papers()[number.paper].title, made.name].add(number.table)
    assert len(tables) == 14
    for (paper, name), printed in tables.items():
        ((*_, source),) = parse_method(name).together()
        assert source != OWN_IDEA
        said = REPORTED.match(source)
        assert said is not None, name
        assert (said["paper"], set(map(int, said["tables"].split(" and ")))) == (paper, printed), name


def test_printed_rows_are_one_papers_with_one_site_per_source_domain() -> None:
    (row,) = printed_rows("pacs", "fedomg", "fedomg")
    assert (row.paper.title, row.tables, row.backbone) == ("FedOMG", (2,), "resnet18")
    assert row.cells["photo"]["mean"] == 0.98
    assert row.cells["average"]["mean"] == pytest.approx(0.884)
    assert row.cells["average"]["std"] is None
    # FedIIR's Table 2 prints 68.8 for FedAvg on PACS with 50 sites, its Table 1 83.1 with three.
    (row,) = printed_rows("pacs", "fedavg", "fediir")
    assert row.cells[AVERAGE]["mean"] == pytest.approx(0.831)
    assert [row.paper.key for row in printed_rows("pacs", "fedavg")] == list(papers())
    assert [row.paper.key for row in printed_rows("pacs", "fedga")] == ["fedomg", "feddg-ga"]
    assert printed_rows("pacs", "fedomg+ga+dim") == ()


def test_printed_rows_of_many_sites_and_of_settings_that_a_table_varies() -> None:
    (digits,) = printed_rows("rotatedmnist", "fediir", "fediir", many=True)
    assert (digits.tables, digits.sites, digits.protocol) == ((2, 8), (50, 5), "fediir-many")
    (pacs,) = printed_rows("pacs", "fedavg", "fediir", many=True)
    assert pacs.cells[AVERAGE]["mean"] == pytest.approx(0.688)
    varied: list[tuple[str, str, bool, dict[str, Any], float, int]] = [
        ("feddim", "feddim", True, {}, 80.57, 2),
        ("feddim", "feddim", True, {"insight_momentum": 0}, 79.33, 3),
        ("feddim", "feddim", True, {"objective target": "logit"}, 77.71, 3),
        ("fedga", "feddg-ga", False, {"step_size": 0.2, "decay": "none"}, 83.19, 3),
        ("fedga", "feddg-ga", False, {"step_size": 0.0, "decay": "linear"}, 82.44, 3),
        ("fedga", "feddg-ga", False, {"step_size": 0.05, "decay": "linear"}, 83.64, 1),
    ]
    for method, paper, many, settings, mean, table in varied:
        (row,) = printed_rows("pacs", method, paper, many=many, settings={"server_lr": 1.0, **settings})
        assert row.cells[AVERAGE]["mean"] == pytest.approx(mean / 100)
        assert row.tables == (table,)


@pytest.mark.parametrize(
    ("dataset", "against", "field"),
    [("rotateddigits", "paper", "data set"), ("rotatedmnist", "fedomg", "data set"), ("pacs", "fedprox", "paper")],
)
def test_printed_rows_refuse_what_no_paper_prints(dataset: str, against: str, field: str) -> None:
    with pytest.raises(SettingsError) as caught:
        printed_rows(dataset, "fedavg", against)
    assert caught.value.field == field


EQUAL_WEIGHTS = FEDAVG.model_copy(update={"settings": {**FEDAVG.settings, "weighting": "uniform"}})
SCRATCH: dict[str, Any] = {"initial_weights": InitialWeights(label="from scratch")}


def reasons(method: Method, paper: str, protocol: dict[str, Any], per_domain: int = 1, **changes: Any) -> list[str]:
    """Return why a run under a paper's protocol, with changes, is not compared with its numbers."""
    many = paper.endswith("-many")
    dataset = protocol.get("dataset", "pacs")
    domains = dataset_spec(dataset).domains
    census = {domain: census_reply(domain, dataset=dataset) for domain in domains}
    published = PAPER_PROTOCOLS.get(paper, {}).get(dataset, {})
    changes = {"census": census, "protocol": {**published, **protocol}, **changes}
    made = run("a", method, domains[0], domains=domains, **changes)
    made.record.sources = tuple(f"{domain}-{number}" for domain in domains[1:] for number in range(per_domain))
    (printed,) = printed_rows(dataset, made.method, paper.removesuffix("-many"), many=many)
    return departures([made], printed)


@pytest.mark.parametrize(
    ("method", "paper", "protocol", "words"),
    [
        (FEDOMG, "fedomg", {}, []),
        (FEDAVG, "fediir", {}, ["weighting samples"]),
        (EQUAL_WEIGHTS, "fediir", {}, []),
        # what all papers have in common
        (FEDOMG, "fedomg", {"momentum": 0.0}, ["momentum 0.0"]),
        (FEDOMG, "fedomg", {"lr_decay_at": 0.1}, ["lr_decay_at 0.1"]),
        (FEDOMG, "fedomg", {"max_samples_per_domain": 300}, ["at most 300 images per domain"]),
        # the server's step
        (fedomg(server_lr=1.0), "fedomg", {}, ["server_lr 1"]),
        (fedomg(kappa=0.1), "fedomg", {}, []),
        # a paper that froze BatchNorm, and a choice of ours for a method
        (EQUAL_WEIGHTS, "fediir", {"batch_norm": "average"}, ["batch_norm average"]),
        (FEDGA, "feddg-ga", {"batch_norm": "reestimate"}, ["batch_norm reestimate"]),
        (FEDGA, "fedomg", {"batch_norm": "reestimate"}, []),
    ],
)
def test_departures_of_training(method: Method, paper: str, protocol: dict[str, Any], words: list[str]) -> None:
    assert reasons(method, paper, protocol) == words


@pytest.mark.parametrize(
    ("paper", "protocol", "words"),
    [
        ("fediir", {"dataset": "rotatedmnist", "model": "convnet"}, ["convnet"]),
        ("feddg-ga", {"dataset": "domainnet"}, ["from scratch"]),
        ("feddg-ga", {"dataset": "domainnet10", "normalization": "default"}, ["from scratch", "normalization default"]),
        ("feddim", {"dataset": "rotatedmnist_7k"}, []),
        ("feddim", {"dataset": "rotatedmnist"}, ["70,000 images instead of 7,000"]),
        (
            "fediir",
            {**PAPER_PROTOCOLS["fediir"]["rotatedmnist"], "dataset": "rotatedmnist_7k", "rounds": 20},
            ["7,000 images instead of 70,000", "rounds 20"],
        ),
    ],
)
def test_departures_of_networks_and_data_sets(paper: str, protocol: dict[str, Any], words: list[str]) -> None:
    assert reasons(FEDAVG, paper, protocol, **SCRATCH) == words


def test_departures_of_the_federation() -> None:
    assert reasons(FEDOMG, "fedomg", {}, per_domain=10) == ["30 source sites"]
    assert reasons(EQUAL_WEIGHTS, "feddim-many", {}, per_domain=10) == []
    assert reasons(EQUAL_WEIGHTS, "feddim-many", {"sites_per_round": 3}, per_domain=10) == ["3 sites per round"]
    assert reasons(EQUAL_WEIGHTS, "fediir-many", {}, per_domain=4) == ["12 source sites"]
    made = run("a", FEDOMG, "art_painting", protocol=PAPER_PROTOCOLS["fedomg"]["pacs"])
    (printed,) = printed_rows("pacs", "fedomg", "fedomg")
    assert departures([replace(made, planned=200)], printed) == ["200 rounds planned"]
    assert departures([made, run("b", fedomg(server_lr=1.0))], printed, ["server_lr"]) == []


def with_counts(domain: str, **counts: Any) -> dict[str, Any]:
    """Return the census of PACS, all of whose images are there but for those of one domain."""
    whole = {name: census_reply(name) for name in dataset_spec("pacs").domains}
    return {**whole, domain: census_reply(domain, **counts)}


def test_departures_of_missing_images() -> None:
    few: dict[str, Any] = {"num_train": 2000, "num_validation": 300, "num_test": 2300}
    two = with_counts("cartoon", num_train=2000, num_validation=100)
    two["cartoon-2of2"] = census_reply("cartoon", num_train=200, num_validation=44)
    for census, words in (
        (with_counts("art_painting", num_test=2000, num_skipped=48), []),
        (with_counts("art_painting", num_test=2000), ["2,000 of 2,048 images of art_painting"]),
        (with_counts("cartoon", **few), ["2,300 of 2,344 images of cartoon"]),
        (with_counts("cartoon", **few, num_skipped=44), []),
        (two, []),
    ):
        assert reasons(FEDOMG, "fedomg", {}, census=census) == words
    whole: dict[str, Any] = {"dataset": "rotatedmnist", "num_train": 9000, "num_validation": 1000, "num_test": 10000}
    part = {domain: census_reply(domain, **whole) for domain in dataset_spec("rotatedmnist").domains}
    found = reasons(FEDAVG, "fediir", {"dataset": "rotatedmnist"}, **SCRATCH, census=part)
    assert {"10,000 of 11,667 images of angle_0", "10,000 of 11,666 images of angle_75"} <= set(found)


def test_a_table_beside_papers_has_differences_or_says_why_not() -> None:
    # FedOMG's Table 2 prints 98.0 +- 0.2 on photo. Ours: mean 0.978, deviation 0.002, so an error of
    # sqrt(2 * 0.002^2 / 3) = 0.00163 for the difference of -0.002.
    runs = [run(f"{seed}", FEDOMG, "photo", seed, (value,)) for seed, value in enumerate((0.976, 0.978, 0.980))]
    table = build_table(runs, against="fedomg")
    (found,) = lines(table, kind="difference", target="photo")
    assert (found["mean"], found["standard_error"]) == pytest.approx((-0.002, 0.00163), abs=1e-5)
    assert found["within_two_standard_errors"] == "yes"
    assert "-0.2 (SE 0.2) yes" in table.text()
    assert "98.0 ± 0.2" in table.text()
    other = build_table([run("a", FEDOMG, protocol={"rounds": 9})], against="fedomg")
    (found,) = lines(other, kind="printed", target="photo")
    assert (found["within_two_standard_errors"], found["note"]) == ("not comparable", "rounds 9")
    assert "ours minus" not in other.text()
    assert any("not comparable, rounds 9" in note for note in other.notes)


def test_runs_of_no_papers_data_are_refused_beside_papers() -> None:
    own = read_own_dataset({"name": "pacs", "domains": ["art_painting", "cartoon"], "classes": ["a", "b"]})
    made = finished(FEDOMG, "art_painting")
    made.protocol = made.protocol.model_copy(update={"dataset": own})
    for one in (Run(run("a").folder, made), run("b", stand_in=True, data="STAND-IN for PACS")):
        with pytest.raises(SettingsError, match="of which no paper prints a number"):
            build_table([one], against="fedomg")
