# SPDX-License-Identifier: Apache-2.0
"""The papers' numbers: the data file, its names, and which of several tables counts."""

import re
from collections import defaultdict
from typing import Any

import pytest

from fdg_plugins.data import dataset_spec
from fdg_plugins.errors import SettingsError
from fdg_plugins.lab.analysis.papers import (
    AVERAGE,
    PRINTED_DATASETS,
    method_of,
    papers,
    printed_numbers,
    printed_rows,
)
from fdg_plugins.plugins.composition import OWN_IDEA, parse_method
from fdg_plugins.recipes import settings_of

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
    years = [paper.reference.split(", ")[-1] for paper in papers().values()]
    assert years == ["ICLR 2025", "CVPR 2023", "IJCAI 2025", "ICML 2023"]


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
    [
        ("rotateddigits", "paper", "data set"),
        ("rotatedmnist", "fedomg", "data set"),
        ("pacs", "fedprox", "paper"),
    ],
)
def test_printed_rows_refuse_what_no_paper_prints(dataset: str, against: str, field: str) -> None:
    with pytest.raises(SettingsError) as caught:
        printed_rows(dataset, "fedavg", against)
    assert caught.value.field == field
