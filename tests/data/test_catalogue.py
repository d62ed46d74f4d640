# SPDX-License-Identifier: Apache-2.0
"""The catalogue of data sets: names, classes and numbers that fit each other; and records field by field."""

from typing import Any

import pytest
from nvflare.apis.utils.format_check import name_check

from fdg_plugins.data import DATASETS, DatasetSpec, SegmentationSpec, dataset_spec
from fdg_plugins.data.catalogue import origin_of
from fdg_plugins.data.published import MNIST_PARTS
from fdg_plugins.data.specs import ImageFolderSpec, RotatedSpec
from fdg_plugins.errors import SettingsError

WHOLE: dict[str, Any] = {
    **{"name": "xd", "folder": "xd", "title": "XD", "reference": "us"},
    **{"domains": ("a", "b"), "classes": ("k", "l")},
}


@pytest.mark.parametrize("name", sorted(DATASETS.names()))
def test_names_are_those_of_sites_and_numbers_are_of_the_domains(name: str) -> None:
    spec = dataset_spec(name)
    for domain in spec.domains:
        assert domain.isidentifier()
        assert not name_check(domain, "client")[0]
    assert list(spec.classes) == sorted(spec.classes)
    assert len({"".join(filter(str.isalnum, one.lower())) for one in spec.classes}) == len(spec.classes)
    for release in origin_of(name).releases if spec.folder else ():
        assert set(release.images) == set(MNIST_PARTS if isinstance(spec, RotatedSpec) else spec.domains)
        for domain, numbers in release.by_class.items():
            assert (len(numbers), sum(numbers)) == (len(spec.classes), release.images[domain])


@pytest.mark.parametrize(
    ("kind", "field", "value"),
    [
        *((ImageFolderSpec, "name", name) for name in (None, "x/d")),
        *((ImageFolderSpec, "domains", value) for value in ("abc", (), ("a", "b", "a"), ("a", "b/c"))),
        *((ImageFolderSpec, "classes", value) for value in ((0, 1), ("k",), ("k", "l\n"))),
        *((ImageFolderSpec, "channels", value) for value in ("3", 4)),
        *((ImageFolderSpec, "folder", "/data/xd"), (ImageFolderSpec, "protocol", "image_size=32")),
        *((ImageFolderSpec, "family", "photos"), (ImageFolderSpec, "known_bad", "a/k/1")),
        *((SegmentationSpec, "channels", 0), (SegmentationSpec, "dims", 4)),
        (SegmentationSpec, "mask_values", ((0,), (0,))),
    ],
)
def test_a_data_sets_record_is_checked_field_by_field(kind: type[DatasetSpec], field: str, value: Any) -> None:
    assert SegmentationSpec(**WHOLE, channels=4).channels == 4, "images with masks may have any number"
    with pytest.raises(SettingsError) as caught:
        kind(**{**WHOLE, field: value})
    assert str(caught.value.field).startswith(field)
