# SPDX-License-Identifier: Apache-2.0
"""Map the files of a source to the files of a data set: from the published layouts to this package's own.

Published archives hold ``<any folders>/<domain>/<class>/<image>`` with their own domain names; VLCS also comes as
``<domain>/<train, crossval or test>/<class number>/<image>``. Images with masks are in ``mask_layouts``.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from fdg_plugins.data.catalogue import ImageFolderSpec, KnownSpec, RotatedSpec, SegmentationSpec
from fdg_plugins.data.folders import IMAGE_SUFFIXES
from fdg_plugins.data.mnist import FILES as MNIST_FILES
from fdg_plugins.data.mnist import FOLDER as MNIST_FOLDER
from fdg_plugins.data.preparation.camera_traps import annotated_files
from fdg_plugins.data.preparation.items import Item
from fdg_plugins.data.preparation.mask_layouts import expected_pairs, mask_items
from fdg_plugins.data.preparation.sources import Source
from fdg_plugins.data.stand_in import MARKER
from fdg_plugins.errors import DataError

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
    if marker := next((file for file in source.files if PurePosixPath(file).name == MARKER), None):
        raise DataError(f"source {source.name} holds {marker}: it is the STAND-IN; expected images of {spec.title}.")
    remarks: tuple[str, ...] = ()
    if isinstance(spec, RotatedSpec):
        items = list(_mnist(source))
    elif isinstance(spec, SegmentationSpec):
        items, remarks = mask_items(spec, source)
    else:
        items = list(_sorted_images(spec, source.files))
        if not items and spec.name == "terraincognita":
            found, remarks = annotated_files(spec, source)
            items = [Item(file, place) for place, file in found.items()]
        items, more = _only_listed(spec, source, items)
        remarks += more
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


def _sorted_images(spec: ImageFolderSpec, files: Iterable[str]) -> Iterator[Item]:
    """Yield the images in ``<domain>/<class>/`` folders."""
    domains = {_plain(name): domain for domain, names in _published(spec).items() for name in (domain, *names)}
    classes = {_plain(name): name for name in spec.classes}
    numbered = {str(number): name for number, name in enumerate(spec.classes)} if spec.name == "vlcs" else {}
    for file in files:
        *folders, name = file.split("/")
        if len(folders) < 2 or not name.lower().endswith(IMAGE_SUFFIXES):
            continue
        part = _part_of(folders)
        domain = domains.get(_plain(folders[-3] if part else folders[-2]))
        class_name = numbered.get(folders[-1]) or classes.get(_plain(folders[-1]))
        if domain and class_name:
            yield Item(file, f"{domain}/{class_name}/{_with_part(name, part)}")


def _with_part(name: str, part: str) -> str:
    """Return the name with that of the part before it, where images of several parts come together."""
    return f"{part}_{name}" if part in _SPLITS and not name.startswith(f"{part}_") else name


def _part_of(folders: list[str]) -> str:
    """Return the folder between domain and class, of one part of the data set; ``""`` if there is none."""
    name = folders[-2].lower()
    return name if len(folders) > 2 and name in (*_SPLITS, _UNION) else ""


def _mnist(source: Source) -> Iterator[Item]:
    folder = PurePosixPath(MNIST_FOLDER).relative_to("mnist")
    for file in source.files:
        if match := _MNIST_NAME.fullmatch(PurePosixPath(file).name):
            part, kind, form, packed = match.groups()
            yield Item(file, str(folder / f"{part}-{kind}-{form}"), packed is not None)


def _kfold_lists(spec: ImageFolderSpec, source: Source, target: Path) -> list[Item]:
    """Return the official split lists, except those already in a place where the loader finds them."""
    pattern = re.compile(f"({'|'.join(spec.domains)})_(train|crossval|test)_kfold.txt")
    lists = [file for file in source.files if pattern.fullmatch(PurePosixPath(file).name)]
    return [Item(file, f"splits/{PurePosixPath(file).name}") for file in lists if not _is_below(source, file, target)]


def _only_listed(spec: ImageFolderSpec, source: Source, items: list[Item]) -> tuple[list[Item], tuple[str, ...]]:
    """Keep, of each domain with DomainNet's lists, the images that they name: those of the cleaned release."""
    if not spec.name.startswith("domainnet"):
        return items, ()
    listed: dict[str, set[str]] = {}
    for domain in spec.domains:
        names = [f"{domain}_{part}.txt" for part in ("train", "test")]
        found = {name: [file for file in source.files if PurePosixPath(file).name == name] for name in names}
        if not any(found.values()):
            continue
        for name, files in found.items():
            if len(files) != 1:
                raise DataError(
                    f"source {source.name} holds {len(files)} lists {name}; expected {' and '.join(names)}."
                )
        listed[domain] = {line for files in found.values() for line in _paths_in(source, files[0])}
    kept = [item for item in items if _named_by(listed.get(item.target.split("/")[0]), item)]
    remarks = [f"{domain}: the images that its two lists name ({len(names):,})" for domain, names in listed.items()]
    return kept, tuple(remarks)


def _paths_in(source: Source, file: str) -> Iterator[str]:
    """Yield the paths in a list of lines such as ``clipart/bird/clipart_027_000001.jpg 31``."""
    try:
        lines = source.read_one(file).decode().splitlines()
    except UnicodeDecodeError as error:
        raise DataError(f"list {file} in {source.name} is no text; expected lines '<path> <label>'.") from error
    for number, line in enumerate(lines, start=1):
        if line.strip():
            path, _, label = line.strip().rpartition(" ")
            if len(path.split("/")) != 3 or not label.isdecimal():
                raise DataError(
                    f"list {file} in {source.name}, line {number}: got {line.strip()[:80]!r}; expected "
                    "'<domain>/<class>/<image> <label>'."
                )
            yield path


def _named_by(names: set[str] | None, item: Item) -> bool:
    return names is None or "/".join(item.source.split("/")[-3:]) in names


def _each_once(items: Iterable[Item], source: Source, target: Path) -> tuple[Item, ...]:
    """Return one item per target, preferring a file already in place, then any other, then a packed or second copy."""
    chosen: dict[str, tuple[int, Item]] = {}
    for item in items:
        is_second = item.packed or _UNION in item.source.lower().split("/")[-3:]
        rank = 0 if source.path_of(item.source) == target / item.target else 2 if is_second else 1
        known = chosen.get(item.target)
        if known and known[0] == rank and known[1].source != item.source:
            raise DataError(
                f"source {source.name} has two files for {item.target}: {known[1].source} and {item.source}; "
                "expected one."
            )
        if known is None or rank < known[0]:
            chosen[item.target] = (rank, item)
    return tuple(item for _, item in chosen.values())


def _is_below(source: Source, file: str, folder: Path) -> bool:
    path = source.path_of(file)
    return path is not None and path.is_relative_to(folder)
