# SPDX-License-Identifier: Apache-2.0
"""Which files of a download become which files of a data set, by its published layouts.

Published archives hold ``<any folders>/<domain>/<class>/<image>`` with their own domain names; VLCS also comes as
``<domain>/<train, crossval or test>/<class number>/<image>``. Images with masks are in ``mask_layouts``.

The Caltech camera traps are published as images in one folder, and annotations in COCO format that label them.
Reference: Gulrajani, Lopez-Paz, "In Search of Lost Domain Generalization" (DomainBed), ICLR 2021, which selected these
places and species: an image goes into the folder of its place and of each species in its annotations.
Differences: DomainBed stops at a missing image; here, missing images are counted and omitted.
"""

import re
from collections.abc import Iterable, Iterator
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple

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
from fdg_plugins.lab.preparation.mask_layouts import Item, mask_items
from fdg_plugins.lab.preparation.sources import PACKED, Source
from fdg_plugins.storage import parse_json

_SPLITS = ("train", "crossval", "test")
_UNION = "full"  # in VLCS, the images of train/ and crossval/ again, named <train or crossval>_<file>
_DOTTED = ".idx"  # in another spelling of the names of MNIST's files: train-images.idx3-ubyte


class Plan(NamedTuple):
    """The files to write, each target once, and the files of the source that do not belong to the data set."""

    items: tuple[Item, ...]
    left_out: tuple[str, ...]
    remarks: tuple[str, ...] = ()


def make_plan(spec: KnownSpec, source: Source, target: Path) -> Plan:
    """Return the plan that copies ``source`` to ``target``, the data set's folder.

    Raises DataError if the source holds nothing of the data set, holds drawings of the stand-in, has two files for
    the same image, or holds inconsistent lists.
    """
    if any(PurePosixPath(file).name == MARKER for file in source.files):
        raise DataError(f"source {source.name} holds {MARKER}: it is the STAND-IN; expected images of {spec.title}.")
    items, remarks, expected = _found(spec, source)
    if not items:
        raise DataError(f"source {source.name} holds nothing of {spec.title}; expected {expected}.")
    if isinstance(spec, ImageFolderSpec):  # the official lists, except those in a place where the loader finds them
        pattern = re.compile(f"({'|'.join(spec.domains)})_(train|crossval|test)_kfold.txt")
        lists = [(file, path) for file, path in source.files.items() if pattern.fullmatch(path.name)]
        items += [Item(file, f"splits/{path.name}") for file, path in lists if not path.is_relative_to(target)]
    used = {item.source for item in items}
    left_out = tuple(file for file in source.files if file not in used)
    return Plan(_each_once(items, source, target), left_out, remarks)


def _found(spec: KnownSpec, source: Source) -> tuple[list[Item], tuple[str, ...], str]:
    """Return the items, remarks, and what a source of the data set should hold."""
    if isinstance(spec, RotatedSpec | PublishedSpec):
        places = {PurePosixPath(name).name: PurePosixPath(name).relative_to(spec.folder) for name in files_of(spec)}
        names = {file: PurePosixPath(file).name.removesuffix(PACKED).replace(_DOTTED, "-idx") for file in source.files}
        items = [Item(file, str(places[name])) for file, name in names.items() if name in places]
        return items, (), f"the files {', '.join(places)}, with or without .gz"
    if isinstance(spec, AttributeSpec):
        lists = [spec.attribute_list, spec.part_list]
        paths = [PurePosixPath(file) for file in source.files]
        items = [Item(str(path), path.name) for path in paths if path.name in lists]
        images = (path for path in paths if path.parent.name == spec.image_folder)
        items += [Item(str(path), f"{spec.image_folder}/{path.name}") for path in images]
        return items, (), f"the files {' and '.join(lists)}, and {spec.image_folder}/<image>"
    if isinstance(spec, SegmentationSpec):
        return mask_items(spec, source)
    items = list(_sorted_images(spec, source.files))
    expected = f"<domain>/<class>/<image> with the domains {', '.join(spec.domains)} and classes {spec.classes[0]}, ..."
    remarks: tuple[str, ...] = ()
    if spec.name == "terraincognita" and not items:
        items, remarks = _annotated_images(spec, source)
        expected += "; or images and the annotations of the camera traps (*.json)"
    elif spec.name.startswith("domainnet"):
        items, remarks = _only_listed(spec, source, items)
    return items, remarks, expected


def _plain(name: str) -> str:
    return "".join(filter(str.isalnum, name.lower()))


def _sorted_images(spec: ImageFolderSpec, files: Iterable[str]) -> Iterator[Item]:
    """Yield the images in ``<domain>/<class>/`` folders."""
    domains = {_plain(domain): domain for domain in spec.domains}
    classes = {_plain(name): name for name in spec.classes}
    if spec.name == "vlcs":  # also published under other names of domains, and numbers for classes
        domains |= {"caltech": "caltech101", "sun": "sun09", "pascal": "voc2007"}
        classes |= {str(number): name for number, name in enumerate(spec.classes)}
    for file in files:
        *folders, name = file.split("/")
        if len(folders) < 2 or not name.lower().endswith(IMAGE_SUFFIXES):
            continue
        part = folders[-2].lower()
        is_part = len(folders) > 2 and part in (*_SPLITS, _UNION)
        domain = domains.get(_plain(folders[-3 if is_part else -2]))
        class_name = classes.get(_plain(folders[-1]))
        if domain and class_name:
            # The name of the part comes before it, where images of several parts come together.
            prefix = f"{part}_" if is_part and part in _SPLITS and not name.startswith(f"{part}_") else ""
            yield Item(file, f"{domain}/{class_name}/{prefix}{name}")


def _annotated_images(spec: ImageFolderSpec, source: Source) -> tuple[list[Item], tuple[str, ...]]:
    """Return the images that annotations of the camera traps choose; other kinds of JSON are ignored.

    Raises DataError, naming the file, for annotations of another form.
    """
    images = {PurePosixPath(file).name: file for file in source.files if file.lower().endswith(IMAGE_SUFFIXES)}
    chosen: set[tuple[str, str]] = set()
    for file in (file for file in source.files if file.lower().endswith(".json")):
        content = parse_json(source.read(file), f"file of annotations {file} in {source.name}")
        try:
            chosen |= set(_chosen(content, spec))
        except (AttributeError, KeyError, TypeError) as error:
            raise DataError(f"annotations {file} in {source.name} lack or misplace {error}.") from error
    missing = len({name for _, name in chosen} - images.keys())
    remarks = (f"{missing:,} annotated images are not in the source",) if missing else ()
    return [Item(images[name], f"{folder}/{name}") for folder, name in sorted(chosen) if name in images], remarks


def _chosen(content: Any, spec: ImageFolderSpec) -> Iterator[tuple[str, str]]:
    """Yield ``<domain>/<class>`` and the file's name for each annotation of a chosen place and species."""
    if not isinstance(content, dict) or not {"images", "annotations", "categories"} <= content.keys():
        return
    names = {category["id"]: category["name"] for category in content["categories"]}
    images = {image["id"]: (f"location_{image['location']}", image["file_name"]) for image in content["images"]}
    for annotation in content["annotations"]:
        domain, file = images.get(annotation["image_id"], ("", ""))
        if domain in spec.domains and (class_name := names[annotation["category_id"]]) in spec.classes:
            yield f"{domain}/{class_name}", PurePosixPath(file).name


def _only_listed(spec: ImageFolderSpec, source: Source, items: list[Item]) -> tuple[list[Item], tuple[str, ...]]:
    """Keep, of each domain with DomainNet's two lists, the images that they name: those of the cleaned release.

    Lines are such as ``clipart/bird/clipart_027_000001.jpg 31``. Raises DataError if a domain has one list alone.
    """
    remarks: list[str] = []
    for domain in spec.domains:
        names = [f"{domain}_{part}.txt" for part in ("train", "test")]
        lists = [file for file in source.files if PurePosixPath(file).name in names]
        if not lists:
            continue
        if len(lists) != 2:
            raise DataError(f"source {source.name} holds the lists {lists}; expected {' and '.join(names)}.")
        lines = [line for file in lists for line in source.read(file).decode("utf-8-sig", "replace").splitlines()]
        listed = {line.strip().rpartition(" ")[0] for line in lines}
        items = [item for item in items if not item.target.startswith(f"{domain}/") or _end(item.source) in listed]
        wanted = {path for path in listed if path.split("/")[1:2] and path.split("/")[1] in spec.classes}
        missing = len(wanted - {_end(item.source) for item in items})
        lacking = f", of which {missing:,} are not in the source" if missing else ""
        remarks.append(f"{domain}: the images that its two lists name ({len(wanted):,}){lacking}")
    return items, tuple(remarks)


def _end(path: str) -> str:
    return "/".join(path.split("/")[-3:])


def _each_once(items: Iterable[Item], source: Source, target: Path) -> tuple[Item, ...]:
    """Return one item per target, preferring a file already in place, then any other, then a packed or second copy.

    An archive of MNIST may have each file under both spellings. Raises DataError for two files of the same rank.
    """

    def rank(item: Item) -> int:
        is_second = item.packed or _DOTTED in item.source or _UNION in item.source.lower().split("/")[-3:]
        return 0 if source.files[item.source] == target / item.target else 1 + is_second

    chosen: dict[str, Item] = {}
    for item in items:
        known = chosen.setdefault(item.target, item)
        if rank(known) == rank(item) and known.source != item.source:
            raise DataError(
                f"source {source.name} has two files for {item.target}: {known.source} and {item.source}; expected one."
            )
        chosen[item.target] = min(known, item, key=rank)
    return tuple(chosen.values())
