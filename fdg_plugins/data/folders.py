# SPDX-License-Identifier: Apache-2.0
"""Folders below a data root: the checks of links and names, and the images of a domain in the folders of its classes.

A domain of classes is divided by the user's own ``dataset.toml``, by the official lists of PACS, or not at all.
"""

import csv
import os
import re
from collections.abc import Iterable, Sequence
from pathlib import Path

from fdg_plugins.data.groups import with_groups
from fdg_plugins.data.own_files import DATASET_FILE, NO_RULES, DatasetFile, read_dataset_file
from fdg_plugins.data.specs import IMAGE_SUFFIXES, Given, ImageFolderSpec, KnownSpec, Listing, Sample, without_suffix
from fdg_plugins.errors import DataError, shorten, visible

LOCK = ".fdg_prepare.lock"  # the file that a preparation makes first; it stays in the data set's folder
MANIFEST = "fdg_manifest.json"  # a preparation removes it before it writes the first image, and writes it last
OF_SYSTEMS = frozenset({"thumbs.db", "desktop.ini"})  # files in folders of images of which nobody needs to hear
# Folders in the data set's that may hold the official lists; the last is the download's own name.
KFOLD_FOLDERS = ("", "splits", "kfold", "Train val splits and h5py files pre-read")

is_folder = os.path.isdir  # unlike Path's, these raise for no name
is_file = os.path.isfile

# Control characters and line ends, which could forge lines of logs and lists, and bytes that are not UTF-8.
_UNUSABLE = re.compile("[\\x00-\\x1f\\x7f-\\x9f\\u2028\\u2029\\ud800-\\udfff]")


# --- paths ---


def is_unfinished(folder: Path) -> bool:
    """Return whether ``fdg data prepare`` has begun to fill a data set's folder and not ended."""
    return is_file(folder / LOCK) and not is_file(folder / MANIFEST)


def leads_outside(root: Path, path: Path) -> bool:
    """Return whether a path, after resolving links, lies outside ``root``, a resolved folder, or forms a cycle."""
    try:
        resolved = path.resolve()
    except (OSError, RuntimeError):  # a cycle, up to Python 3.12
        return True
    return resolved.is_symlink() or not resolved.is_relative_to(root)


def refuse_outside(root: Path, path: Path) -> None:
    """Raise DataError for a path that, after resolving links, leaves the data root or forms a cycle."""
    if leads_outside(root, path):
        public = "a link leads out of its data root."
        raise DataError(f"{path} is a link out of the data root; expected its target below {root}.", public=public)


def resolved(data_root: Path) -> Path:
    """Return a data root after resolving links; one that is no folder as it is named, for the message."""
    return data_root.resolve() if is_folder(data_root) else data_root


def existing_root(data_root: Path, spec: KnownSpec, domain: str = "") -> Path:
    """Return the resolved data root; raise DataError unless the folders down to the data set's, or domain's, exist."""
    root = resolved(data_root)
    for folder, what in (
        (root, "its data root is not a folder."),
        (root / spec.folder, f"data set {spec.name!r} is not in its data root."),
        (root / spec.folder / domain, f"domain {domain!r} of data set {spec.name!r} is not in its data root."),
    ):
        if not is_folder(folder):
            layout = "/".join(filter(None, ("<data root>", spec.folder, "<domain>", getattr(spec, "layout", ""))))
            hint = f"; did you mean {root.parent}?" if root.name == spec.folder else "."
            raise DataError(f"{folder} is not a folder; expected the layout {layout}{hint}", public=what)
        refuse_outside(root, folder)
    return root


def names_in(folder: Path) -> list[str]:
    """Return the names of what is in a folder, except what is hidden; raise DataError if it cannot be listed."""
    try:
        with os.scandir(folder) as entries:
            return [entry.name for entry in entries if not entry.name.startswith(".")]
    except OSError as error:
        raise DataError(f"folder {folder} cannot be listed: {error.strerror}.") from error


def image_names(root: Path, folder: Path, suffixes: tuple[str, ...] = IMAGE_SUFFIXES) -> list[str]:
    """Return the names of the files with one of the ``suffixes`` in a folder, in no particular order.

    Hidden files are ignored.
    """
    refuse_outside(root, folder)
    names = [name for name in names_in(folder) if name.lower().endswith(suffixes)]
    check_names(folder, names)
    for path in (folder / name for name in names):
        if path.is_symlink():
            refuse_outside(root, path)
        if not is_file(path):
            raise DataError(f"{path} is not a regular file; expected an image.")
    return names


def check_names(folder: Path, names: Iterable[str]) -> None:
    """Raise DataError for names of files that are not UTF-8 or have control characters."""
    if unusable := sorted(name for name in names if _UNUSABLE.search(name)):
        raise DataError(f"name {visible(unusable[0])} in {folder} is no UTF-8 or holds control characters.")


def has_image(folder: Path) -> bool:
    """Return whether a file named like an image is directly in the folder."""
    return is_folder(folder) and any(name.lower().endswith(IMAGE_SUFFIXES) for name in names_in(folder))


def unused_of(paths: Iterable[str], rules: DatasetFile) -> tuple[str, ...]:
    """Return a phrase about files and folders that are not used, none if there are none but excluded ones."""
    others = (path for path in paths if path.split("/")[-1].lower() not in OF_SYSTEMS)
    left = [path for path in others if not rules.excludes(path) and not rules.excludes(f"{path}/")]
    return (f"{len(left):,} files or folders (such as {visible(min(left))})",) if left else ()


def read_lines(root: Path, path: Path) -> list[tuple[int, str]]:
    """Return number and content of the lines of a list, without blank ones."""
    refuse_outside(root, path)
    try:
        lines = path.read_text(encoding="utf-8-sig").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"list {path} cannot be read as text ({type(error).__name__}).") from error
    return [(number, line.strip()) for number, line in enumerate(lines, 1) if line.strip()]


def rules_of(root: Path, given: Path | None) -> DatasetFile:
    """Return the rules for the images in a data root: those of the file ``given``, else of its own ``dataset.toml``."""
    path = given or root / DATASET_FILE
    if given is None:
        refuse_outside(root, path)
    return NO_RULES if given is None and not path.is_file() else read_dataset_file(path)


# --- classes in folders ---


def list_domain(data_root: Path, spec: ImageFolderSpec, domain: str, rules: DatasetFile = NO_RULES) -> Listing:
    """Return what is in the folders of the domain, how it is divided, and which images are of one group.

    Left out are known bad files, and what ``rules``, the site's own, exclude. A class without images is legal: its
    folder is empty or missing.
    """
    root = existing_root(data_root, spec, domain)
    base = root / spec.folder
    found: list[Sample] = []
    unused: list[str] = []
    for place in (f"{domain}/{part}".rstrip("/") for part in rules.part_folders):
        if not is_folder(base / place):
            continue  # such as a domain that has no images for tests
        unused += _beside_classes(root, spec, place, rules)
        for label, name in enumerate(spec.classes):
            folder = base / place / name
            if not is_folder(folder):
                continue
            names = image_names(root, folder)
            others = {*names_in(folder)} - {*names}
            if not names and any(other.lower() not in OF_SYSTEMS for other in others):
                suffixes = ", ".join(IMAGE_SUFFIXES)
                raise DataError(f"class folder {folder} holds no usable image; expected files ending in {suffixes}.")
            unused += [f"{place}/{name}/{other}" for other in others]
            found += [Sample(f"{place}/{name}/{file}", label) for file in names]
    found.sort(key=lambda sample: sample.file)
    out = {one for one in found if without_suffix(one.file) in spec.known_bad or rules.excludes(one.file)}
    images = tuple(sample for sample in found if sample not in out)
    skipped = tuple(sample.file for sample in found if sample in out)
    if not images:
        raise DataError(f"no usable image of domain {domain!r} in {base / domain}; expected <class>/<image> there.")
    given, column = _division(images, skipped, spec, domain, root, rules)
    return with_groups(Listing(images, skipped, unused_of(unused, rules), given), rules, column)


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


# --- lists of images ---

Groups = dict[str, str]  # by file


def _division(
    images: Sequence[Sample],
    skipped: Sequence[str],
    spec: ImageFolderSpec,
    domain: str,
    root: Path,
    rules: DatasetFile,
) -> tuple[Given | None, Groups]:
    """Return how ``rules``, else the official lists below the data root, divide a domain; None if nothing does.

    And the groups of the images that a column of the lists names.
    """
    if rules.parts is not None:
        folders = {"train": rules.parts.train, "validation": rules.parts.validation}
        starts = {part: f"{domain}/{folder}/" for part, folder in folders.items() if folder is not None}
        chosen = {part: tuple(one for one in images if one.file.startswith(start)) for part, start in starts.items()}
        return Given("parts", **chosen), {}
    if rules.lists is None:
        lists = _official_lists(root / spec.folder, domain)
        origin, column, known = "kfold", None, _official_lines(images, skipped, spec) if lists else {}
    else:
        # A class may have the name of the domain, so a line may begin with that and not mean the domain.
        by_file: Lines = {sample.file: sample for sample in images} | dict.fromkeys(skipped)
        known = by_file | {file.removeprefix(f"{domain}/"): sample for file, sample in by_file.items()}
        origin, column = "lists", rules.group_column
        lists = {part: root / path for part, path in rules.lists.of(domain).items()}
    groups: Groups = {}
    parts = {part: _read_list(root, path, known, column, groups) for part, path in lists.items()}
    return Given(origin, **parts) if parts else None, groups


Lines = dict[str, Sample | None]  # by their text, those of a list, and the images they mean; None: one is left out


def _read_list(root: Path, path: Path, known: Lines, column: str | None, groups: Groups) -> tuple[Sample, ...]:
    """Return the images that a list names; add what its ``column`` says to the ``groups``."""
    lines, place = read_lines(root, path), 0
    if column is not None:
        head = _cells(lines.pop(0)[1]) if lines else []
        if column not in head[1:]:
            expected = f"the names of columns, {column!r} after that of the images"
            raise DataError(site=f"list {path}", field="line 1", value=head, expected=expected)
        place = head.index(column)
    found: dict[str, Sample] = {}
    for number, line in lines:
        cells = [line] if column is None else _cells(line)
        key = next((one for one in (cells[0], _without_suffixes(cells[0])) if one in known), None)
        sample = None if key is None else known[key]
        problems = {
            "is no image of the domain and its class; expected <class>/<image>": key is None,
            "names an image twice": sample is not None and sample.file in found,
            f"has no {column}": place and not "".join(cells[place : place + 1]),
        }
        if problem := next((text for text, is_so in problems.items() if is_so), None):
            raise DataError(f"list {path}, line {number}: {shorten(line)} {problem}.")
        if sample is not None:
            found[sample.file] = sample
            groups |= {sample.file: cells[place]} if place else {}
    return tuple(found.values())


def _cells(line: str) -> list[str]:
    return [cell.strip() for cell in next(csv.reader([line]))]


def _without_suffixes(line: str) -> str:
    file, *label = line.rsplit(maxsplit=1)
    return " ".join((without_suffix(file), *label))


def _official_lines(images: Sequence[Sample], skipped: Sequence[str], spec: ImageFolderSpec) -> Lines:
    """Return the lines that official lists may have, such as ``photo/dog/056_0001.jpg 1``, without the suffix."""
    lines: Lines = {f"{without_suffix(sample.file)} {sample.label + 1}": sample for sample in images}
    out = {without_suffix(file) for file in (*spec.known_bad, *skipped)}
    return lines | {
        f"{file} {n}": None for n, name in enumerate(spec.classes, 1) for file in out if f"/{name}/" in file
    }


def _official_lists(folder: Path, domain: str) -> dict[str, Path]:
    for place in (folder / name for name in KFOLD_FOLDERS):
        words = {"train": "train", "validation": "crossval", "test": "test"}
        paths = {part: place / f"{domain}_{word}_kfold.txt" for part, word in words.items()}
        found = {part: path for part, path in paths.items() if is_file(path)}
        if len(found.keys() & {"train", "validation"}) == 1:
            raise DataError(f"folder {place} lacks one of the lists of training and validation images of {domain}.")
        if "train" in found:
            return found
    return {}
