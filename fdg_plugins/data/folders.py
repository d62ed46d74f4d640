# SPDX-License-Identifier: Apache-2.0
"""Image folders below a data root: the expected ones, their listing, and the checks of links and names."""

import os
import re
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple, TypeAlias

from fdg_plugins.data.own_files import NO_RULES, FileRules, leads_outside
from fdg_plugins.data.specs import IMAGE_SUFFIXES, ImageFolderSpec, KnownSpec, Sample, SegmentationSpec
from fdg_plugins.errors import DataError
from fdg_plugins.naming import perhaps
from fdg_plugins.values import counted, visible

FolderSpec: TypeAlias = ImageFolderSpec | SegmentationSpec
"""The data sets whose images are files in folders of their domains."""

LOCK = ".fdg_prepare.lock"
"""The file that a preparation holds locked; it stays in the data set's folder."""

MANIFEST = "fdg_manifest.json"
"""The manifest, which a preparation removes before it writes the first image, and writes last."""

OF_SYSTEMS = frozenset({"thumbs.db", "desktop.ini"})
"""Files that systems leave in folders of images, of which nobody needs to hear."""

# Control characters and line ends, which could forge lines of logs and lists, and bytes that are not UTF-8.
_UNUSABLE = re.compile("[\\x00-\\x1f\\x7f-\\x9f\\u2028\\u2029\\ud800-\\udfff]")
# Suffixes of images that are not read. They tell a folder of images from one of notes.
_OTHER_IMAGES = (
    *(".gif", ".heic", ".heif", ".avif", ".jfif", ".jp2", ".svg", ".tga", ".ppm", ".pgm", ".dcm", ".nii", ".nii.gz"),
    *(".mha", ".mhd", ".nrrd", ".raw", ".dng", ".cr2", ".nef", ".psd", ".npy"),
)


@dataclass
class Unused:
    """What lies among the images of a domain and is not used: paths below the data set's folder.

    ``others``: files with another suffix. ``loose``: images beside the folders of classes. ``folders``: folders with
    images that are not expected there. What the site excludes, and what systems leave, is none of these.
    """

    others: list[str] = field(default_factory=list)
    loose: list[str] = field(default_factory=list)
    folders: list[str] = field(default_factory=list)

    def phrases(self) -> Iterator[str]:
        """Yield a phrase for each kind that there is."""
        for paths, one, what in (
            (self.folders, "folder", "of images where none is expected"),
            (self.others, "file", "with a suffix that is not read"),
            (self.loose, "image", "in no folder of a class"),
        ):
            if paths:
                yield f"{counted(len(paths), one)} {what} (such as {visible(min(paths))})"

    def note(self, base: Path, path: str, entry: os.DirEntry[str], rules: FileRules) -> None:
        """Note an entry at ``path`` below ``base``, the data set's folder, that is not used."""
        if is_folder_entry(entry):
            if not rules.excludes(f"{path}/") and has_images_below(base / path):
                self.folders.append(path)
        elif not rules.excludes(path) and entry.name.lower() not in OF_SYSTEMS:
            (self.loose if is_image_name(entry.name) else self.others).append(path)


def is_unfinished(folder: Path) -> bool:
    """Return whether ``fdg data prepare`` has begun to fill a data set's folder and not ended."""
    return is_file(folder / LOCK) and not is_file(folder / MANIFEST)


def refuse_unfinished(data_root: Path, spec: KnownSpec) -> None:
    """Raise DataError if the preparation of a data set below ``data_root`` has not ended."""
    folder = data_root / spec.folder
    if is_unfinished(folder):
        raise DataError(
            f"folder {folder} of data set {spec.name} is not complete: fdg data prepare is still filling it, was "
            f"interrupted, or did not accept what it found; fdg data prepare {spec.name} resumes it, and --any-counts "
            "accepts what is there.",
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
        inner = next((place for place in sorted(root.glob(f"*/{spec.folder}")) if is_folder(place)), None)
        if all(is_folder(root / domain) for domain in spec.domains):
            hint = f"; {root} holds the domains: call it {spec.folder} and use its parent, or name it with --data"
        elif inner is not None:
            hint = f"; {inner.parent} holds {spec.folder}/: use it instead"
    layout = "/".join(filter(None, ("<data root>", spec.folder, "<domain>", spec.layout)))
    raise DataError(f"{folder} is not a folder; expected the layout {layout}{hint}.", public=public)


class Listed(NamedTuple):
    """The images of a domain and its files that are left out, both sorted by name, and what else lies there."""

    images: tuple[Sample, ...]
    left_out: tuple[str, ...]
    unused: Unused


def list_domain(root: Path, spec: ImageFolderSpec, domain: str, rules: FileRules = NO_RULES) -> Listed:
    """Return what is in the folders of the domain.

    Left out are known bad files, and what ``rules``, the site's own, exclude. A class without images is legal: its
    folder is empty or missing. Raises DataError for a class folder of which nothing is an image, for folders of
    classes that the data set does not have, and if no image is left.
    """
    found: list[Sample] = []
    skipped: list[str] = []
    unused = Unused()
    for place in _class_places(root, spec, domain, rules, unused):
        for label, name in enumerate(spec.classes):
            where = f"class {name!r} of domain {domain!r}"
            for file in _listed(root, root / spec.folder, f"{place}/{name}", where, rules, unused):
                sample = Sample(file, label)
                if sample.stem in spec.known_bad or rules.excludes(file):
                    skipped.append(file)
                else:
                    found.append(sample)
    if not found:
        raise DataError(
            f"folder {root / spec.folder / domain} has no usable image in a folder of a class; expected images in "
            f"folders named {', '.join(spec.classes)}.",
            public=f"domain {domain!r} has no usable image.",
        )
    return Listed(tuple(sorted(found, key=lambda sample: sample.file)), tuple(sorted(skipped)), unused)


def _class_places(root: Path, spec: ImageFolderSpec, domain: str, rules: FileRules, unused: Unused) -> Iterator[str]:
    base = root / spec.folder
    if rules.parts is not None:
        _note_beside(base, domain, _entries(base / domain, f"domain {domain!r}"), rules.part_folders, rules, unused)
    for part in rules.part_folders:
        place = f"{domain}/{part}" if part else domain
        if part and not is_folder(base / place):
            continue  # such as a domain that has no images for tests
        refuse_outside(root, base / place)
        entries = _entries(base / place, f"domain {domain!r}")
        _check_classes(base, place, entries, spec, domain, rules)
        _note_beside(base, place, entries, spec.classes, rules, unused)
        yield place


def _note_beside(
    base: Path,
    place: str,
    entries: Iterable[os.DirEntry[str]],
    known: Collection[str],
    rules: FileRules,
    unused: Unused,
) -> None:
    """Note the images in a folder that holds folders, and the folders whose names are not ``known``."""
    for entry in entries:
        if is_image_name(entry.name) or (is_folder_entry(entry) and entry.name not in known):
            unused.note(base, f"{place}/{entry.name}", entry, rules)


def _listed(root: Path, base: Path, place: str, where: str, rules: FileRules, unused: Unused) -> list[str]:
    """Return the images in the folder of a class, none if it is empty or missing; note what else is there."""
    folder = base / place
    if not is_folder(folder):
        return []
    refuse_outside(root, folder)
    entries = _entries(folder, where)
    names = _checked_images(root, folder, where, entries, IMAGE_SUFFIXES)
    if not names and any(entry.name.lower() not in OF_SYSTEMS for entry in entries):
        suffixes = ", ".join(IMAGE_SUFFIXES)
        raise DataError(
            f"class folder {folder} holds no usable image; expected files ending in {suffixes}.",
            public=f"{where} has no usable image; expected files ending in {suffixes}.",
        )
    for entry in entries:
        if not is_image_name(entry.name):
            unused.note(base, f"{place}/{entry.name}", entry, rules)
    return [f"{place}/{name}" for name in names]


def note_others(
    base: Path, place: str, where: str, suffixes: tuple[str, ...], rules: FileRules, unused: Unused
) -> None:
    """Note what is in the folder ``place`` below the data set's, ``base``, and has none of the ``suffixes``."""
    for entry in _entries(base / place, where):
        if not entry.name.lower().endswith(suffixes):
            unused.note(base, f"{place}/{entry.name}", entry, rules)


def _check_classes(
    base: Path, place: str, entries: Iterable[os.DirEntry[str]], spec: ImageFolderSpec, domain: str, rules: FileRules
) -> None:
    present = {entry.name for entry in entries if is_folder_entry(entry)}
    extra = sorted(name for name in present - {*spec.classes} if not rules.excludes(f"{place}/{name}/"))
    if spec.described:  # folders of notes and the like; a record, in contrast, knows what its data set has
        extra = [name for name in extra if has_image(base / place / name)]
    if extra:
        raise DataError(
            f"folder {base / place} has the unexpected class folder {visible(extra[0])}; expected exactly "
            f"{', '.join(spec.classes)}{perhaps(extra[0], spec.classes)}",
            public=f"domain {domain!r} has {len(extra):,} class folders that data set {spec.name!r} does not have.",
        )


def image_names(root: Path, folder: Path, where: str, suffixes: tuple[str, ...] = IMAGE_SUFFIXES) -> list[str]:
    """Return the names of the files with one of the ``suffixes`` in a folder, in no particular order.

    Hidden files are ignored. Raises DataError for names that are unusable, links that leave the data root, and anything
    that is not a regular file; its public text calls the folder ``where``.
    """
    return _checked_images(root, folder, where, _entries(folder, where), suffixes)


def _checked_images(
    root: Path, folder: Path, where: str, entries: Iterable[os.DirEntry[str]], suffixes: tuple[str, ...]
) -> list[str]:
    entries = [entry for entry in entries if entry.name.lower().endswith(suffixes)]
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
        problem = f"{len(unusable):,} image files whose names are no UTF-8 or hold control characters"
        raise DataError(
            f"folder {folder} has {problem}, such as {visible(unusable[0])}; expected other names.",
            public=f"{where} has {problem}.",
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


def is_image_name(name: str) -> bool:
    """Return whether a file of this name is an image, to be used."""
    return not name.startswith(".") and name.lower().endswith(IMAGE_SUFFIXES)


def has_image(folder: Path) -> bool:
    """Return whether a file named like an image is directly in the folder."""
    try:
        with os.scandir(folder) as entries:
            return any(is_image_name(entry.name) for entry in entries)
    except OSError:
        return False


def has_images_below(folder: Path) -> bool:
    """Return whether a folder, or one in it, holds images, be it of a kind that is not read."""
    known = (*IMAGE_SUFFIXES, *_OTHER_IMAGES)
    for _, folders, files in os.walk(folder):
        folders[:] = [name for name in folders if not name.startswith(".")]
        if any(name.lower().endswith(known) and not name.startswith(".") for name in files):
            return True
    return False


def is_folder(path: Path) -> bool:
    """Return whether the folder exists; a folder that may not be accessed counts as missing."""
    try:
        return path.is_dir()
    except OSError:
        return False


def is_folder_entry(entry: os.DirEntry[str]) -> bool:
    """Return whether the entry is a folder; a link that leads nowhere, or where one may not look, is none."""
    try:
        return entry.is_dir()
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
    if leads_outside(root, path):
        raise DataError(
            f"{path} is a link out of the data root; expected its target below {root}.",
            public="a link leads out of its data root.",
        )
