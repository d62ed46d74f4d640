# SPDX-License-Identifier: Apache-2.0
"""The catalogue of data sets: names, classes and numbers that fit each other, and where they are from."""

import pytest
from nvflare.apis.utils.format_check import name_check

from fdg_plugins.data import DATASETS, RotatedSpec, dataset_spec
from fdg_plugins.data.origins import origin_of
from fdg_plugins.data.published import MNIST_PARTS

NAMES = sorted(DATASETS.names())


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


@pytest.mark.parametrize("name", [name for name in NAMES if origin_of(name).releases and dataset_spec(name).folder])
def test_the_numbers_of_a_release_are_of_its_domains_and_add_up(name: str) -> None:
    spec = dataset_spec(name)
    for release in origin_of(name).releases:
        assert set(release.images) == set(MNIST_PARTS if isinstance(spec, RotatedSpec) else spec.domains)
        assert release.source
        for domain, numbers in release.by_class.items():
            assert len(numbers) == len(spec.classes)
            assert sum(numbers) == release.images[domain]
