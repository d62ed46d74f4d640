# SPDX-License-Identifier: Apache-2.0
"""Map the files of a source to the files of a data set: from the published layouts to this package's own.

Published archives hold ``<any folders>/<domain>/<class>/<image>`` with their own domain names; VLCS also comes as
``<domain>/<train, crossval or test>/<class number>/<image>``. Images with masks are in ``mask_layouts``.

The Caltech camera traps are published as images in one folder, and annotations in COCO format that label them.
Reference: Gulrajani, Lopez-Paz, "In Search of Lost Domain Generalization" (DomainBed), ICLR 2021, which selected these
places and species: an image goes into the folder of its place and of each species in its annotations.
Differences: DomainBed stops at a missing image; here, missing images are counted and omitted.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from fdg_plugins.data.specs import (
    IMAGE_SUFFIXES,
    AttributeSpec,
    ImageFolderSpec,
    KnownSpec,
    PublishedSpec,
    RotatedSpec,
    SegmentationSpec,
    files_of,
)
from fdg_plugins.data.stand_in import MARKER
from fdg_plugins.errors import DataError
from fdg_plugins.lab.preparation.mask_layouts import PACKED, Item, expected_pairs, mask_items
from fdg_plugins.lab.preparation.sources import Source
from fdg_plugins.storage import parse_json

PUBLISHED_DOMAINS: Mapping[str, Mapping[str, tuple[str, ...]]] = {
    "vlcs": {
        "caltech101": ("Caltech101", "CALTECH"),
        "labelme": ("LabelMe", "LABELME"),
        "sun09": ("SUN09", "SUN"),
        "voc2007": ("VOC2007", "PASCAL"),
    },
    "officehome": {"art": ("Art",), "clipart": ("Clipart",), "product": ("Product",), "real_world": ("Real World",)},
}
"""Published names of domain folders that differ from ours; comparison ignores case and punctuation."""

_SPLITS = ("train", "crossval", "test")
_UNION = "full"  # in VLCS, the images of train/ and crossval/ again, named <train or crossval>_<file>
_DOTTED = ".idx"  # in another spelling of the names of MNIST's files: train-images.idx3-ubyte


@dataclass(frozen=True)
class Plan:
    """The files to write, each target once, and the files of the source that do not belong to the data set."""

    items: tuple[Item, ...]
    left_out: tuple[str, ...]
    remarks: tuple[str, ...] = ()


def make_plan(spec: KnownSpec, source: Source, target: Path) -> Plan:
    """Return the plan that copies ``source`` to ``target``, the data set's folder.

    Raises DataError if the source holds nothing of the data set, holds drawings of the stand-in, has two files for
    the same image, or holds inconsistent lists.
    """
    if markers := _of_name(MARKER, source):
        raise DataError(
            f"source {source.name} holds {markers[0]}: it is the STAND-IN; expected images of {spec.title}."
        )
    items, remarks, expected = _found(spec, source)
    if not items:
        raise DataError(f"source {source.name} holds nothing of {spec.title}; expected {expected}.")
    if isinstance(spec, ImageFolderSpec):
        items += _kfold_lists(spec, source, target)
    used = {item.source for item in items}
    left_out = tuple(file for file in source.files if file not in used)
    return Plan(_each_once(items, source, target), left_out, remarks)


def _found(spec: KnownSpec, source: Source) -> tuple[list[Item], tuple[str, ...], str]:
    if isinstance(spec, RotatedSpec | PublishedSpec):
        names = ", ".join(PurePosixPath(name).name for name in files_of(spec))
        return list(_published_files(spec, source)), (), f"the files {names}, with or without .gz"
    if isinstance(spec, AttributeSpec):
        expected = f"the files {spec.attribute_list} and {spec.part_list}, and {spec.image_folder}/<image>"
        return list(_attributed_files(spec, source)), (), expected
    if isinstance(spec, SegmentationSpec):
        return *mask_items(spec, source), expected_pairs(spec)
    published = PUBLISHED_DOMAINS.get(spec.name) or {domain: (domain,) for domain in spec.domains}
    names = ", ".join(names[0] for names in published.values())
    expected = f"<domain>/<class>/<image> with the domains {names} and classes such as {spec.classes[0]}"
    items = list(_sorted_images(spec, published, source.files))
    if spec.name == "terraincognita":
        expected += ", or images and the annotations of the camera traps (*.json)"
        return *((items, ()) if items else _annotated_images(spec, source)), expected
    return *_only_listed(spec, source, items), expected


def _plain(name: str) -> str:
    return "".join(character for character in name.lower() if character.isalnum())


def _of_name(name: str, source: Source) -> list[str]:
    return [file for file in source.files if PurePosixPath(file).name == name]


def _sorted_images(
    spec: ImageFolderSpec, published: Mapping[str, tuple[str, ...]], files: Iterable[str]
) -> Iterator[Item]:
    """Yield the images in ``<domain>/<class>/`` folders."""
    domains = {_plain(name): domain for domain, names in published.items() for name in (domain, *names)}
    classes = {_plain(name): name for name in spec.classes}
    if spec.name == "vlcs":  # alone published with numbers for names of classes
        classes |= {str(number): name for number, name in enumerate(spec.classes)}
    for file in files:
        if file.count("/") < 2 or not file.lower().endswith(IMAGE_SUFFIXES):
            continue
        *folders, name = file.split("/")
        part = folders[-2].lower()
        is_part = len(folders) > 2 and part in (*_SPLITS, _UNION)
        domain = domains.get(_plain(folders[-3 if is_part else -2]))
        class_name = classes.get(_plain(folders[-1]))
        if domain and class_name:
            # The name of the part comes before it, where images of several parts come together.
            prefix = f"{part}_" if is_part and part in _SPLITS and not name.startswith(f"{part}_") else ""
            yield Item(file, f"{domain}/{class_name}/{prefix}{name}")


def _published_files(spec: PublishedSpec | RotatedSpec, source: Source) -> Iterator[Item]:
    """Yield the files of a data set of few files, wherever the source has them, with or without ``.gz``."""
    places = {PurePosixPath(name).name: PurePosixPath(name).relative_to(spec.folder) for name in files_of(spec)}
    for file in source.files:
        name = PurePosixPath(file).name
        if place := places.get(name.removesuffix(PACKED).replace(_DOTTED, "-idx")):
            yield Item(file, str(place), name.endswith(PACKED))


def _attributed_files(spec: AttributeSpec, source: Source) -> Iterator[Item]:
    for file in source.files:
        path = PurePosixPath(file)
        if path.name in (spec.attribute_list, spec.part_list):
            yield Item(file, path.name)
        elif path.parent.name == spec.image_folder and path.name.lower().endswith(IMAGE_SUFFIXES):
            yield Item(file, f"{spec.image_folder}/{path.name}")


def _annotated_images(spec: ImageFolderSpec, source: Source) -> tuple[list[Item], tuple[str, ...]]:
    """Return the images that annotations of the camera traps choose; other kinds of JSON are ignored.

    Raises DataError, naming the file, for annotations of another form, and for two images of one name.
    """
    places = {domain.removeprefix("location_"): domain for domain in spec.domains}
    images: dict[str, list[str]] = {}
    for file in source.files:
        if file.lower().endswith(IMAGE_SUFFIXES):
            images.setdefault(PurePosixPath(file).name, []).append(file)
    items: dict[str, Item] = {}
    missing: set[str] = set()
    for file in (file for file in source.files if file.lower().endswith(".json")):
        content = parse_json(source.read_one(file), f"file of annotations {file} in {source.name}")
        try:
            chosen = list(_chosen(content, places, spec.classes))
        except (AttributeError, KeyError, TypeError) as error:
            raise DataError(
                f"annotations {file} in {source.name} lack or misplace {error}; expected images with id, file_name and "
                "location, annotations with image_id and category_id, categories with id and name."
            ) from error
        for domain, class_name, name in chosen:
            if len(images.get(name, ())) > 1:
                raise DataError(f"source {source.name} has several images named {name}; expected one.")
            if name not in images:
                missing.add(name)
                continue
            target = f"{domain}/{class_name}/{name}"
            items[target] = Item(images[name][0], target)
    remarks = (f"{len(missing):,} annotated images are not in the source",) if missing else ()
    return list(items.values()), remarks


def _chosen(content: Any, places: Mapping[str, str], classes: tuple[str, ...]) -> Iterator[tuple[str, str, str]]:
    if not isinstance(content, dict) or not {"images", "annotations", "categories"} <= content.keys():
        return
    names = {category["id"]: category["name"] for category in content["categories"]}
    images = {
        image["id"]: (places[str(image["location"])], PurePosixPath(image["file_name"]).name)
        for image in content["images"]
        if str(image["location"]) in places
    }
    for annotation in content["annotations"]:
        if annotation["image_id"] in images and (class_name := names[annotation["category_id"]]) in classes:
            domain, name = images[annotation["image_id"]]
            yield domain, class_name, name


def _kfold_lists(spec: ImageFolderSpec, source: Source, target: Path) -> Iterator[Item]:
    """Yield the official split lists, except those already in a place where the loader finds them."""
    pattern = re.compile(f"({'|'.join(spec.domains)})_(train|crossval|test)_kfold.txt")
    for file in source.files:
        path = source.path_of(file)
        if pattern.fullmatch(PurePosixPath(file).name) and (path is None or not path.is_relative_to(target)):
            yield Item(file, f"splits/{PurePosixPath(file).name}")


def _only_listed(spec: ImageFolderSpec, source: Source, items: list[Item]) -> tuple[list[Item], tuple[str, ...]]:
    """Keep, of each domain with DomainNet's two lists, the images that they name: those of the cleaned release.

    Raises DataError if a domain has only one of them, and for a line of another form.
    """
    if not spec.name.startswith("domainnet"):
        return items, ()
    remarks: list[str] = []
    for domain in spec.domains:
        names = [f"{domain}_{part}.txt" for part in ("train", "test")]
        lists = [file for name in names for file in _of_name(name, source)]
        if not lists:
            continue
        if len(lists) != 2:
            raise DataError(f"source {source.name} holds the lists {lists}; expected {' and '.join(names)}.")
        listed = {path for file in lists for path in _paths_in(source, file)}
        items = [item for item in items if not item.target.startswith(f"{domain}/") or _end(item.source) in listed]
        wanted = {path for path in listed if path.split("/")[1] in spec.classes}  # others are not missing
        missing = len(wanted - {_end(item.source) for item in items})
        lacking = f", of which {missing:,} are not in the source" if missing else ""
        remarks.append(f"{domain}: the images that its two lists name ({len(wanted):,}){lacking}")
    return items, tuple(remarks)


def _paths_in(source: Source, file: str) -> Iterator[str]:
    """Yield the paths in a list of lines such as ``clipart/bird/clipart_027_000001.jpg 31``."""
    for number, line in enumerate(source.read_one(file).decode("utf-8-sig", "replace").splitlines(), start=1):
        path, _, label = line.strip().rpartition(" ")
        if line.strip() and (len(path.split("/")) != 3 or not label.isdecimal()):
            raise DataError(
                f"list {file} in {source.name}, line {number}: got {line[:80]!r}; expected '<domain>/<class>/<image> "
                "<label>'."
            )
        if path:
            yield path


def _end(path: str) -> str:
    return "/".join(path.split("/")[-3:])


def _each_once(items: Iterable[Item], source: Source, target: Path) -> tuple[Item, ...]:
    """Return one item per target, preferring a file already in place, then any other, then a packed or second copy.

    An archive of MNIST may have each file under both spellings. Raises DataError for two files of the same rank.
    """
    chosen: dict[str, tuple[int, Item]] = {}
    for item in items:
        is_second = item.packed or _DOTTED in item.source or _UNION in item.source.lower().split("/")[-3:]
        rank = 0 if source.path_of(item.source) == target / item.target else 1 + is_second
        known_rank, known = chosen.setdefault(item.target, (rank, item))
        if known_rank == rank and known.source != item.source:
            raise DataError(
                f"source {source.name} has two files for {item.target}: {known.source} and {item.source}; expected one."
            )
        if rank < known_rank:
            chosen[item.target] = (rank, item)
    return tuple(item for _, item in chosen.values())
