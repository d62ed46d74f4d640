# SPDX-License-Identifier: Apache-2.0
"""The catalogue of data sets: names, classes and numbers that fit each other, and where they are from."""

import pytest
from nvflare.apis.utils.format_check import name_check

from fdg_plugins.data import DATASETS, DOMAINNET, DOMAINNET_10, ImageFolderSpec, RotatedSpec, dataset_spec
from fdg_plugins.data.mnist import PARTS
from fdg_plugins.data.origins import origin_of
from fdg_plugins.errors import SettingsError

NAMES = sorted(DATASETS.names())


@pytest.mark.parametrize("name", NAMES)
def test_a_data_set_is_found_under_its_own_name(name: str) -> None:
    assert dataset_spec(name).name == name
    assert name.isidentifier()
    assert name == name.lower()


@pytest.mark.parametrize("name", NAMES)
def test_domains_are_plain_names_that_flare_accepts_as_names_of_sites(name: str) -> None:
    for domain in dataset_spec(name).domains:
        assert domain.isidentifier()
        assert domain == domain.lower()
        is_wrong, why = name_check(domain, "client")
        assert not is_wrong, why


@pytest.mark.parametrize("name", NAMES)
def test_classes_are_sorted_and_no_two_differ_by_case_or_punctuation_only(name: str) -> None:
    classes = dataset_spec(name).classes
    assert list(classes) == sorted(classes)
    assert len({"".join(filter(str.isalnum, class_name.lower())) for class_name in classes}) == len(classes)


@pytest.mark.parametrize(
    ("name", "domains", "classes"),
    [
        ("pacs", 4, 7),
        ("vlcs", 4, 5),
        ("officehome", 4, 65),
        ("terraincognita", 4, 10),
        ("domainnet", 6, 345),
        ("domainnet10", 6, 10),
        ("rotatedmnist", 6, 10),
    ],
)
def test_every_data_set_has_as_many_domains_and_classes_as_its_paper_says(
    name: str, domains: int, classes: int
) -> None:
    assert (len(dataset_spec(name).domains), len(dataset_spec(name).classes)) == (domains, classes)


def test_the_ten_classes_are_classes_of_domainnet_in_the_order_of_fedbns_labels() -> None:
    assert set(DOMAINNET_10.classes) < set(DOMAINNET.classes)
    assert DOMAINNET_10.classes == (
        "bird", "feather", "headphones", "ice_cream", "teapot", "tiger", "whale", "windmill", "wine_glass", "zebra"
    )  # fmt: skip


def test_capitals_come_first_as_they_do_in_the_published_code_that_sorts_folders() -> None:
    assert DOMAINNET.classes[:4] == (
        "The_Eiffel_Tower",
        "The_Great_Wall_of_China",
        "The_Mona_Lisa",
        "aircraft_carrier",
    )


def test_no_two_data_sets_of_folders_share_a_folder() -> None:
    folders = [spec.folder for spec in DATASETS.all() if isinstance(spec, ImageFolderSpec)]
    assert len(set(folders)) == len(folders)
    assert all(bool(spec.folder) == spec.needs_data_root for spec in DATASETS.all())


@pytest.mark.parametrize("name", NAMES)
def test_every_data_set_says_where_it_is_from_and_on_what_terms(name: str) -> None:
    origin = origin_of(name)
    assert origin.page.startswith(("http://", "https://"))
    assert origin.obtain
    assert origin.terms
    assert origin.licence


@pytest.mark.parametrize("name", [name for name in NAMES if origin_of(name).releases and dataset_spec(name).folder])
def test_the_numbers_of_a_release_are_of_its_domains_and_add_up(name: str) -> None:
    spec = dataset_spec(name)
    for release in origin_of(name).releases:
        assert set(release.images) == set(PARTS if isinstance(spec, RotatedSpec) else spec.domains)
        assert release.source
        for domain, numbers in release.by_class.items():
            assert len(numbers) == len(spec.classes)
            assert sum(numbers) == release.images[domain]


@pytest.mark.parametrize(
    ("name", "total"),
    [("pacs", 9991), ("vlcs", 10729), ("officehome", 15588), ("domainnet", 586575), ("rotatedmnist", 70000)],
)
def test_the_totals_are_those_of_domainbeds_paper(name: str, total: int) -> None:
    assert sum(origin_of(name).releases[0].images.values()) == total


def test_what_could_not_be_checked_is_marked_or_left_out() -> None:
    assert not origin_of("terraincognita").releases[0].certain
    assert origin_of("domainnet10").releases == ()


def test_an_unknown_data_set_has_no_origin() -> None:
    with pytest.raises(
        SettingsError,
        match=r"data set 'imagenet' is unknown, .*; expected one of pacs, ",
    ):
        origin_of("imagenet")
