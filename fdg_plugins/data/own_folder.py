# SPDX-License-Identifier: Apache-2.0
"""A folder of a user's own images as a data set: domains and classes are the names of its folders.

Only names are read, no image. A ``dataset.toml`` in the folder, or beside it, says what the names do not.
"""

import os
import unicodedata
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fdg_plugins.data.catalogue import DATASETS
from fdg_plugins.data.folders import has_image, has_images_below, is_folder, is_folder_entry
from fdg_plugins.data.own_files import DATASET_FILE, NO_RULES, DatasetFile, FileRules, read_dataset_file
from fdg_plugins.data.pairs import PARTS as PAIR_FOLDERS
from fdg_plugins.errors import DataError, SettingsError
from fdg_plugins.plugins.own_dataset import OwnDataset, is_folder_name, plain_name, read_own_dataset, shorten_names
from fdg_plugins.storage import own_path
from fdg_plugins.values import shorten, visible

FEWEST_DOMAINS = 3  # two sources, below which there is nothing to combine, and the held-out one
LAYOUT = "<domain>/<class>/<image>"
_DESCRIBED = ("domains", "classes", "mask_values", "channels", "dims", "preset")


@dataclass(frozen=True)
class OwnData:
    """A data set of a user's own on this machine.

    ``dataset``: the description, which runs share. ``root``: the folder that holds the domains, to be the data root.
    ``file``: the ``dataset.toml`` that was read, None if there is none. ``absent``: the classes without a folder of
    images, by domain, where there are any; legal, as the other sites have them. ``ignored``: folders of images, below
    the root, that are neither a domain nor a class, as they hold no image where one is expected.
    """

    dataset: OwnDataset
    root: Path
    file: Path | None = None
    absent: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    ignored: tuple[str, ...] = ()

    @property
    def file_is_found(self) -> bool:
        """Whether sites with this data root find the file, or there is none."""
        return self.file is None or self.file == self.root / DATASET_FILE

    @property
    def rules(self) -> FileRules:
        """What the file says about the images."""
        return NO_RULES if self.file is None else read_dataset_file(self.file).rules


def own_data(place: str | Path, folder: str | Path | None = None) -> OwnData:
    """Return the data set in a folder ``<domain>/<class>/<image>``, or the one that a ``dataset.toml`` describes.

    Domains and classes are the folders with images, sorted by name, unless the file names them. ``folder`` holds the
    domains; by default the one that the file names, or the file's own. Raises DataError for a
    folder without such images and for an unusable file; SettingsError for fewer than two classes.
    """
    path = own_path(place)
    if path.suffix != ".toml":
        if not is_folder(path):
            raise DataError(f"{path} is not a folder; expected one that holds {LAYOUT}, or a file {DATASET_FILE}.")
        file = path / DATASET_FILE
        if not file.is_file():
            return _described(path, DatasetFile(), None)
        content, root = read_dataset_file(file), path
    else:
        file, content = path, read_dataset_file(path)
        root = path.parent
    images = own_path(folder) if folder is not None else root / (content.folder or "")
    if not is_folder(images):
        raise DataError(f"the images that {file} describes are expected in {images}, which is not a folder.")
    return _described(images, content, file.resolve())


def _described(folder: Path, content: DatasetFile, file: Path | None) -> OwnData:
    root = folder.resolve()
    rules = content.rules
    _check_parts(root, content, rules)
    found = _found_pairs(root, content) if content.task == "segmentation" else _found_classes(root, content, rules)
    domains, classes = tuple(found), tuple(sorted({name for names in found.values() for name in names}))
    given = {name: getattr(content, name) for name in _DESCRIBED if getattr(content, name) is not None}
    values: dict[str, Any] = {"domains": domains, "classes": classes, **given, "task": content.task}
    _check_found(root, values, content)
    plain = plain_name(root.name)
    name = content.name or (f"own_{plain}" if plain in DATASETS.names() else plain)
    values |= {"name": name, "title": content.title or visible(root.name)}
    dataset = read_own_dataset(values, f"folder {root}" if file is None else str(file))
    absent = {domain: tuple(name for name in dataset.classes if name not in found[domain]) for domain in found}
    ignored = () if content.task == "segmentation" else tuple(_ignored(root, found, content, rules))
    return OwnData(dataset, root, file, {domain: names for domain, names in absent.items() if names}, ignored)


def _check_parts(root: Path, content: DatasetFile, rules: FileRules) -> None:
    """Raise DataError for a part whose folder no domain has; one domain alone may lack some, as the held-out one."""
    places = [name for name in content.domains or folder_names(root) if not rules.excludes(f"{name}/")]
    present = [root / name for name in places if is_folder(root / name)]
    for part in () if rules.parts is None or len(present) < 2 else rules.parts.folders:
        if not any(is_folder(domain / part) for domain in present):
            inner = shorten_names(folder_names(present[0])) or "no folder"
            raise DataError(
                f"the [parts] in the {DATASET_FILE} of {root} name {part!r}, a folder that no domain has; expected the "
                f"name of one in each domain: {present[0].name}/ holds {inner}."
            )


def folder_names(folder: Path) -> list[str]:
    """Return the visible folders in a folder, sorted; none if it cannot be listed.

    Raises DataError for a name that cannot be that of a domain or class, as no run would say that it was left out.
    """
    try:
        with os.scandir(folder) as entries:
            names = sorted(entry.name for entry in entries if not entry.name.startswith(".") and is_folder_entry(entry))
    except OSError:
        return []
    if odd := [name for name in names if not is_folder_name(name)]:
        raise DataError(
            f"folder {folder} has the folder {shorten(odd[0])}, whose name cannot be used: expected no space at either "
            "end, no control or invisible character, no backslash, and at most 200 characters."
        )
    return names


def _found_classes(root: Path, content: DatasetFile, rules: FileRules) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for domain in content.domains or folder_names(root):
        if rules.excludes(f"{domain}/"):
            continue
        places = [f"{domain}/{part}".strip("/") for part in rules.part_folders]
        names = {
            name
            for place in places
            for name in folder_names(root / place)
            if not rules.excludes(f"{place}/{name}/") and has_image(root / place / name)
        }
        if names:
            found[domain] = sorted(names)
    return found


def _ignored(root: Path, found: Mapping[str, Collection[str]], content: DatasetFile, rules: FileRules) -> Iterator[str]:
    """Yield the folders of images that are not used as a whole, unless the file says which are to be used."""
    places = [] if content.domains else [*{*folder_names(root)} - found.keys()]
    if content.classes is None:
        used = {name for names in found.values() for name in names}
        for place in (f"{domain}/{part}".strip("/") for domain in found for part in rules.part_folders):
            places += [f"{place}/{name}" for name in {*folder_names(root / place)} - used]
    yield from sorted(place for place in places if not rules.excludes(f"{place}/") and has_images_below(root / place))


def _found_pairs(root: Path, content: DatasetFile) -> dict[str, tuple[str, ...]]:
    """Return the domains that have images with masks; their classes cannot be known from names."""
    if content.classes is None:
        raise SettingsError(f"the {DATASET_FILE} of {root} names no classes, which the task segmentation needs.")
    return {
        name: content.classes
        for name in content.domains or folder_names(root)
        if all(is_folder(root / name / part) for part in PAIR_FOLDERS) or (root / name / "dataset.json").is_file()
    }


def _check_found(root: Path, values: dict[str, Any], content: DatasetFile) -> None:
    """Raise an error for too few domains or classes, and for classes that are one under two spellings."""
    domains, classes = values["domains"], values["classes"]
    if len(domains) < FEWEST_DOMAINS or len(classes) < 2:
        raise DataError(
            f"folder {root} holds {len(domains)} domains ({shorten_names(domains)}) with {len(classes)} classes "
            f"({shorten_names(classes)}), expected {LAYOUT} with at least {FEWEST_DOMAINS} domains and 2 classes; "
            f"the folders in it: {shorten_names(folder_names(root)) or 'none'}. Use the folder above or below if the "
            f"domains are there, and [parts] in {DATASET_FILE} if train/ and val/ divide them."
        )
    if content.task == "classification" and set(classes) == set(PAIR_FOLDERS):
        raise DataError(
            f'folder {root} holds images and masks, expected a {DATASET_FILE} with task = "segmentation" and classes.'
        )
    by_name: dict[str, str] = {}
    for name in classes if content.classes is None else ():
        # macOS and many archives decompose accents, other systems do not, and both look the same on a screen.
        alike = unicodedata.normalize("NFC", unicodedata.normalize("NFC", name).casefold())
        if (other := by_name.setdefault(alike, name)) != name:
            raise DataError(
                f"folder {root} holds the classes {other!r} and {name!r} ({other!a}, {name!a}), which differ only in "
                f"case or in how accents are encoded; rename one of them, or name all classes in {DATASET_FILE}."
            )
