# SPDX-License-Identifier: Apache-2.0
"""Map the files of a source to the files of a data set: from the published layouts to this package's own.

Published archives hold ``<any folders>/<domain>/<class>/<image>`` with their own domain names; VLCS also comes as
``<domain>/<train, crossval or test>/<class number>/<image>``. Images with masks are in ``mask_layouts``.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import NamedTuple

from fdg_plugins.data.mnist import FILES as MNIST_FILES
from fdg_plugins.data.mnist import FOLDER as MNIST_FOLDER
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
from fdg_plugins.lab.preparation.camera_traps import annotated_files
from fdg_plugins.lab.preparation.items import Item
from fdg_plugins.lab.preparation.mask_layouts import expected_pairs, mask_items
from fdg_plugins.lab.preparation.sources import Source

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
_MNIST_NAME = re.compile(r"(train|t10k)-(images|labels)[-.](idx\d-ubyte)(\.gz)?")


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
    _refuse_drawings(spec, source)
    items, remarks = _found(spec, source)
    if not items:
        raise DataError(f"source {source.name} holds nothing of {spec.title}; expected {expected_layout(spec)}.")
    if isinstance(spec, ImageFolderSpec):
        items += _kfold_lists(spec, source, target)
    kept = _each_once(items, source, target)
    used = {item.source for item in items}
    return Plan(kept, tuple(file for file in source.files if file not in used), remarks)


def expected_layout(spec: KnownSpec) -> str:
    """Return the expected layout of a source of the data set, for an error message."""
    if isinstance(spec, RotatedSpec):
        return f"the files {', '.join(MNIST_FILES)}, with or without .gz"
    if isinstance(spec, PublishedSpec):
        return f"the files {', '.join(PurePosixPath(name).name for name in files_of(spec))}, with or without .gz"
    if isinstance(spec, AttributeSpec):
        return f"the files {spec.attribute_list} and {spec.part_list}, and {spec.image_folder}/<image>"
    if isinstance(spec, SegmentationSpec):
        return expected_pairs(spec)
    names = ", ".join(published[0] for published in _published(spec).values())
    annotations = ", or images and the annotations of the camera traps (*.json)"
    return (
        f"<domain>/<class>/<image> with the domains {names} and classes such as {spec.classes[0]}"
        f"{annotations if spec.name == 'terraincognita' else ''}"
    )


def _published(spec: ImageFolderSpec) -> Mapping[str, tuple[str, ...]]:
    return PUBLISHED_DOMAINS.get(spec.name) or {domain: (domain,) for domain in spec.domains}


def _plain(name: str) -> str:
    """Return a name in the form used for comparison: letters and digits only, in lower case."""
    return "".join(character for character in name.lower() if character.isalnum())


def _of_name(name: str, source: Source) -> list[str]:
    """Return the paths of the files with this name, in any folder."""
    return [file for file in source.files if PurePosixPath(file).name == name]


def _refuse_drawings(spec: KnownSpec, source: Source) -> None:
    if markers := _of_name(MARKER, source):
        raise DataError(
            f"source {source.name} holds {markers[0]}: it is the STAND-IN; expected images of {spec.title}."
        )


def _found(spec: KnownSpec, source: Source) -> tuple[list[Item], tuple[str, ...]]:
    """Return what the source holds of the data set, without the official split lists, and remarks."""
    if isinstance(spec, RotatedSpec):
        return list(_mnist(source)), ()
    if isinstance(spec, PublishedSpec):
        return list(_published_files(spec, source)), ()
    if isinstance(spec, AttributeSpec):
        return list(_attributed_files(spec, source)), ()
    if isinstance(spec, SegmentationSpec):
        return mask_items(spec, source)
    images, remarks = _all_images(spec, source)
    kept, more = _only_listed(spec, source, images)
    return kept, remarks + more


def _all_images(spec: ImageFolderSpec, source: Source) -> tuple[list[Item], tuple[str, ...]]:
    """Return the images in folders of domains and classes; of camera traps without such folders, the annotated ones."""
    items = list(_sorted_images(spec, source.files))
    if items or spec.name != "terraincognita":
        return items, ()
    found, remarks = annotated_files(spec, source)
    return [Item(file, place) for place, file in found.items()], remarks


def _sorted_images(spec: ImageFolderSpec, files: Iterable[str]) -> Iterator[Item]:
    """Yield the images in ``<domain>/<class>/`` folders."""
    domains = {_plain(name): domain for domain, names in _published(spec).items() for name in (domain, *names)}
    classes = {_plain(name): name for name in spec.classes}
    numbered = _numbered_classes(spec)
    for file in _images_in_two_folders(files):
        *folders, name = file.split("/")
        above, part = _above_class(folders)
        domain = domains.get(_plain(above))
        class_name = numbered.get(folders[-1], classes.get(_plain(folders[-1])))
        if domain and class_name:
            yield Item(file, f"{domain}/{class_name}/{_with_part(name, part)}")


def _numbered_classes(spec: ImageFolderSpec) -> dict[str, str]:
    """Return the classes by the numbers that name their folders; only VLCS is published with such folders."""
    return {str(number): name for number, name in enumerate(spec.classes)} if spec.name == "vlcs" else {}


def _images_in_two_folders(files: Iterable[str]) -> Iterator[str]:
    return (file for file in files if file.count("/") >= 2 and file.lower().endswith(IMAGE_SUFFIXES))


def _with_part(name: str, part: str) -> str:
    """Return the name with that of the part before it, where images of several parts come together."""
    return f"{part}_{name}" if part in _SPLITS and not name.startswith(f"{part}_") else name


def _above_class(folders: list[str]) -> tuple[str, str]:
    """Return the folder of the domain, and that of a part of the data set between domain and class, ``""`` if none."""
    name = folders[-2].lower()
    if len(folders) > 2 and name in (*_SPLITS, _UNION):
        return folders[-3], name
    return folders[-2], ""


def _mnist(source: Source) -> Iterator[Item]:
    folder = PurePosixPath(MNIST_FOLDER).relative_to("mnist")
    for file in source.files:
        if match := _MNIST_NAME.fullmatch(PurePosixPath(file).name):
            part, kind, form, packed = match.groups()
            yield Item(file, str(folder / f"{part}-{kind}-{form}"), packed is not None)


def _published_files(spec: PublishedSpec, source: Source) -> Iterator[Item]:
    """Yield the files of a data set of few files, wherever the source has them, with or without ``.gz``."""
    places = {PurePosixPath(name).name: PurePosixPath(name).relative_to(spec.folder) for name in files_of(spec)}
    for file in source.files:
        name = PurePosixPath(file).name
        packed = name.endswith(".gz")
        if place := places.get(name.removesuffix(".gz").replace(_DOTTED, "-idx")):
            yield Item(file, str(place), packed)


def _attributed_files(spec: AttributeSpec, source: Source) -> Iterator[Item]:
    """Yield the two lists, wherever the source has them, and the images in the folder of images."""
    for file in source.files:
        path = PurePosixPath(file)
        if path.name in (spec.attribute_list, spec.part_list):
            yield Item(file, path.name)
        elif path.parent.name == spec.image_folder and path.name.lower().endswith(IMAGE_SUFFIXES):
            yield Item(file, f"{spec.image_folder}/{path.name}")


def _kfold_lists(spec: ImageFolderSpec, source: Source, target: Path) -> list[Item]:
    """Return the official split lists, except those already in a place where the loader finds them."""
    pattern = re.compile(f"({'|'.join(spec.domains)})_(train|crossval|test)_kfold.txt")
    lists = [file for file in source.files if pattern.fullmatch(PurePosixPath(file).name)]
    return [Item(file, f"splits/{PurePosixPath(file).name}") for file in lists if not _is_below(source, file, target)]


def _only_listed(spec: ImageFolderSpec, source: Source, items: list[Item]) -> tuple[list[Item], tuple[str, ...]]:
    """Keep, of each domain with DomainNet's lists, the images that they name: those of the cleaned release."""
    if not spec.name.startswith("domainnet"):
        return items, ()
    lists = ((domain, _lists_of(domain, source)) for domain in spec.domains)
    listed = {domain: {path for file in files for path in _paths_in(source, file)} for domain, files in lists if files}
    kept = [item for item in items if _named_by(listed.get(item.target.split("/")[0]), item)]
    return kept, tuple(_listing(spec, domain, names, kept) for domain, names in listed.items())


def _listing(spec: ImageFolderSpec, domain: str, names: set[str], kept: Iterable[Item]) -> str:
    """Return the remark on the images that the lists of a domain name; those of other classes are not missing."""
    wanted = {name for name in names if name.split("/")[1] in spec.classes}
    missing = len(wanted - {_end(item.source) for item in kept})
    lacking = f", of which {missing:,} are not in the source" if missing else ""
    return f"{domain}: the images that its two lists name ({len(wanted):,}){lacking}"


def _lists_of(domain: str, source: Source) -> list[str]:
    """Return the paths of DomainNet's two lists of a domain, none if it has neither; raise DataError if it has one."""
    names = [f"{domain}_{part}.txt" for part in ("train", "test")]
    found = {name: _of_name(name, source) for name in names}
    if not any(found.values()):
        return []
    for name, files in found.items():
        if len(files) != 1:
            raise DataError(f"source {source.name} holds {len(files)} lists {name}; expected {' and '.join(names)}.")
    return [files[0] for files in found.values()]


def _paths_in(source: Source, file: str) -> Iterator[str]:
    """Yield the paths in a list of lines such as ``clipart/bird/clipart_027_000001.jpg 31``."""
    try:
        lines = source.read_one(file).decode("utf-8-sig").splitlines()
    except UnicodeDecodeError as error:
        raise DataError(f"list {file} in {source.name} is not text; expected lines '<path> <label>'.") from error
    for number, line in enumerate(lines, start=1):
        if line.strip():
            yield _path_in(line.strip(), f"list {file} in {source.name}, line {number}")


def _path_in(line: str, where: str) -> str:
    path, _, label = line.rpartition(" ")
    if len(path.split("/")) != 3 or not label.isdecimal():
        raise DataError(f"{where}: got {line[:80]!r}; expected '<domain>/<class>/<image> <label>'.")
    return path


def _named_by(names: set[str] | None, item: Item) -> bool:
    return names is None or _end(item.source) in names


def _end(path: str) -> str:
    """Return the part of a path that a list names: domain, class and image."""
    return "/".join(path.split("/")[-3:])


class _Ranked(NamedTuple):
    """An item, and its rank among the items for the same target, the lowest preferred."""

    rank: int
    item: Item


def _each_once(items: Iterable[Item], source: Source, target: Path) -> tuple[Item, ...]:
    """Return one item per target, preferring a file already in place, then any other, then a packed or second copy."""
    chosen: dict[str, _Ranked] = {}
    for item in items:
        found = _Ranked(_rank(item, source, target), item)
        chosen[item.target] = _preferred(chosen.get(item.target, found), found, source)
    return tuple(item for _, item in chosen.values())


def _rank(item: Item, source: Source, target: Path) -> int:
    """Return 0 for a file already in place, 2 for a packed or second copy, 1 for any other.

    An archive of MNIST may have each file under both spellings.
    """
    if source.path_of(item.source) == target / item.target:
        return 0
    is_second = item.packed or _DOTTED in item.source or _UNION in item.source.lower().split("/")[-3:]
    return 2 if is_second else 1


def _preferred(known: _Ranked, other: _Ranked, source: Source) -> _Ranked:
    """Return the one of lower rank; raise DataError for two files of the same rank."""
    if known.rank == other.rank and known.item.source != other.item.source:
        raise DataError(
            f"source {source.name} has two files for {other.item.target}: {known.item.source} and "
            f"{other.item.source}; expected one."
        )
    return min(known, other, key=lambda each: each.rank)


def _is_below(source: Source, file: str, folder: Path) -> bool:
    path = source.path_of(file)
    return path is not None and path.is_relative_to(folder)
