# SPDX-License-Identifier: Apache-2.0
"""Sites of one process share what they open: the same images and splits as alone, listed and decoded once."""

from pathlib import Path
from typing import Any

import pytest

from fdg_plugins.data import DomainData, SharedDomains, domains, open_domain

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
