# SPDX-License-Identifier: Apache-2.0
"""Find a user's own data set: a folder ``<domain>/<class>/<image>`` whose names say which domains and classes it has.

Only names are read, no image. A ``dataset.toml`` in the folder, or beside it, says what the names do not.
"""

import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from fdg_plugins.data.catalogue import DATASETS
from fdg_plugins.data.folders import has_image, is_file, is_folder, names_in
from fdg_plugins.data.own_files import DATASET_FILE, LABELS_FILE, NO_RULES, DatasetFile, read_dataset_file
from fdg_plugins.data.pairs import PARTS as PAIR_FOLDERS
from fdg_plugins.errors import DataError, visible
from fdg_plugins.plugins.own_dataset import OwnDataset, plain_name, read_own_dataset, shorten_names

FEWEST_DOMAINS = 3  # two sources, below which there is nothing to combine, and the held-out one
LAYOUT = "<domain>/<class>/<image>"


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
    absent: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    ignored: tuple[str, ...] = ()
    rules: DatasetFile = NO_RULES


def own_data(place: str | Path, folder: str | Path | None = None, elsewhere: Sequence[str] = ()) -> OwnData:
    """Return the data set in a folder ``<domain>/<class>/<image>``, or the one that a ``dataset.toml`` describes.

    Domains and classes are the folders with images, sorted by name, unless the file names them. ``folder`` holds the
    domains; by default the one that the file names, or the file's own. ``elsewhere``: domains that only others hold.
    Raises DataError for a folder that is not there or holds no such images, and for an unusable file.
    """
    path = Path(place).expanduser()
    file = path if path.suffix == ".toml" else path / DATASET_FILE
    content = read_dataset_file(file) if file == path or file.is_file() else None
    rules = content or NO_RULES
    root = Path(folder).expanduser() if folder is not None else file.parent / (rules.folder or "")
    if not is_folder(root):
        raise DataError(f"there is no folder {root}.", field="folder")
    root = root.resolve()
    present = [name for name in rules.domains or _folders(root) if not rules.excludes(f"{name}/")]
    found = {name: classes for name in present if (classes := _classes_in(root, name, rules))}
    classes = rules.classes or tuple(sorted({name for names in found.values() for name in names}))
    domains = rules.domains or tuple(dict.fromkeys([*found, *elsewhere]))
    _check_found(root, present, domains, classes, rules)
    dataset = _description(root, domains, classes, rules, f"folder {root}" if content is None else str(file))
    absent = {domain: tuple(name for name in classes if name not in names) for domain, names in found.items()}
    return OwnData(
        dataset,
        root,
        None if content is None else file.resolve(),
        {domain: names for domain, names in absent.items() if names},
        () if rules.domains else tuple(name for name in present if name not in found),
        rules,
    )


def _description(
    root: Path, domains: Sequence[str], classes: Sequence[str], rules: DatasetFile, origin: str
) -> OwnDataset:
    plain = plain_name(root.name)
    found = {
        "name": rules.name or (f"own_{plain}" if plain in DATASETS.names() else plain),
        "title": rules.title or visible(root.name),
        "domains": domains,
        "classes": classes,
    }
    said = rules.model_dump(include={*OwnDataset.model_fields}, exclude_none=True)
    return read_own_dataset(said | found, origin)


def _folders(folder: Path) -> list[str]:
    return sorted(name for name in names_in(folder) if is_folder(folder / name)) if is_folder(folder) else []


def _classes_in(root: Path, domain: str, rules: DatasetFile) -> tuple[str, ...]:
    """Return the classes of a domain: those with images in folders, or of the file if it has masks or a list."""
    if rules.task == "classification":
        places = [f"{domain}/{part}".rstrip("/") for part in rules.part_folders]
        inner = [f"{place}/{name}" for place in places for name in _folders(root / place)]
        used = {path.rpartition("/")[2] for path in inner if not rules.excludes(f"{path}/") and has_image(root / path)}
        return tuple(sorted(used))
    has_masks = rules.task == "segmentation"
    is_there = has_masks and all(is_folder(root / domain / part) for part in PAIR_FOLDERS)
    is_listed = is_file(root / domain / ("dataset.json" if has_masks else LABELS_FILE))
    return rules.classes or () if is_there or is_listed else ()


def _check_found(
    root: Path, present: Sequence[str], domains: Sequence[str], classes: Sequence[str], rules: DatasetFile
) -> None:
    there = [domain for domain in present if is_folder(root / domain)]
    for part in rules.part_folders if len(there) > 1 else ():
        if not any(is_folder(root / domain / part) for domain in there):
            where = f"[parts] of {root / DATASET_FILE}"
            raise DataError(field=where, value=part, expected="the name of a folder in the domains")
    are_pairs = rules.task == "classification" and {*classes} == {*PAIR_FOLDERS}
    if len(domains) < FEWEST_DOMAINS or len(classes) < 2 or are_pairs:
        holds = f"{len(domains)} domains ({shorten_names(domains)}) with {len(classes)} classes"
        least = f"{LAYOUT} with at least {FEWEST_DOMAINS} domains and 2 classes"
        said = 'task = "segmentation"' if are_pairs else "[parts] if train/ and val/ divide them"
        expected = f"{least}, or a {DATASET_FILE} that says {said}"
        holds += f" ({shorten_names(classes)})"
        raise DataError(f"folder {root} holds {holds}, expected {expected}.", field="folder")
    # macOS and many archives decompose accents, other systems do not, and both look the same on a screen.
    alike = {unicodedata.normalize("NFC", name).casefold() for name in classes}
    if rules.classes is None and len(alike) < len(classes):
        expected = f"names that differ in more than case and encoding, or all of them in {DATASET_FILE}"
        raise DataError(site=f"folder {root}", field="classes", value=[*map(ascii, classes)], expected=expected)
