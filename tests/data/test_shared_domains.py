# SPDX-License-Identifier: Apache-2.0
"""Sites of one process share what they open: the same images and splits as alone, listed and decoded once."""

from pathlib import Path
from typing import Any

import pytest

from fdg_plugins.data import DomainData, SharedDomains, check_images, domains, open_domain
from fdg_plugins.errors import DataError

MEMORY = 2**20


def opened(root: Path, shared: SharedDomains | None, **changes: Any) -> DomainData:
    return open_domain(root, "pacs", "photo", **{"seed": 0, "image_memory": MEMORY, "shared": shared, **changes})


def test_parts_of_a_domain_are_those_of_sites_apart_and_share_its_images(
    data_root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    apart = [opened(data_root, None, part=(number, 2)) for number in (1, 2)]
    listed: list[str] = []
    known = vars(domains)["list_domain"]

    def list_noted(root: Path, spec: object, domain: str, rules: object) -> object:
        listed.append(domain)
        return known(root, spec, domain, rules)

    monkeypatch.setattr(domains, "list_domain", list_noted)
    shared = SharedDomains()
    together = [opened(data_root, shared, part=(number, 2)) for number in (1, 2)]
    assert listed == ["photo"]
    assert together == apart
    assert together[0].images is together[1].images is opened(data_root, shared).images


@pytest.mark.parametrize("changes", [{"seed": 1}, {"image_memory": 0}, {"max_samples": 14}, {"max_pixels": 10_000}])
def test_what_is_asked_for_otherwise_is_opened_anew(data_root: Path, changes: dict[str, Any]) -> None:
    shared = SharedDomains()
    first = opened(data_root, shared)
    other = opened(data_root, shared, **changes)
    assert other.images is not first.images
    assert other == opened(data_root, None, **changes)


def test_an_image_is_checked_for_one_of_its_sites_and_a_damaged_one_for_each(
    data_root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shared = SharedDomains()
    one, other = (opened(data_root, shared, part=(number, 2)) for number in (1, 2))
    check_images(one, shared.sound_images(one.images))
    checked: list[str] = []
    monkeypatch.setattr(type(one.images), "check", lambda self, sample: checked.append(sample.file))
    check_images(other, shared.sound_images(other.images))
    assert checked == [], "the test images of every part are the whole domain"

    def refuse(self: Any, sample: Any) -> None:
        raise DataError("damaged")

    monkeypatch.setattr(type(one.images), "check", refuse)
    fresh = SharedDomains()
    for data in (one, other):
        with pytest.raises(DataError, match="cannot be read"):
            check_images(data, fresh.sound_images(data.images))
