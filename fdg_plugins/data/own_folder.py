# SPDX-License-Identifier: Apache-2.0
"""Find a user's own data set: a folder ``<domain>/<class>/<image>`` whose names say which domains and classes it has.

Only names are read, no image. A ``dataset.toml`` in the folder, or beside it, says what the names do not.
"""

import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fdg_plugins.data.catalogue import DATASETS
from fdg_plugins.data.folders import has_image, is_folder, names_in
from fdg_plugins.data.own_files import DATASET_FILE, LABELS_FILE, NO_RULES, DatasetFile, read_dataset_file
from fdg_plugins.data.pairs import PARTS as PAIR_FOLDERS
from fdg_plugins.errors import DataError, SettingsError, visible
from fdg_plugins.plugins.own_dataset import OwnDataset, plain_name, read_own_dataset, shorten_names

FEWEST_DOMAINS = 3  # two sources, below which there is nothing to combine, and the held-out one
LAYOUT = "<domain>/<class>/<image>"

_Found = Mapping[str, tuple[str, ...]]  # classes by domain


@dataclass(frozen=True)
class OwnData:
    """A data set of a user's own on this machine.

    ``dataset``: the description, which runs share. ``root``: the folder that holds the domains, to be the data root.
    ``file``: the ``dataset.toml`` that was read, None if there is none. ``absent``: the classes without a folder of
    images, by domain, where there are any; legal, as the other sites have them. ``ignored``: folders in the root that
    are no domain.
    """

    dataset: OwnDataset
    root: Path
    file: Path | None = None
    absent: _Found = field(default_factory=dict)
    ignored: tuple[str, ...] = ()
    rules: DatasetFile = NO_RULES


def own_data(place: str | Path, folder: str | Path | None = None, elsewhere: Sequence[str] = ()) -> OwnData:
    """Return the data set in a folder ``<domain>/<class>/<image>``, or the one that a ``dataset.toml`` describes.

    Domains and classes are the folders with images, sorted by name, unless the file names them. ``folder`` holds the
    domains; by default the one that the file names, or the file's own. ``elsewhere``: domains that only others hold.
    Raises DataError for a folder without such images and an unusable file; SettingsError for fewer than two classes.
    """
    path = Path(place).expanduser()
    file = path if path.suffix == ".toml" else path / DATASET_FILE
    content = read_dataset_file(file) if file == path or file.is_file() else None
    images = Path(folder).expanduser() if folder is not None else file.parent / ((content and content.folder) or "")
    if not is_folder(images):
        raise DataError(field="folder", value=images, expected=f"one that holds {LAYOUT}, or a {DATASET_FILE}")
    return _described(images.resolve(), content or NO_RULES, None if content is None else file.resolve(), elsewhere)


def _described(root: Path, content: DatasetFile, file: Path | None, elsewhere: Sequence[str]) -> OwnData:
    present = [name for name in content.domains or _folders(root) if not content.excludes(f"{name}/")]
    found = (_found_classes if content.task == "classification" else _found_lists)(root, content, present)
    classes = content.classes or tuple(sorted({name for names in found.values() for name in names}))
    domains = tuple(dict.fromkeys([*found, *elsewhere]))
    _check_found(root, content.domains or domains, classes, content)
    plain = plain_name(root.name)
    said = {"mask_values", "channels", "dims", "preset"}
    values: dict[str, Any] = {
        "name": content.name or (f"own_{plain}" if plain in DATASETS.names() else plain),
        "title": content.title or visible(root.name),
        "task": content.task,
        "domains": content.domains or domains,
        "classes": classes,
        **content.model_dump(include=said, exclude_none=True),
    }
    dataset = read_own_dataset(values, f"folder {root}" if file is None else str(file))
    absent = {domain: tuple(name for name in classes if name not in names) for domain, names in found.items()}
    ignored = () if content.domains else tuple(name for name in present if name not in found)
    lacking = {domain: names for domain, names in absent.items() if names}
    return OwnData(dataset, root, file, lacking, ignored, content)


def _folders(folder: Path) -> list[str]:
    return sorted(name for name in names_in(folder) if is_folder(folder / name)) if is_folder(folder) else []


def _found_classes(root: Path, rules: DatasetFile, domains: list[str]) -> _Found:
    """Return the domains that have images in folders of classes."""
    there = [domain for domain in domains if is_folder(root / domain)]
    for part in rules.part_folders if len(there) > 1 else ():
        if not any(is_folder(root / domain / part) for domain in there):
            where = f"[parts] of {root / DATASET_FILE}"
            raise DataError(field=where, value=part, expected="the name of a folder in the domains")
    found = {}
    for domain in domains:
        places = [f"{domain}/{part}".strip("/") for part in rules.part_folders]
        inner = [f"{place}/{name}" for place in places for name in _folders(root / place)]
        used = {path.split("/")[-1] for path in inner if not rules.excludes(f"{path}/") and has_image(root / path)}
        found[domain] = tuple(sorted(used))
    return {domain: names for domain, names in found.items() if names}


def _found_lists(root: Path, content: DatasetFile, domains: list[str]) -> _Found:
    if content.classes is None:
        raise SettingsError(f"the {DATASET_FILE} of {root} names no classes, which the task {content.task} needs.")
    has_masks = content.task == "segmentation"
    list_name = "dataset.json" if has_masks else LABELS_FILE
    return {
        name: content.classes
        for name in domains
        if (root / name / list_name).is_file()
        or (has_masks and all(is_folder(root / name / part) for part in PAIR_FOLDERS))
    }


def _check_found(root: Path, domains: Sequence[str], classes: Sequence[str], content: DatasetFile) -> None:
    if len(domains) < FEWEST_DOMAINS or len(classes) < 2:
        raise DataError(
            f"folder {root} holds {len(domains)} domains ({shorten_names(domains)}) with {len(classes)} classes "
            f"({shorten_names(classes)}), expected {LAYOUT} with at least {FEWEST_DOMAINS} domains and 2 classes, or "
            f"[parts] in {DATASET_FILE} if train/ and val/ divide them."
        )
    if content.task == "classification" and set(classes) == set(PAIR_FOLDERS):
        raise DataError(
            f'folder {root} holds images and masks, expected a {DATASET_FILE} with task = "segmentation" and classes.'
        )
    # macOS and many archives decompose accents, other systems do not, and both look the same on a screen.
    alike = {unicodedata.normalize("NFC", name).casefold() for name in classes}
    if content.classes is None and len(alike) < len(classes):
        expected = f"names that differ in more than case and encoding, or all of them in {DATASET_FILE}"
        raise DataError(site=f"folder {root}", field="classes", value=[*map(ascii, classes)], expected=expected)
