# SPDX-License-Identifier: Apache-2.0
"""The papers' numbers: the data file, its names, and which of several tables counts."""

import re
from collections import defaultdict

import pytest

from fdg_plugins.data import dataset_spec
from fdg_plugins.errors import SettingsError
from fdg_plugins.lab.analysis.names import method_title
from fdg_plugins.lab.analysis.papers import AVERAGE, PrintedNumber, papers, printed_numbers, printed_rows
from fdg_plugins.lab.analysis.printed_names import DOMAINS, PRINTED_DATASETS, REMARKS, method_of
from fdg_plugins.plugins.composition import OWN_IDEA, parse_method

# Methods of the papers' tables that this package does not have; the last five are FedDIM without one of its parts.
UNKNOWN_HERE = tuple(f"feddim-{part}" for part in ("feature", "lambda0", "logit", "m0", "m1"))
FEDERATED = [number for number in printed_numbers() if number.dataset in DOMAINS and number.setting != "centralized"]
REPORTED = re.compile(r"reported in (?P<paper>\S+)'s paper \(Tables? (?P<tables>\d( and \d)*)\)")


def test_the_data_file_holds_accuracies_of_known_papers() -> None:
    assert len(printed_numbers()) == 1408
    assert {number.paper for number in printed_numbers()} == set(papers())
    assert all(0 < number.mean < 1 for number in printed_numbers())
    assert all(number.std is None or 0 <= number.std < 0.1 for number in printed_numbers())


def test_every_paper_is_named_with_venue_and_year() -> None:
    assert {key: paper.reference.split(", ")[-1] for key, paper in papers().items()} == {
        "fedomg": "ICLR 2025",
        "feddg-ga": "CVPR 2023",
        "feddim": "IJCAI 2025",
        "fediir": "ICML 2023",
    }


def test_every_federated_number_has_a_domain_and_a_method_or_is_said_to_have_none() -> None:
    for number in FEDERATED:
        assert number.test_domain in {*DOMAINS[number.dataset], AVERAGE}, number
        assert (method_of(number.method) is None) == (number.method in UNKNOWN_HERE), number


def test_no_name_is_mapped_that_no_table_prints() -> None:
    assert set(UNKNOWN_HERE) <= {number.method for number in FEDERATED}
    for dataset, names in DOMAINS.items():
        printed = {number.test_domain for number in FEDERATED if number.dataset == dataset}
        assert printed == {*names, AVERAGE}
    for paper, dataset in REMARKS:
        assert any((number.paper, number.dataset) == (paper, dataset) for number in FEDERATED)


@pytest.mark.parametrize("dataset", PRINTED_DATASETS)
def test_printed_domains_are_those_of_the_catalogue(dataset: str) -> None:
    assert set(DOMAINS[PRINTED_DATASETS[dataset]].values()) == set(dataset_spec(dataset).domains)


def test_methods_with_a_name_here_have_a_title_too() -> None:
    names = {number.method: method_of(number.method) for number in FEDERATED}
    assert names["fedavg+ga"] == "fedga"
    assert names["fediir+omg"] == "fedomg+iir"
    titles = {method_title(name) for name in names.values() if name}
    assert {"FedAvg", "FedDG-GA", "FedOMG + IIR", "FedOMG + SAM", "FedProx + GA", "SCAFFOLD", "RSC"} <= titles
    assert all(title != title.lower() for title in titles)
    for name in filter(None, names.values()):
        assert parse_method(name).name == name


def test_records_name_the_tables_in_which_a_paper_prints_a_composition() -> None:
    tables: dict[tuple[str, str], set[int]] = defaultdict(set)
    for number in printed_numbers():
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


def rows_with_all_domains() -> dict[tuple[str, int, str, str, str], dict[str, PrintedNumber]]:
    """Return the printed rows that have every domain and the average, by paper, table, data set, setting, method."""
    rows: dict[tuple[str, int, str, str, str], dict[str, PrintedNumber]] = defaultdict(dict)
    for number in FEDERATED:
        key = (number.paper, number.table, number.dataset, number.setting, number.method)
        rows[key][number.test_domain] = number
    return {key: row for key, row in rows.items() if set(row) == {*DOMAINS[key[2]], AVERAGE}}


def test_printed_averages_follow_from_their_columns_or_carry_a_note() -> None:
    rows = rows_with_all_domains()
    assert len(rows) > 100
    noted = 0
    for key, row in rows.items():
        recomputed = sum(row[domain].mean for domain in DOMAINS[key[2]]) / len(DOMAINS[key[2]])
        is_noted = any("printed average differs" in note for note in row[AVERAGE].notes)
        # 0.1 points: each column and the average are rounded, or cut, to one decimal
        assert (abs(recomputed - row[AVERAGE].mean) > 0.00105) is is_noted, key
        noted += is_noted
    assert noted == 4


def test_a_row_is_one_papers_with_one_site_per_source_domain() -> None:
    (row,) = printed_rows("pacs", "fedomg", "fedomg")
    assert (row.paper.title, row.tables, row.backbone) == ("FedOMG", (2,), "resnet18")
    assert {column: (cell.mean, cell.std, cell.count) for column, cell in row.cells.items()} == {
        "photo": (0.98, pytest.approx(0.002), 3),
        "art_painting": (pytest.approx(0.897), pytest.approx(0.004), 3),
        "cartoon": (pytest.approx(0.814), pytest.approx(0.008), 3),
        "sketch": (pytest.approx(0.843), pytest.approx(0.005), 3),
        "average": (pytest.approx(0.884), None, 3),
    }


def test_all_papers_that_print_a_method_are_found() -> None:
    assert [row.paper.key for row in printed_rows("pacs", "fedavg")] == list(papers())
    assert [row.paper.key for row in printed_rows("pacs", "fedga")] == ["fedomg", "feddg-ga"]
    assert [row.paper.key for row in printed_rows("domainnet", "fedga")] == ["feddg-ga"]
    assert printed_rows("pacs", "fedomg+ga+dim") == ()


def test_a_table_of_averages_gives_the_deviation_that_the_full_table_does_not_print() -> None:
    (row,) = printed_rows("rotatedmnist", "fediir", "fediir")
    assert row.tables == (1, 4)
    assert set(row.cells) == {*DOMAINS["rotatedmnist"].values(), AVERAGE}
    assert (row.cells[AVERAGE].mean, row.cells[AVERAGE].std) == pytest.approx((0.950, 0.002))
    assert row.cells["angle_0"].mean == pytest.approx(0.838)


def test_many_sites_per_domain_are_another_table() -> None:
    # FedIIR's Table 2 prints 68.8 for FedAvg on PACS with 50 sites, its Table 1 83.1 with three.
    (row,) = printed_rows("pacs", "fedavg", "fediir")
    assert row.cells[AVERAGE].mean == pytest.approx(0.831)


def test_a_note_of_the_data_file_stays_with_its_number() -> None:
    (row,) = printed_rows("pacs", "fedavg", "fedomg")
    assert row.cells[AVERAGE].notes == ("printed average differs from the mean of the columns (82.20)",)
    assert row.cells["photo"].notes == ()


def test_the_number_of_images_is_remarked_where_only_the_text_tells_it() -> None:
    for row in printed_rows("rotatedmnist_7k", "fedavg"):
        assert any("images" in note for note in row.cells[AVERAGE].notes)


@pytest.mark.parametrize(
    ("dataset", "against", "sentence"),
    [
        (
            "rotateddigits",
            "paper",
            "no number on data set rotateddigits is printed by FedOMG, FedDG-GA, FedDIM, FedIIR",
        ),
        ("rotatedmnist", "fedomg", "no number on data set rotatedmnist is printed by FedOMG; the data sets"),
        ("pacs", "fedprox", "paper 'fedprox' is unknown; expected one of paper, fedomg"),
    ],
)
def test_what_no_paper_prints_is_refused(dataset: str, against: str, sentence: str) -> None:
    with pytest.raises(SettingsError, match=sentence):
        printed_rows(dataset, "fedavg", against)
