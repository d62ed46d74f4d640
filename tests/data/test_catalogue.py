# SPDX-License-Identifier: Apache-2.0
"""The catalogue of data sets: names, classes and numbers that fit each other; and records field by field."""

from typing import Any

import pytest
from nvflare.apis.utils.format_check import name_check

from fdg_plugins.data import DATASETS, RotatedSpec, SegmentationSpec, dataset_spec
from fdg_plugins.data.catalogue import origin_of
from fdg_plugins.data.published import MNIST_PARTS
from fdg_plugins.data.specs import ImageFolderSpec
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
    ("field", "value"),
    [
        *(("name", None), ("name", "x/d"), ("folder", "/data/xd"), ("channels", "3"), ("channels", 4)),
        *(("domains", value) for value in ("abc", ("a", "b", "a"), ("a",), ("a", "b/c"))),
        *(("classes", value) for value in ((0, 1), ("k", "l\n"))),
        *(("protocol", "image_size=32"), ("family", "photos"), ("known_bad", "a/k/1")),
    ],
)
def test_a_data_sets_record_is_checked_field_by_field(field: str, value: Any) -> None:
    with pytest.raises(SettingsError) as caught:
        ImageFolderSpec(**{**WHOLE, field: value})
    assert str(caught.value.field).startswith(field)


@pytest.mark.parametrize("changes", [{"channels": 0}, {"dims": 4}, {"mask_values": ((0,), (0,))}])
def test_images_with_masks_may_have_any_number_of_channels(changes: dict[str, Any]) -> None:
    assert SegmentationSpec(**WHOLE, channels=4).channels == 4
    with pytest.raises(SettingsError) as caught:
        SegmentationSpec(**{**WHOLE, **changes})
    assert caught.value.field == next(iter(changes))
