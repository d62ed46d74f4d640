# SPDX-License-Identifier: Apache-2.0
"""Image folders below a data root: which are expected, what they list, and that no link leaves the root."""

import os
from collections.abc import Iterator
from pathlib import Path

from fdg_plugins.data.catalogue import ImageFolderSpec, Sample
from fdg_plugins.errors import DataError

IMAGE_SUFFIXES = (".jpg", ".jpeg", ".png")


def existing_folders(data_root: Path, spec: ImageFolderSpec, domain: str) -> Path:
    """Return the resolved data root after checking that the folders down to the domain's are there."""
    root = data_root.resolve()
    layout = f"<data root>/{spec.folder}/{domain}/<class>/*.jpg"
    for what, folder in (
        ("data root", root),
        (f"folder of data set {spec.name}", root / spec.folder),
        (f"folder of domain {domain}", root / spec.folder / domain),
    ):
        if not folder.is_dir():
            raise DataError(f"{what} {folder} is not a folder; expected the layout {layout}.")
        refuse_outside(root, folder)
    return root


def list_domain(root: Path, spec: ImageFolderSpec, domain: str) -> tuple[tuple[Sample, ...], tuple[str, ...]]:
    """Return the images of the domain and the known bad files among them, both sorted by name."""
    folder = root / spec.folder / domain
    _check_classes(root, folder, spec)
    found: list[Sample] = []
    skipped: list[str] = []
    for label, name in enumerate(spec.classes):
        listed = [Sample(f"{domain}/{name}/{file}", label) for file in _image_names(root, folder / name)]
        kept = [sample for sample in listed if sample.stem not in spec.known_bad]
        if not kept:
            suffixes = ", ".join(IMAGE_SUFFIXES)
            raise DataError(f"class folder {folder / name} holds no usable image; expected files ending in {suffixes}.")
        found += kept
        skipped += [sample.file for sample in listed if sample.stem in spec.known_bad]
    return tuple(sorted(found, key=lambda sample: sample.file)), tuple(sorted(skipped))


def _check_classes(root: Path, folder: Path, spec: ImageFolderSpec) -> None:
    """Refuse a domain whose class folders are not exactly those of the data set."""
    present = {entry.name for entry in _entries(folder) if entry.is_dir()}
    expected = f"expected exactly {', '.join(spec.classes)}"
    if missing := sorted(set(spec.classes) - present):
        raise DataError(f"folder {folder} lacks the class folder {missing[0]}; {expected}.")
    if extra := sorted(present - set(spec.classes)):
        raise DataError(f"folder {folder} has the unexpected class folder {extra[0]}; {expected}.")
    for name in spec.classes:
        refuse_outside(root, folder / name)


def _image_names(root: Path, folder: Path) -> Iterator[str]:
    """Yield the names of the image files in a class folder, in no particular order."""
    for entry in _entries(folder):
        if not entry.name.lower().endswith(IMAGE_SUFFIXES):
            continue
        if entry.is_symlink():
            refuse_outside(root, Path(entry.path))
        if not entry.is_file():
            raise DataError(f"{entry.path} is not a regular file; expected an image.")
        yield entry.name


def _entries(folder: Path) -> list[os.DirEntry[str]]:
    """Return what a folder holds, except hidden files and folders."""
    try:
        with os.scandir(folder) as entries:
            return [entry for entry in entries if not entry.name.startswith(".")]
    except OSError as error:
        raise DataError(f"folder {folder} cannot be listed: {error.strerror}.") from error


def refuse_outside(root: Path, path: Path) -> None:
    """Refuse a path that, followed through links, leaves the data root."""
    if not path.resolve().is_relative_to(root):
        raise DataError(f"{path} is a link out of the data root; expected its target below {root}.")
