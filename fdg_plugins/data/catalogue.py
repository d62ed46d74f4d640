# SPDX-License-Identifier: Apache-2.0
"""The data sets that are known by name: their records, and where they come from, as ``datasets.toml`` says."""

import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from functools import cache
from importlib.resources import files
from typing import Any, TypeVar

from fdg_plugins.data.specs import (
    AttributeSpec,
    DatasetSpec,
    ImageFolderSpec,
    KnownSpec,
    PublishedSpec,
    RotatedSpec,
    SegmentationSpec,
)
from fdg_plugins.plugins.own_dataset import DatasetRef, OwnDataset
from fdg_plugins.plugins.registry import Registry

S = TypeVar("S", bound=DatasetSpec)


@cache
def _table() -> dict[str, dict[str, Any]]:
    table = tomllib.loads(files("fdg_plugins.data").joinpath("datasets.toml").read_text(encoding="utf-8"))
    return {name: {**table.get(facts.get("like", ""), {}), **facts} for name, facts in table.items()}


def _record(kind: type[S], name: str, **more: Any) -> S:
    known = {one.name for one in fields(kind)}
    values: dict[str, Any] = {key: _tuples(value) for key, value in _table()[name].items() if key in known}
    values |= {key: tuple(values[key].split()) for key in ("domains", "classes") if key in values}
    return kind(**{"folder": name, **values, "name": name, **more})


def _tuples(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _tuples(inner) for key, inner in value.items()}
    return tuple(map(_tuples, value)) if isinstance(value, list) else value


PACS = _record(ImageFolderSpec, "pacs")
VLCS = _record(ImageFolderSpec, "vlcs")
OFFICE_HOME = _record(ImageFolderSpec, "officehome")
TERRA_INCOGNITA = _record(ImageFolderSpec, "terraincognita")
DOMAINNET = _record(ImageFolderSpec, "domainnet")
DOMAINNET_10 = _record(ImageFolderSpec, "domainnet10")
OFFICE_CALTECH_10 = _record(ImageFolderSpec, "officecaltech10")
ROTATED_DIGITS = _record(RotatedSpec, "rotateddigits")
ROTATED_MNIST = _record(RotatedSpec, "rotatedmnist", stand_in=ROTATED_DIGITS)
ROTATED_MNIST_7K = _record(RotatedSpec, "rotatedmnist_7k", stand_in=ROTATED_DIGITS)
VESSELS = _record(SegmentationSpec, "vessels")
MNIST = _record(PublishedSpec, "mnist")
EMNIST = _record(PublishedSpec, "emnist")
CIFAR_10 = _record(PublishedSpec, "cifar10")
CIFAR_100 = _record(PublishedSpec, "cifar100")
CELEBA = _record(AttributeSpec, "celeba")

DATASETS: Registry[KnownSpec] = Registry("data set", "fdg_plugins.datasets", [__name__], DatasetSpec)


@dataclass(frozen=True, kw_only=True)
class Release:
    """The number of images in one release of a data set, by domain (MNIST: by part), and the source of the numbers.

    ``by_class``: per class, in the order of the classes, if known. Numbers found only in papers are not ``certain``: a
    difference then causes a remark, not an error.
    """

    name: str
    source: str
    images: Mapping[str, int]
    by_class: Mapping[str, Sequence[int]] = field(default_factory=dict)
    certain: bool = True


@dataclass(frozen=True, kw_only=True)
class Origin:
    """Where a data set is from: its page, what to download there, and the terms of use, in short its ``licence``."""

    page: str
    obtain: str = "see the plug-in that brings it"
    licence: str = "not said by the plug-in"
    terms: str = "not said by the plug-in"
    releases: tuple[Release, ...] = ()


def origin_of(dataset: str) -> Origin:
    """Return the origin of the data set called ``dataset``; for a plug-in's data set, what its record says."""
    spec = dataset_spec(dataset)
    if (facts := _table().get(spec.name)) is None:
        return Origin(page=spec.reference)
    releases = []
    for release in facts.get("releases", ()):
        counted = {domain: sum(counts) for domain, counts in release.get("by_class", {}).items()}
        releases.append(Release(**{"images": counted, **release}))
    texts = {key: facts[key] for key in ("page", "obtain", "licence", "terms")}
    return Origin(**texts, releases=tuple(releases))


def published_as(dataset: str, domain: str) -> Mapping[str, str]:
    """Return what to download for a domain with masks, and how its files are named; empty if nothing is known."""
    facts: Mapping[str, str] = _table().get(dataset, {}).get("published", {}).get(domain, {})
    return facts


def known_images(dataset: DatasetRef, domain: str, *, certain: bool = True) -> list[int]:
    """Return the numbers of images that a domain has, one for each release.

    There are none for a user's own data, for drawings and for an unknown data set or domain. ``certain``: only of
    releases whose images were counted.
    """
    spec = DATASETS.find(dataset) if isinstance(dataset, str) else None
    if spec is None or domain not in spec.domains:
        return []
    releases = [one.images for one in origin_of(spec.name).releases if one.certain or not certain]
    if isinstance(spec, RotatedSpec):  # all images of a release are dealt to the domains in turn
        totals = [min(total, spec.limit or total) for total in (sum(images.values()) for images in releases)]
        return [len(range(spec.domains.index(domain), total, len(spec.domains))) for total in totals]
    return [images[domain] for images in releases if domain in images]


# The network whose ImageNet weights come with the extra ``pretrained``; a data set of one's own is often too small to
# train a network from scratch.
_OWN_PHOTOGRAPHS = {"model": "efficientnet_lite0"}


def dataset_spec(dataset: DatasetRef) -> KnownSpec:
    """Return the record of a data set: the one called so, or that of a description, whose folder is the data root.

    Raises SettingsError, listing the known names, if there is none. A plug-in can supply an :class:`ImageFolderSpec`,
    a :class:`SegmentationSpec`, or a :class:`RotatedSpec` of a data set with published files.
    """
    if not isinstance(dataset, OwnDataset):
        return DATASETS.get(dataset)
    said = dict(dataset) | {"title": dataset.title or dataset.name, "reference": "a data set of one's own"}
    is_pairs = dataset.task == "segmentation"
    of_task: type[ImageFolderSpec | SegmentationSpec] = SegmentationSpec if is_pairs else ImageFolderSpec
    known = {name: said[name] for name in said.keys() & {one.name for one in fields(of_task)}}
    other = {} if dataset.task == ImageFolderSpec.task else {"task": dataset.task}
    return of_task(**known, folder="", described=True, protocol={} if is_pairs else {**_OWN_PHOTOGRAPHS, **other})


def source_of(spec: PublishedSpec | RotatedSpec) -> PublishedSpec:
    """Return the record of the files of a data set: its own, or that of the images which it rotates."""
    source = DATASETS.get(spec.source) if isinstance(spec, RotatedSpec) else spec
    assert isinstance(source, PublishedSpec)
    return source


def files_of(spec: PublishedSpec | RotatedSpec) -> list[str]:
    """Return the paths of all published files, below the data root."""
    source = source_of(spec)
    return [f"{source.folder}/{name}" for parts in source.files.values() for names in parts for name in names]
