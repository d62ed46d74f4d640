# SPDX-License-Identifier: Apache-2.0
"""What a domain holds, by names alone: its images with their classes and groups, and how lists or folders divide them.

Images are in the folders of their classes, in ``images/`` beside ``masks/`` (:mod:`fdg_plugins.data.pairs`), or in a
list. Two kinds of lists have images of any folder:

- ``<domain>/labels.csv``, of images with any number of classes. Its first line names columns: ``image``, the path of an
  image below the domain's folder, and one for each class, with 1 for an image that has it and 0 for any other.
- The lists of CelebA. ``list_attr_celeba.txt`` has the number of images in its first line, the names of the attributes
  in the second, and then a line per image: its file name, and 1 or -1 for each attribute.
  ``list_eval_partition.txt`` has a file name and the number of a part in each line.

A domain of classes is divided by the user's own ``dataset.toml``, by the official lists of PACS, or not at all.
"""

import csv
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import product
from pathlib import Path, PurePosixPath

from fdg_plugins.data.folders import (
    OF_SYSTEMS,
    check_names,
    existing_root,
    files_in,
    has_image,
    is_file,
    is_folder,
    names_in,
    read_lines,
    refuse_outside,
)
from fdg_plugins.data.own_files import DATASET_FILE, LABELS_FILE, NO_RULES, DatasetFile
from fdg_plugins.data.pairs import list_pairs
from fdg_plugins.data.specs import (
    IMAGE_SUFFIXES,
    AttributeSpec,
    ImageFolderSpec,
    KnownSpec,
    Listing,
    Sample,
    SegmentationSpec,
    without_suffix,
)
from fdg_plugins.errors import DataError, shorten, visible

IMAGE = "image"
VALUES = {"0": 0, "0.0": 0, "1": 1, "1.0": 1}
HAS, HAS_NOT = "1", "-1"
# Folders in the data set's that may hold the official lists; the last is the download's own name.
KFOLD_FOLDERS = ("", "splits", "kfold", "Train val splits and h5py files pre-read")


def list_domain(data_root: Path, spec: KnownSpec, domain: str, rules: DatasetFile = NO_RULES) -> Listing:
    """Return what a domain of image files holds, without opening an image.

    Left out are known bad files, and what ``rules``, the site's own, exclude: an image with a mask if either is
    excluded. A class without images is legal: its folder is empty or missing.
    """
    root = existing_root(data_root, spec)
    found = _found(root, spec, domain, rules)
    known_bad = spec.known_bad if isinstance(spec, ImageFolderSpec) else ()
    out = {one.file for one in found.images if without_suffix(one.file) in known_bad or rules.leaves_out(one)}
    images = tuple(sorted((one for one in found.images if one.file not in out), key=lambda one: one.file))
    if not images:
        folder, public = root / spec.folder / domain, f"domain {domain!r} has no usable image."
        raise DataError(field="folder", value=folder, expected=f"usable images in {spec.layout}", public=public)
    files = {one.file for one in images}
    return Listing(
        _grouped(images, rules),
        tuple(sorted({*found.skipped, *out})),
        _unused(found.unused, rules),
        {part: files.intersection(named) for part, named in found.parts.items()},
        found.origin,
        rules.group,
    )


def _found(root: Path, spec: KnownSpec, domain: str, rules: DatasetFile) -> Listing:
    if isinstance(spec, AttributeSpec):
        return _attributed(root, spec, domain)
    if isinstance(spec, SegmentationSpec):
        return list_pairs(root, spec, domain, rules)
    assert isinstance(spec, ImageFolderSpec)
    return (_labelled if spec.task == "multilabel" else _in_classes)(root, spec, domain, rules)


def _unused(paths: Collection[str], rules: DatasetFile) -> tuple[str, ...]:
    """Return a phrase about files and folders that are not used, none if there are none but excluded ones."""
    others = (path for path in paths if path.split("/")[-1].lower() not in OF_SYSTEMS)
    left = [path for path in others if not rules.excludes(path) and not rules.excludes(f"{path}/")]
    return (f"{len(left):,} files or folders (such as {visible(min(left))})",) if left else ()


def _grouped(images: tuple[Sample, ...], rules: DatasetFile) -> tuple[Sample, ...]:
    """Return the images with the groups that ``rules`` declare: those of the lists, or what a pattern finds."""
    if rules.group is None:
        return images
    groups = {one.file: one.group for one in images if one.group}
    if (pattern := rules.group_pattern) is not None:
        found = {one.file: pattern.search(one.file.rpartition("/")[2]) for one in images}
        groups = {file: "-".join(filter(None, match.groups())) or match[0] for file, match in found.items() if match}
    lacking = [one.file for one in images if one.file not in groups]
    if lacking and (pattern is not None or not groups):  # some images may be in no list
        problem = f"{len(lacking):,} of {len(images):,} images have no {rules.group}"
        expected = f"such as {shorten(lacking[0])}; expected a column of the lists, or a group_pattern that fits"
        raise DataError(f"{problem} ({DATASET_FILE}), {expected}.", field="group", public=f"{problem}.")
    return tuple(replace(one, group=groups.get(one.file, "")) for one in images)


# --- classes in folders ---


def _in_classes(root: Path, spec: ImageFolderSpec, domain: str, rules: DatasetFile) -> Listing:
    base = existing_root(root, spec, domain) / spec.folder
    images: list[Sample] = []
    unused: list[str] = []
    # A domain may have no folder for some part, such as none for tests.
    places = [place for part in rules.part_folders if is_folder(base / (place := f"{domain}/{part}".rstrip("/")))]
    for place in places:
        unused += _beside_classes(root, spec, place, rules)
    for place, (label, name) in product(places, enumerate(spec.classes)):
        files, others = files_in(root, folder) if is_folder(folder := base / place / name) else ([], [])
        if not files and any(other.lower() not in OF_SYSTEMS for other in others):
            public = f"a class of domain {domain!r} has no usable image."
            raise DataError(field="folder", value=folder, expected=f"files in {IMAGE_SUFFIXES}", public=public)
        unused += [f"{place}/{name}/{other}" for other in others]
        images += [Sample(f"{place}/{name}/{file}", label) for file in files]
    return _divided(Listing(tuple(images), unused=tuple(unused)), root, spec, domain, rules)


def _beside_classes(root: Path, spec: ImageFolderSpec, place: str, rules: DatasetFile) -> list[str]:
    folder = root / spec.folder / place
    refuse_outside(root, folder)
    names = names_in(folder)
    for name in sorted(set(names) - {*spec.classes}):
        # A record knows what its data set has; beside a user's own classes are folders of notes and the like.
        is_class = has_image(folder / name) if spec.described else is_folder(folder / name)
        if is_class and not rules.excludes(f"{place}/{name}/"):
            public = f"a domain of data set {spec.name!r} has class folders that the data set does not have."
            raise DataError(field="folder", value=folder / name, expected=f"one of {spec.classes}", public=public)
    return [f"{place}/{name}" for name in names if name.lower().endswith(IMAGE_SUFFIXES)]


def _divided(found: Listing, root: Path, spec: ImageFolderSpec, domain: str, rules: DatasetFile) -> Listing:
    """Return the images as ``rules``, else the official lists below the data root, divide and group them."""
    files = [one.file for one in found.images]
    if rules.parts is not None:
        folders = {"training": rules.parts.train, "validation": rules.parts.validation}
        starts = {part: f"{domain}/{folder}/" for part, folder in folders.items() if folder is not None}
        parts = {part: {file for file in files if file.startswith(start)} for part, start in starts.items()}
        return replace(found, parts=parts, origin="parts")
    if rules.lists is None:
        lists, lines = _official_lists(root / spec.folder, domain), _official_lines(found.images, spec)
        named = {part: _named(root, path, lines, None) for part, path in lists.items()}
        return replace(found, parts=named, origin="kfold")
    # A class may have the name of the domain, so a line may begin with that and not mean the domain.
    lines = {file: file for file in files} | {file.removeprefix(f"{domain}/"): file for file in files}
    lists = {part: root / path for part, path in rules.lists.of(domain).items()}
    named = {part: _named(root, path, lines, rules.group_column) for part, path in lists.items()}
    groups = {file: group for of_part in named.values() for file, group in of_part.items()}
    images = tuple(replace(one, group=groups.get(one.file, "")) for one in found.images)
    return replace(found, images=images, parts=named, origin="lists")


def _official_lines(images: Sequence[Sample], spec: ImageFolderSpec) -> dict[str, str]:
    """Return lines such as ``photo/dog/056_0001 1``, without suffixes, and what each means; known bad files too."""
    classes = enumerate(spec.classes, 1)
    bad = {f"{file} {number}": file for number, name in classes for file in spec.known_bad if f"/{name}/" in file}
    return {f"{without_suffix(one.file)} {one.label + 1}": one.file for one in images} | bad


def _official_lists(folder: Path, domain: str) -> dict[str, Path]:
    for place in (folder / name for name in KFOLD_FOLDERS):
        words = {"training": "train", "validation": "crossval", "test": "test"}
        paths = {part: place / f"{domain}_{word}_kfold.txt" for part, word in words.items()}
        found = {part: path for part, path in paths.items() if is_file(path)}
        if len(found.keys() & {"training", "validation"}) == 1:
            expected = f"both lists, of training and of validation images of {domain}"
            raise DataError(site=f"folder {place}", field="lists", value=[*found], expected=expected)
        if found.keys() - {"test"}:
            return found
    return {}


# --- lists ---


def _named(root: Path, path: Path, lines: Mapping[str, str], column: str | None) -> dict[str, str]:
    """Return the files that a list names, and what its ``column`` says of each; ``lines``: the file that a line means.

    Without a column, a line is an image.
    """
    rows = ((number, line, "") for number, line in read_lines(root, path))
    if column is not None:
        table = _table(root, path, [column])
        rows = ((number, next(iter(row.values()), ""), row.get(column, "")) for number, row in table)
    found: dict[str, str] = {}
    for number, name, group in rows:
        file = lines.get(name) or lines.get(_without_suffixes(name), "")
        if not file or file in found or (column is not None and not group):
            expected = "<class>/<image> of the domain, each once, and the group, if any"
            raise _odd_line(path, number, name, expected)
        found[file] = group
    return found


def _without_suffixes(line: str) -> str:
    file, *label = line.rsplit(maxsplit=1) or [""]
    return " ".join((without_suffix(file), *label))


def _odd_line(path: Path, number: int, line: str, expected: str) -> DataError:
    return DataError(site=f"list {path}", field=f"line {number}", value=line, expected=expected)


def _cells(line: str) -> list[str]:
    try:
        return [cell.strip() for cell in next(csv.reader([line]))]
    except csv.Error:  # a cell too long for the reader, and for any name
        return [line]


def _table(root: Path, path: Path, needed: Sequence[str]) -> Iterator[tuple[int, dict[str, str]]]:
    """Yield number and cells of the lines of a list, by the columns that its first line names, the ``needed`` too."""
    (_, head), *rows = read_lines(root, path) or [(1, "")]
    columns = _cells(head)
    if not {*needed} <= {*columns}:
        raise _odd_line(path, 1, head, f"the columns {', '.join(needed)}")
    for number, line in rows:
        yield number, dict(zip(columns, _cells(line), strict=False))


def _labelled(root: Path, spec: ImageFolderSpec, domain: str, rules: DatasetFile) -> Listing:
    base, column = existing_root(root, spec, domain) / spec.folder, rules.group_column
    path, found = base / domain / LABELS_FILE, dict[str, Sample]()
    for number, row in _table(root, path, (IMAGE, *spec.classes, *filter(None, (column,)))):
        present = tuple(VALUES.get(row.get(name, ""), -1) for name in spec.classes)
        name = PurePosixPath(row.get(IMAGE, ""))
        file, group = f"{domain}/{name}", row.get(column or IMAGE)
        is_there = not name.is_absolute() and ".." not in name.parts and is_file(base / file)
        if -1 in present or not is_there or not group or file in found:
            expected = "an image in the domain's folder, named once, 0 or 1 for each class, and its group, if any"
            raise _odd_line(path, number, ",".join(row.values()), expected)
        refuse_outside(root, base / file)
        found[file] = Sample(file, 0, group=group if column else "", present=present)
    check_names(base / domain, found)
    return Listing(tuple(found.values()))


def _attributed(root: Path, spec: AttributeSpec, domain: str) -> Listing:
    base, path = root / spec.folder, root / spec.folder / spec.attribute_list
    (_, _), (_, head), *_ = [*read_lines(root, path), (0, ""), (0, "")]
    names = head.split()
    if not {spec.target, spec.attribute} <= {*names}:
        raise _odd_line(path, 2, head, f"names of attributes, {spec.target} and {spec.attribute} among them")
    target, attribute = names.index(spec.target), names.index(spec.attribute)
    rows = _numbers(root, path, 2, len(names))
    parts = _numbers(root, base / spec.part_list, 0, 1)
    chosen = sorted(image for image, (part,) in parts.items() if part == spec.parts[domain])
    images, _ = files_in(root, base / spec.image_folder)
    if lacking := (rows.keys() ^ parts.keys()) | ({*chosen} - {*images}):
        problem = f"{len(lacking):,} images of {spec.title} are not in both lists and in {spec.image_folder}/"
        raise DataError(f"{problem}, such as {min(lacking)!r}.", field="images", public=f"{problem}.")
    labels = {image: (int(row[target] == HAS_NOT), int(row[attribute] == HAS)) for image, row in rows.items()}
    facts = ((f"{spec.image_folder}/{image}", *labels[image]) for image in chosen)
    return Listing(tuple(Sample(file, label, attribute=has) for file, label, has in facts))


def _numbers(root: Path, path: Path, start: int, columns: int) -> dict[str, list[str]]:
    """Return the numbers after the name of each image in a list, from the line ``start`` on."""
    found: dict[str, list[str]] = {}
    for number, line in read_lines(root, path)[start:]:
        image, *values = line.split()
        if len(values) != columns or not all(value.lstrip("-").isdecimal() for value in values) or image in found:
            raise _odd_line(path, number, line, f"the name of an image, each once, and {columns} numbers")
        found[image] = values
    return found
