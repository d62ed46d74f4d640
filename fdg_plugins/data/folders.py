# SPDX-License-Identifier: Apache-2.0
"""Image folders below a data root: the expected ones, their listing, and the check that no link leaves the root."""

import os
import re
from collections.abc import Collection, Iterable, Iterator
from pathlib import Path
from typing import NamedTuple, TypeAlias

from fdg_plugins.data.links import leads_outside
from fdg_plugins.data.own_files import NO_RULES, FileRules
from fdg_plugins.data.specs import IMAGE_SUFFIXES, ImageFolderSpec, Sample, SegmentationSpec
from fdg_plugins.data.unused import OF_SYSTEMS, Unused, has_images_below, is_image_name
from fdg_plugins.errors import DataError
from fdg_plugins.naming import nearest
from fdg_plugins.values import visible

FolderSpec: TypeAlias = ImageFolderSpec | SegmentationSpec
"""The data sets whose images are files in folders of their domains."""

# Control characters and line ends, which could forge lines of logs and lists, and bytes that are not UTF-8.
_UNUSABLE = re.compile("[\\x00-\\x1f\\x7f-\\x9f\\u2028\\u2029\\ud800-\\udfff]")


def resolved(data_root: Path) -> Path:
    """Return a data root after resolving links; one that is no folder as it is named, for the message that says so."""
    return data_root.resolve() if is_folder(data_root) else data_root


def existing_root(data_root: Path, spec: FolderSpec, domain: str) -> Path:
    """Return the resolved data root; raise DataError unless it and the data set's folder exist."""
    root = resolved(data_root)
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
        layout = "/".join(filter(None, ("<data root>", spec.folder, domain, spec.layout)))
        hint = _root_hint(root, spec)
        raise DataError(f"{what} {folder} is not a folder; expected the layout {layout}{hint}.", public=public)
    refuse_outside(root, folder)


def _root_hint(root: Path, spec: FolderSpec) -> str:
    """Return where the data set seems to be, if the data root is one level too deep or too high; else nothing."""
    if not spec.folder or not is_folder(root) or is_folder(root / spec.folder):
        return ""
    if all(is_folder(root / domain) for domain in spec.domains):
        if root.name == spec.folder:
            return f"; {root} is the data set's own folder: use its parent, {root.parent}"
        return f"; {root} holds the domains: call it {spec.folder} and use its parent, or name it with --data"
    inner = next((place for place in sorted(root.glob(f"*/{spec.folder}")) if is_folder(place)), None)
    return "" if inner is None else f"; {inner.parent} holds {spec.folder}/: use it instead"


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
            files = _listed(root, root / spec.folder, f"{place}/{name}", where, rules, unused)
            listed = [Sample(file, label) for file in files]
            kept = [sample for sample in listed if not _is_left_out(sample, spec, rules)]
            found += kept
            skipped += sorted({sample.file for sample in listed} - {sample.file for sample in kept})
    if not found:
        raise DataError(
            f"folder {root / spec.folder / domain} has no usable image in a folder of a class; expected images in "
            f"folders named {', '.join(spec.classes)}.",
            public=f"domain {domain!r} has no usable image.",
        )
    return Listed(tuple(sorted(found, key=lambda sample: sample.file)), tuple(sorted(skipped)), unused)


def _class_places(root: Path, spec: ImageFolderSpec, domain: str, rules: FileRules, unused: Unused) -> Iterator[str]:
    """Yield the folders that hold folders of classes, below the data set's folder: the domain's, or its parts'."""
    if rules.parts is not None:
        entries = _entries(root / spec.folder / domain, f"domain {domain!r}")
        _note_beside(root / spec.folder, domain, entries, rules.part_folders, rules, unused)
    for part in rules.part_folders:
        place = f"{domain}/{part}" if part else domain
        if part and not is_folder(root / spec.folder / place):
            continue  # such as a domain that has no images for tests
        refuse_outside(root, root / spec.folder / place)
        entries = _entries(root / spec.folder / place, f"domain {domain!r}")
        _check_classes(root, place, entries, spec, domain, rules)
        _note_beside(root / spec.folder, place, entries, spec.classes, rules, unused)
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
        path = f"{place}/{entry.name}"
        if is_folder_entry(entry):
            if not rules.excludes(f"{path}/") and entry.name not in known and has_images_below(base / path):
                unused.folders.append(path)
        elif is_image_name(entry.name) and not rules.excludes(path):
            unused.loose.append(path)


def _is_left_out(sample: Sample, spec: ImageFolderSpec, rules: FileRules) -> bool:
    return sample.stem in spec.known_bad or rules.excludes(sample.file)


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
            _note_inside(base, f"{place}/{entry.name}", entry, rules, unused)
    return [f"{place}/{name}" for name in names]


def note_others(
    base: Path, place: str, where: str, suffixes: tuple[str, ...], rules: FileRules, unused: Unused
) -> None:
    """Note what is in the folder ``place`` below the data set's, ``base``, and has none of the ``suffixes``."""
    for entry in _entries(base / place, where):
        if not entry.name.lower().endswith(suffixes):
            _note_inside(base, f"{place}/{entry.name}", entry, rules, unused)


def _note_inside(base: Path, path: str, entry: os.DirEntry[str], rules: FileRules, unused: Unused) -> None:
    """Note a folder with images, or a file that is not an image, in the folder of a class."""
    is_inner = is_folder_entry(entry)
    if rules.excludes(f"{path}/" if is_inner else path):
        return
    if not is_inner and entry.name.lower() not in OF_SYSTEMS:
        unused.others.append(path)
    elif is_inner and has_images_below(base / path):
        unused.nested.append(path)


def _check_classes(
    root: Path, place: str, entries: Iterable[os.DirEntry[str]], spec: ImageFolderSpec, domain: str, rules: FileRules
) -> None:
    """Reject a domain with folders of classes that the data set does not have."""
    folder = root / spec.folder / place
    present = [entry.name for entry in entries if is_folder_entry(entry)]
    extra = sorted(name for name in {*present} - {*spec.classes} if not rules.excludes(f"{place}/{name}/"))
    if spec.described:  # folders of notes and the like; a record, in contrast, knows what its data set has
        extra = [name for name in extra if has_image(folder / name)]
    if extra:
        near = nearest(extra[0], spec.classes)
        hint = f" (did you mean {near}?)" if near else ""
        raise DataError(
            f"folder {folder} has the unexpected class folder {visible(extra[0])}{hint}; expected exactly "
            f"{', '.join(spec.classes)}.",
            public=f"domain {domain!r} has {len(extra):,} class folders that data set {spec.name!r} does not have.",
        )


def has_image(folder: Path) -> bool:
    """Return whether a file named like an image is directly in the folder."""
    try:
        with os.scandir(folder) as entries:
            return any(is_image_name(entry.name) for entry in entries)
    except OSError:
        return False


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
