# SPDX-License-Identifier: Apache-2.0
"""Image folders below a data root: the expected ones, their listing, and the check that no link leaves the root."""

import os
import re
from collections.abc import Iterable
from pathlib import Path
from typing import TypeAlias

from fdg_plugins.data.catalogue import ImageFolderSpec, Sample, SegmentationSpec
from fdg_plugins.errors import DataError
from fdg_plugins.values import visible

FolderSpec: TypeAlias = ImageFolderSpec | SegmentationSpec
"""The data sets whose images are files in folders of their domains."""

IMAGE_SUFFIXES = (".jpg", ".jpeg", ".png")

# Control characters and line ends, which could forge lines of logs and lists, and bytes that are not UTF-8.
_UNUSABLE = re.compile("[\\x00-\\x1f\\x7f-\\x9f\\u2028\\u2029\\ud800-\\udfff]")


def existing_root(data_root: Path, spec: FolderSpec, domain: str) -> Path:
    """Return the resolved data root; raise DataError unless it and the data set's folder exist."""
    root = data_root.resolve() if is_folder(data_root) else data_root
    places = (
        ("data root", root, "its data root is not a folder."),
        (f"folder of data set {spec.name}", root / spec.folder, f"data set {spec.name!r} is not in its data root."),
    )
    for what, folder, public in places:
        _check_folder(root, folder, what, spec, domain, public)
    return root


def existing_folders(data_root: Path, spec: FolderSpec, domain: str) -> Path:
    """Return the resolved data root; raise DataError unless the folders down to the domain's exist."""
    root = existing_root(data_root, spec, domain)
    check_domain_folder(root, spec, domain)
    return root


def check_domain_folder(root: Path, spec: FolderSpec, domain: str) -> None:
    """Raise DataError unless the domain's folder exists below the resolved data root."""
    public = f"domain {domain!r} of data set {spec.name!r} is not in its data root."
    _check_folder(root, root / spec.folder / domain, f"folder of domain {domain}", spec, domain, public)


def _check_folder(root: Path, folder: Path, what: str, spec: FolderSpec, domain: str, public: str) -> None:
    if not is_folder(folder):
        layout = f"<data root>/{spec.folder}/{domain}/{spec.layout}"
        raise DataError(f"{what} {folder} is not a folder; expected the layout {layout}.", public=public)
    refuse_outside(root, folder)


def list_domain(root: Path, spec: ImageFolderSpec, domain: str) -> tuple[tuple[Sample, ...], tuple[str, ...]]:
    """Return the images of the domain, and its known bad files, both sorted by name."""
    folder = root / spec.folder / domain
    _check_classes(root, folder, spec, domain)
    found: list[Sample] = []
    skipped: list[str] = []
    for label, name in enumerate(spec.classes):
        files = image_names(root, folder / name, f"class {name!r} of domain {domain!r}")
        listed = [Sample(f"{domain}/{name}/{file}", label) for file in files]
        kept = [sample for sample in listed if sample.stem not in spec.known_bad]
        if not kept:
            suffixes = ", ".join(IMAGE_SUFFIXES)
            raise DataError(
                f"class folder {folder / name} holds no usable image; expected files ending in {suffixes}.",
                public=f"class {name!r} of domain {domain!r} has no usable image; expected files ending in {suffixes}.",
            )
        found += kept
        skipped += [sample.file for sample in listed if sample.stem in spec.known_bad]
    return tuple(sorted(found, key=lambda sample: sample.file)), tuple(sorted(skipped))


def _check_classes(root: Path, folder: Path, spec: ImageFolderSpec, domain: str) -> None:
    """Reject a domain whose class folders are not exactly those of the data set."""
    present = {entry.name for entry in _entries(folder, f"domain {domain!r}") if entry.is_dir()}
    expected = f"expected exactly {', '.join(spec.classes)}"
    if missing := sorted(set(spec.classes) - present):
        raise DataError(
            f"folder {folder} lacks the class folder {missing[0]}; {expected}.",
            public=f"domain {domain!r} lacks the class folder {missing[0]!r}; {expected}.",
        )
    if extra := sorted(present - set(spec.classes)):
        raise DataError(
            f"folder {folder} has the unexpected class folder {visible(extra[0])}; {expected}.",
            public=f"domain {domain!r} has {len(extra):,} class folders that data set {spec.name!r} does not have.",
        )
    for name in spec.classes:
        refuse_outside(root, folder / name)


def image_names(root: Path, folder: Path, where: str, suffixes: tuple[str, ...] = IMAGE_SUFFIXES) -> list[str]:
    """Return the names of the files with one of the ``suffixes`` in a folder, in no particular order.

    Hidden files are ignored. Raises DataError for names that are unusable, links that leave the data root, and anything
    that is not a regular file; its public text calls the folder ``where``.
    """
    entries = [entry for entry in _entries(folder, where) if entry.name.lower().endswith(suffixes)]
    check_names(folder, where, (entry.name for entry in entries))
    for entry in entries:
        if entry.is_symlink():
            refuse_outside(root, Path(entry.path))
        if not is_file(Path(entry.path)):
            raise DataError(
                f"{entry.path} is not a regular file; expected an image.",
                public=f"{where} has something named like an image that is not a regular file.",
            )
    return [entry.name for entry in entries]


def check_names(folder: Path, where: str, names: Iterable[str]) -> None:
    """Raise DataError for names of files that are not UTF-8 or have control characters."""
    if unusable := sorted(name for name in names if _UNUSABLE.search(name)):
        raise DataError(
            f"folder {folder} has {len(unusable):,} image files, such as {visible(unusable[0])}, whose names are no "
            "UTF-8 or hold control characters; expected other names.",
            public=f"{where} has {len(unusable):,} image files whose names are no UTF-8 or hold control characters.",
        )


def _entries(folder: Path, where: str) -> list[os.DirEntry[str]]:
    """Return the entries of a folder except hidden files and folders."""
    try:
        with os.scandir(folder) as entries:
            return [entry for entry in entries if not entry.name.startswith(".")]
    except OSError as error:
        raise DataError(
            f"folder {folder} cannot be listed: {error.strerror}.", public=f"{where} cannot be listed."
        ) from error


def is_folder(path: Path) -> bool:
    """Return whether the folder exists; a folder that may not be accessed counts as missing."""
    try:
        return path.is_dir()
    except OSError:
        return False


def is_file(path: Path) -> bool:
    """Return whether the regular file exists; a file that may not be accessed counts as missing."""
    try:
        return path.is_file()
    except OSError:
        return False


def refuse_outside(root: Path, path: Path) -> None:
    """Raise DataError for a path that, after resolving links, leaves the data root or forms a cycle."""
    try:
        inside = path.resolve().is_relative_to(root)
    except (OSError, RuntimeError):  # a cycle
        inside = False
    if not inside:
        raise DataError(
            f"{path} is a link out of the data root; expected its target below {root}.",
            public="a link leads out of its data root.",
        )
