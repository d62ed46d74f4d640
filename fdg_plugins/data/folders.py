# SPDX-License-Identifier: Apache-2.0
"""Image folders below a data root: the expected ones, their listing, and the checks of links and names."""

import os
import re
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple, TypeAlias

from fdg_plugins.data.own_files import NO_RULES, FileRules, leads_outside
from fdg_plugins.data.specs import IMAGE_SUFFIXES, ImageFolderSpec, KnownSpec, Sample, SegmentationSpec
from fdg_plugins.errors import DataError, visible

FolderSpec: TypeAlias = ImageFolderSpec | SegmentationSpec
"""The data sets whose images are files in folders of their domains."""

LOCK = ".fdg_prepare.lock"
"""The file that a preparation makes first; it stays in the data set's folder."""

MANIFEST = "fdg_manifest.json"
"""The manifest, which a preparation removes before it writes the first image, and writes last."""

OF_SYSTEMS = frozenset({"thumbs.db", "desktop.ini"})
"""Files that systems leave in folders of images, of which nobody needs to hear."""

is_folder = os.path.isdir
is_file = os.path.isfile

# Control characters and line ends, which could forge lines of logs and lists, and bytes that are not UTF-8.
_UNUSABLE = re.compile("[\\x00-\\x1f\\x7f-\\x9f\\u2028\\u2029\\ud800-\\udfff]")


def is_unfinished(folder: Path) -> bool:
    """Return whether ``fdg data prepare`` has begun to fill a data set's folder and not ended."""
    return is_file(folder / LOCK) and not is_file(folder / MANIFEST)


def refuse_unfinished(data_root: Path, spec: KnownSpec) -> None:
    """Raise DataError if the preparation of a data set below ``data_root`` has not ended."""
    if is_unfinished(data_root / spec.folder):
        raise DataError(
            f"folder {data_root / spec.folder} is not complete: fdg data prepare {spec.name} has not ended; call it "
            "again, with --any-counts to accept what is there.",
            public=f"its preparation of data set {spec.name} has not ended.",
        )


def resolved(data_root: Path) -> Path:
    """Return a data root after resolving links; one that is no folder as it is named, for the message that says so."""
    return data_root.resolve() if is_folder(data_root) else data_root


def existing_root(data_root: Path, spec: FolderSpec) -> Path:
    """Return the resolved data root; raise DataError unless it and the data set's folder exist."""
    root = resolved(data_root)
    _check_folder(root, root, spec, "its data root is not a folder.")
    _check_folder(root, root / spec.folder, spec, f"data set {spec.name!r} is not in its data root.")
    return root


def existing_folders(data_root: Path, spec: FolderSpec, domain: str) -> Path:
    """Return the resolved data root; raise DataError unless the folders down to the domain's exist."""
    root = existing_root(data_root, spec)
    public = f"domain {domain!r} of data set {spec.name!r} is not in its data root."
    _check_folder(root, root / spec.folder / domain, spec, public)
    return root


def _check_folder(root: Path, folder: Path, spec: FolderSpec, public: str) -> None:
    if is_folder(folder):
        refuse_outside(root, folder)
        return
    hint = ""
    if spec.folder and is_folder(root) and not is_folder(root / spec.folder):
        if all(is_folder(root / domain) for domain in spec.domains):
            hint = f"; {root} holds the domains: call it {spec.folder} and use its parent, or name it with --dataset"
        elif inner := [place.parent for place in sorted(root.glob(f"*/{spec.folder}")) if is_folder(place)]:
            hint = f"; {inner[0]} holds {spec.folder}/: use it instead"
    layout = "/".join(filter(None, ("<data root>", spec.folder, "<domain>", spec.layout)))
    raise DataError(f"{folder} is not a folder; expected the layout {layout}{hint}.", public=public)


class Listed(NamedTuple):
    """The images of a domain and its files that are left out, both sorted by name; in words, what else lies there."""

    images: tuple[Sample, ...]
    left_out: tuple[str, ...]
    unused: tuple[str, ...]


def list_domain(root: Path, spec: ImageFolderSpec, domain: str, rules: FileRules = NO_RULES) -> Listed:
    """Return what is in the folders of the domain.

    Left out are known bad files, and what ``rules``, the site's own, exclude. A class without images is legal: its
    folder is empty or missing. Raises DataError for a class folder of which nothing is an image, for folders of
    classes that the data set does not have, and if no image is left.
    """
    base = root / spec.folder
    found: list[Sample] = []
    skipped: list[str] = []
    others: list[str] = []
    for place in (f"{domain}/{part}".rstrip("/") for part in rules.part_folders):
        if place != domain and not is_folder(base / place):
            continue  # such as a domain that has no images for tests
        others += _beside_classes(root, spec, domain, place, rules)
        for label, name in enumerate(spec.classes):
            names, beside = _images_of_class(root, base / place / name)
            others += [f"{place}/{name}/{file}" for file in beside]
            for sample in (Sample(f"{place}/{name}/{file}", label) for file in names):
                if sample.stem in spec.known_bad or rules.excludes(sample.file):
                    skipped.append(sample.file)
                else:
                    found.append(sample)
    if not found:
        raise DataError(f"no usable image of domain {domain!r} in {base / domain}; expected <class>/<image> there.")
    images = tuple(sorted(found, key=lambda sample: sample.file))
    return Listed(images, tuple(sorted(skipped)), unused_of(others, rules))


def _beside_classes(root: Path, spec: ImageFolderSpec, domain: str, place: str, rules: FileRules) -> list[str]:
    """Return the images beside the folders of the classes; raise DataError for classes that are not of the data set."""
    folder = root / spec.folder / place
    refuse_outside(root, folder)
    names = names_in(folder)
    odd = sorted(
        name
        for name in set(names) - {*spec.classes}
        if is_folder(folder / name)
        and not rules.excludes(f"{place}/{name}/")
        # A record knows what its data set has; beside a user's own classes are folders of notes and the like.
        and (not spec.described or has_image(folder / name))
    )
    if odd:
        raise DataError(
            f"folder {folder} has the unexpected class folder {visible(odd[0])}; expected exactly "
            f"{', '.join(spec.classes)}.",
            public=f"domain {domain!r} has {len(odd):,} class folders that data set {spec.name!r} does not have.",
        )
    return [f"{place}/{name}" for name in names if is_image_name(name)]


def _images_of_class(root: Path, folder: Path) -> tuple[list[str], list[str]]:
    """Return the images in the folder of a class, none if it is empty or missing, and what else is there."""
    if not is_folder(folder):
        return [], []
    names = image_names(root, folder)
    others = [name for name in names_in(folder) if not is_image_name(name)]
    if not names and any(name.lower() not in OF_SYSTEMS for name in others):
        suffixes = ", ".join(IMAGE_SUFFIXES)
        raise DataError(f"class folder {folder} holds no usable image; expected files ending in {suffixes}.")
    return names, others


def unused_of(paths: Iterable[str], rules: FileRules) -> tuple[str, ...]:
    """Return a phrase about files and folders that are not used, none if there are none but excluded ones."""
    left = [
        path
        for path in paths
        if not rules.excludes(path) and not rules.excludes(f"{path}/") and path.split("/")[-1].lower() not in OF_SYSTEMS
    ]
    return (f"{len(left):,} files or folders (such as {visible(min(left))})",) if left else ()


def image_names(root: Path, folder: Path, suffixes: tuple[str, ...] = IMAGE_SUFFIXES) -> list[str]:
    """Return the names of the files with one of the ``suffixes`` in a folder, in no particular order.

    Hidden files are ignored. Raises DataError for names that are unusable, links that leave the data root, and anything
    that is not a regular file.
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


def names_in(folder: Path) -> list[str]:
    """Return the names of what is in a folder, except what is hidden; raise DataError if it cannot be listed."""
    try:
        with os.scandir(folder) as entries:
            return [entry.name for entry in entries if not entry.name.startswith(".")]
    except OSError as error:
        raise DataError(f"folder {folder} cannot be listed: {error.strerror}.") from error


def is_image_name(name: str) -> bool:
    """Return whether a file of this name is an image, to be used."""
    return not name.startswith(".") and name.lower().endswith(IMAGE_SUFFIXES)


def has_image(folder: Path) -> bool:
    """Return whether a file named like an image is directly in the folder."""
    return is_folder(folder) and any(map(is_image_name, names_in(folder)))


def refuse_outside(root: Path, path: Path) -> None:
    """Raise DataError for a path that, after resolving links, leaves the data root or forms a cycle."""
    if leads_outside(root, path):
        raise DataError(
            f"{path} is a link out of the data root; expected its target below {root}.",
            public="a link leads out of its data root.",
        )
