# SPDX-License-Identifier: Apache-2.0
"""A folder of a user's own images as a data set: domains and classes are the names of its folders.

Only names are read, no image. A ``dataset.toml`` in the folder, or beside it, says what the names do not.
"""

import os
import unicodedata
from collections.abc import Collection, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fdg_plugins.data.catalogue import DATASETS
from fdg_plugins.data.folders import has_image, is_folder, is_folder_entry
from fdg_plugins.data.own_files import DATASET_FILE, NO_RULES, DatasetFile, FileRules, read_dataset_file, rules_in
from fdg_plugins.data.pairs import PARTS as PAIR_FOLDERS
from fdg_plugins.data.unused import has_images_below
from fdg_plugins.errors import DataError, SettingsError
from fdg_plugins.plugins.own_dataset import OwnDataset, is_folder_name, plain_name, read_own_dataset, shorten_names
from fdg_plugins.storage import own_path
from fdg_plugins.values import shorten, visible

FEWEST_DOMAINS = 3  # two sources, below which there is nothing to combine, and the held-out one
LAYOUT = "<domain>/<class>/<image>"
_USUAL_PARTS = {"train", "training", "val", "valid", "validation", "test", "testing", "crossval"}
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
        return NO_RULES if self.file is None else rules_in(read_dataset_file(self.file))


def own_data(place: str | Path, folder: str | Path | None = None) -> OwnData:
    """Return the data set in a folder ``<domain>/<class>/<image>``, or the one that a ``dataset.toml`` describes.

    Domains and classes are the folders with images, sorted by name, unless the file names them. ``folder`` holds the
    domains; by default the one that the file names, or the file's own. Raises DataError for a
    folder without such images, with a hint where they seem to be, and for an unusable file; SettingsError for fewer
    than two classes.
    """
    path = own_path(place)
    if path.suffix == ".toml":
        return _described_by(path, path.parent, folder)
    if not is_folder(path):
        raise DataError(f"{path} is not a folder; expected one that holds {LAYOUT}, or a file {DATASET_FILE}.")
    file = path / DATASET_FILE
    return _described_by(file, path, None) if file.is_file() else _described(path, DatasetFile(), None)


def _described_by(file: Path, beside: Path, given: str | Path | None) -> OwnData:
    """Return the data set that ``file`` describes; its ``folder`` is relative to it, by default where it is."""
    content = read_dataset_file(file)
    folder = own_path(given) if given is not None else beside / (content.folder or "")
    if not is_folder(folder):
        raise DataError(f"the images that {file} describes are expected in {folder}, which is not a folder.")
    return _described(folder, content, file.resolve())


def _described(folder: Path, content: DatasetFile, file: Path | None) -> OwnData:
    root = folder.resolve()
    _check_parts(root, content)
    found = _found_pairs(root, content) if content.task == "segmentation" else _found_classes(root, content)
    domains, classes = tuple(found), tuple(sorted({name for names in found.values() for name in names}))
    given = {name: getattr(content, name) for name in _DESCRIBED if getattr(content, name) is not None}
    values: dict[str, Any] = {"domains": domains, "classes": classes, **given, "task": content.task}
    _check_found(root, values, content)
    name, title = content.name or _free_name(root.name), content.title or visible(root.name)
    dataset = read_own_dataset(
        {"name": name, "title": title, **values}, f"folder {root}" if file is None else str(file)
    )
    absent = {domain: tuple(name for name in dataset.classes if name not in found[domain]) for domain in found}
    ignored = () if content.task == "segmentation" else tuple(_ignored(root, found, content))
    return OwnData(dataset, root, file, {domain: names for domain, names in absent.items() if names}, ignored)


def _check_parts(root: Path, content: DatasetFile) -> None:
    """Raise DataError for a part whose folder no domain has; one domain alone may lack some, as the held-out one."""
    if content.parts is None:
        return
    rules = rules_in(content)
    places = [name for name in content.domains or folder_names(root) if not rules.excludes(f"{name}/")]
    present = [root / name for name in places if is_folder(root / name)]
    if len(present) < 2:
        return
    for purpose in ("train", "validation", "test"):
        part = getattr(content.parts, purpose)
        if part is not None and not any(is_folder(domain / part) for domain in present):
            inner = shorten_names(folder_names(present[0])) or "no folder"
            raise DataError(
                f"parts.{purpose} of the {DATASET_FILE} of {root} is {part!r}, a folder that no domain has; expected "
                f"the name of one in each domain: {present[0].name}/ holds {inner}."
            )


def _free_name(folder: str) -> str:
    """Return a name for the data set in a folder that no data set of the catalogue has."""
    name = plain_name(folder)
    return f"own_{name}" if name in DATASETS.names() else name


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


def _found_classes(root: Path, content: DatasetFile) -> dict[str, list[str]]:
    """Return the domains that have folders with images, and the names of these folders."""
    rules = rules_in(content)
    found: dict[str, list[str]] = {}
    for domain in content.domains or folder_names(root):
        if rules.excludes(f"{domain}/"):
            continue
        names = {
            name for part in rules.part_folders for name in _classes_in(root, f"{domain}/{part}".strip("/"), rules)
        }
        if names:
            found[domain] = sorted(names)
    return found


def _classes_in(root: Path, place: str, rules: FileRules) -> list[str]:
    names = [name for name in folder_names(root / place) if not rules.excludes(f"{place}/{name}/")]
    return [name for name in names if has_image(root / place / name)]


def _ignored(root: Path, found: Mapping[str, Collection[str]], content: DatasetFile) -> Iterator[str]:
    """Yield the folders of images that are not used as a whole, unless the file says which are to be used."""
    rules = rules_in(content)
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
    folders = content.domains or folder_names(root)
    return {name: content.classes for name in folders if _has_pairs(root / name)}


def _has_pairs(folder: Path) -> bool:
    return all(is_folder(folder / part) for part in PAIR_FOLDERS) or (folder / "dataset.json").is_file()


def _check_found(root: Path, values: dict[str, Any], content: DatasetFile) -> None:
    """Raise an error for too few domains or classes, and for classes that are one under two spellings."""
    domains, classes = values["domains"], values["classes"]
    if len(domains) < FEWEST_DOMAINS:
        held = f"{len(domains)} domains ({shorten_names(domains)})" if domains else "no domain"
        raise DataError(
            f"folder {root} holds {held}, expected at least {FEWEST_DOMAINS} folders {LAYOUT}: two sources and the "
            f"held-out domain{_hint(root)}."
        )
    if len(classes) < 2:
        raise DataError(
            f"folder {root} holds the class {shorten_names(classes)} alone, expected at least 2{_hint(root)}."
        )
    if content.task == "classification" and set(classes) == set(PAIR_FOLDERS):
        raise DataError(
            f'folder {root} holds images and masks, expected a {DATASET_FILE} with task = "segmentation" and classes.'
        )
    if content.classes is None:
        _refuse_spellings(root, classes)


def _refuse_spellings(root: Path, classes: Collection[str]) -> None:
    """Raise DataError for classes whose names differ only in case or in Unicode form: most likely one at two sites.

    macOS and many archives decompose accents, other systems do not, and both look the same on a screen.
    """
    by_name: dict[str, str] = {}
    for name in classes:
        other = by_name.setdefault(_spelt_alike(name), name)
        if other != name:
            is_case = unicodedata.normalize("NFC", other) != unicodedata.normalize("NFC", name)
            what = "case only" if is_case else f"how accents are encoded only ({other!a}, {name!a})"
            raise DataError(
                f"folder {root} holds the classes {other!r} and {name!r}, which differ in {what}; rename one of "
                f"them, or name all classes in {DATASET_FILE}."
            )


def _spelt_alike(name: str) -> str:
    """Return what is equal for names that differ only in case or in Unicode form."""
    return unicodedata.normalize("NFC", unicodedata.normalize("NFC", name).casefold())


def _hint(root: Path) -> str:
    """Return where domains seem to be, seen from a folder that does not hold them; empty if nothing is seen."""
    if has_image(root):
        return f"; {root} holds images itself, as the folder of a class does: use {root.parent.parent}"
    with suppress(DataError):  # an odd name somewhere around is not what is wrong here
        return _hint_of_folders(root)
    return ""


def _hint_of_folders(root: Path) -> str:
    inner = folder_names(root)
    for hint in (_deeper_hint(root, inner), _parts_hint(root, inner)):
        if hint:
            return hint
    return _one_domain_hint(root) if any(has_image(root / name) for name in inner) else ""


def _deeper_hint(root: Path, inner: Collection[str]) -> str:
    """Return the hint for a folder of folders that hold domains, or of domains whose classes have folders in them."""
    deeper = [name for name in inner if _count_domains(root / name) > 1 and not _has_parts(root / name)]
    if not deeper:
        return ""
    shared = set.intersection(*({*folder_names(root / name)} for name in deeper))
    if len(deeper) > 1 and shared:
        place = root / deeper[0] / min(shared)
        return f"; images are expected in the folders of classes themselves, such as {place}, not in folders in them"
    places = " or ".join(str(root / name) for name in deeper[:3])
    return f"; the domains seem to be one level deeper: use {places}"


def _parts_hint(root: Path, inner: Collection[str]) -> str:
    """Return the hint for domains that are divided into parts, and for parts that are divided into domains."""
    if inner and _are_parts(inner):
        return f"; {', '.join(inner)} are not domains, expected them within each domain, as [parts] in {DATASET_FILE}"
    divided = [name for name in inner if _has_parts(root / name)]
    if not divided:
        return ""
    return f"; {divided[0]}/ holds {', '.join(folder_names(root / divided[0]))}: name them as [parts] in {DATASET_FILE}"


def _has_parts(folder: Path) -> bool:
    names = folder_names(folder)
    return bool(names) and _are_parts(names)


def _are_parts(names: Collection[str]) -> bool:
    return {name.lower() for name in names} <= _USUAL_PARTS


def _one_domain_hint(root: Path) -> str:
    """Return the hint for a folder whose folders hold images: it is one domain, or its images are in no classes."""
    if _count_domains(root.parent) > 1:
        return f"; {root} looks like one domain: use its parent, {root.parent}"
    return "; its folders hold images themselves: expected a folder for each class in them"


def _count_domains(folder: Path) -> int:
    """Return how many folders in a folder look like domains: they hold folders with images."""
    return sum(
        any(has_image(folder / name / inner) for inner in folder_names(folder / name)) for name in folder_names(folder)
    )
