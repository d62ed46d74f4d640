# SPDX-License-Identifier: Apache-2.0
"""Facts about the data sets beyond their layout (``origins.toml``): where they come from, on what terms, their numbers.

A release may have the numbers per class instead of those per domain.
"""

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files
from typing import Any

from fdg_plugins.data.catalogue import dataset_spec


@dataclass(frozen=True, kw_only=True)
class Release:
    """The number of images in one release of a data set, by domain (MNIST: by part), and the source of the numbers.

    ``by_class`` gives the numbers per class, in the order of the data set's classes, if known. ``certain`` is false
    for numbers found only in papers: a difference then causes a remark, not an error.
    """

    name: str
    source: str
    images: Mapping[str, int]
    by_class: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    certain: bool = True


@dataclass(frozen=True, kw_only=True)
class Origin:
    """The origin of a data set: its page, what to download there, and the ``terms`` of use, in short its ``licence``.

    ``releases`` is empty if no numbers are known.
    """

    page: str
    obtain: str
    licence: str
    terms: str
    releases: tuple[Release, ...] = ()


@cache
def _origins() -> Mapping[str, Origin]:
    table = tomllib.loads(files("fdg_plugins.data").joinpath("origins.toml").read_text(encoding="utf-8"))
    return {
        name: Origin(**{**facts, "releases": tuple(map(_release, facts.get("releases", ())))})
        for name, facts in table.items()
    }


def _release(facts: Mapping[str, Any]) -> Release:
    by_class = {domain: tuple(counts) for domain, counts in facts.get("by_class", {}).items()}
    images = facts.get("images") or {domain: sum(counts) for domain, counts in by_class.items()}
    return Release(**{**facts, "images": images, "by_class": by_class})


def origin_of(dataset: str) -> Origin:
    """Return the origin of the data set called ``dataset``; for a plug-in's data set, what its record says.

    Raises SettingsError, listing the known names, if there is no such data set.
    """
    spec = dataset_spec(dataset)
    unknown = Origin(
        page=spec.reference,
        obtain="see the plug-in that brings it",
        licence="not said by the plug-in",
        terms="not said by the plug-in",
    )
    return _origins().get(spec.name, unknown)
