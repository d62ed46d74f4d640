# SPDX-License-Identifier: Apache-2.0
"""A user's own data set: a folder whose names give its domains and classes, and ``dataset.toml``, which says more.

Only names are read, no image. Names, domains, classes and the task go into the description that everyone shares
(:mod:`fdg_plugins.plugins.own_dataset`). What concerns files, which are left out, which belong together and how a
domain is divided, is read by each participant from its own file and never leaves it.
"""

import re
import tomllib
import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path, PurePosixPath
from typing import Annotated, Literal

import pydantic
from pydantic_core import PydanticCustomError

from fdg_plugins.data.catalogue import DATASETS
from fdg_plugins.data.folders import PARTS, has_image, is_file, is_folder, names_in, refuse_outside
from fdg_plugins.data.specs import Sample
from fdg_plugins.errors import DataError, counted, first_problem, visible
from fdg_plugins.plugins.own_dataset import (
    FolderName,
    FolderNames,
    MaskValues,
    OwnDataset,
    PlainName,
    Title,
    plain_name,
    read_own_dataset,
    shorten_names,
)

DATASET_FILE = "dataset.toml"
LABELS_FILE = "labels.csv"
DOMAIN = "{domain}"


def _by_domain(text: str) -> str:
    path = PurePosixPath(text)
    if DOMAIN not in text or path.is_absolute() or ".." in path.parts or not text.isprintable():
        raise PydanticCustomError("path", "it should be a path below the data set's folder, such as {domain}.txt")
    return text


ListPath = Annotated[str, pydantic.AfterValidator(_by_domain)]
Text = Annotated[str, pydantic.StringConstraints(min_length=1, max_length=1_000)]


class Parts(pydantic.BaseModel, frozen=True, extra="forbid"):
    """The folders in each domain that divide it: ``<domain>/<train>/<class>/<image>``. Images of ``test`` never train.

    Without ``validation``, a tenth of the training images, drawn by the seed, validates.
    """

    train: FolderName
    validation: FolderName | None = None
    test: FolderName | None = None


class Lists(pydantic.BaseModel, frozen=True, extra="forbid"):
    """The lists of images that divide each domain, as paths below the data set's folder; images in none never train.

    A list has a line ``<class>/<image>`` or ``<domain>/<class>/<image>`` for each image. With columns, it has a first
    line that names them, the first column is the image, and commas separate them.
    """

    train: ListPath
    validation: ListPath | None = None

    def of(self, domain: str) -> dict[str, str]:
        """Return the paths of a domain's lists, by part."""
        given = {"training": self.train, "validation": self.validation}
        return {part: path.replace(DOMAIN, domain) for part, path in given.items() if path is not None}


class DatasetFile(pydantic.BaseModel, frozen=True, extra="forbid"):
    """The content of ``dataset.toml``; everything may be omitted.

    ``exclude``: patterns of paths ``<domain>/<class>/<image>``, in which ``*`` stands for any characters and ``?``
    for one. ``parts`` and ``lists`` divide each domain; at most one of them is given. ``group``: a column of the lists,
    or what ``group_pattern``, a regular expression, finds in the name of a file.
    """

    format: Literal[1] = 1
    name: PlainName | None = None
    title: Title | None = None
    folder: Text | None = None
    domains: FolderNames | None = None
    classes: FolderNames | None = None
    task: Literal["classification", "multilabel", "segmentation"] = "classification"
    mask_values: MaskValues | None = None
    channels: Literal[1, 3] | None = None
    dims: Literal[2, 3] | None = None
    preset: Title | None = None
    exclude: Annotated[tuple[Text, ...], pydantic.Field(max_length=100_000)] = ()
    group: PlainName | None = None
    group_pattern: re.Pattern[str] | None = None
    parts: Parts | None = None
    lists: Lists | None = None

    _matched: set[str] = pydantic.PrivateAttr(default_factory=set)

    @pydantic.model_validator(mode="after")
    def _fits_together(self) -> "DatasetFile":
        divided = (self.parts is not None) + (self.lists is not None)
        rules = {
            "either parts or lists divide a domain of classes, not both": divided <= (self.task == "classification"),
            f"the task {self.task} needs classes": self.task == "classification" or self.classes is not None,
            "group_pattern needs a group, such as patient": self.group_pattern is None or self.group is not None,
        }
        for rule in (rule for rule, holds in rules.items() if not holds):
            raise PydanticCustomError("rule", rule)
        return self

    @property
    def part_folders(self) -> tuple[str, ...]:
        """The folders between domain and class, each once; ``""`` alone if there is none."""
        parts = self.parts
        named = () if parts is None else (parts.train, parts.validation, parts.test)
        return tuple(dict.fromkeys(filter(None, named))) or ("",)

    @property
    def group_column(self) -> str | None:
        """The column of the lists that says to which group an image belongs; None if there is none."""
        return self.group if self.group_pattern is None else None

    def excludes(self, path: str) -> bool:
        """Return whether a path below the data set's folder is left out; that of a folder ends with ``/``.

        Brackets stand for themselves, as in ``copy[1].jpg``, and accents are equal however they are encoded.
        """
        name = unicodedata.normalize("NFC", path)
        patterns = {pattern: unicodedata.normalize("NFC", pattern).replace("[", "[[]") for pattern in self.exclude}
        found = {pattern for pattern, plain in patterns.items() if fnmatchcase(name, plain)}
        self._matched.update(found)
        return bool(found)

    def leaves_out(self, sample: Sample) -> bool:
        """Return whether an image is left out, by its own path or that of its mask."""
        return sum(map(self.excludes, {sample.file, sample.mask or sample.file})) > 0

    @property
    def idle(self) -> list[str]:
        """The patterns that have matched nothing so far."""
        return [pattern for pattern in self.exclude if pattern not in self._matched]


NO_RULES = DatasetFile()


def read_dataset_file(path: Path) -> DatasetFile:
    """Return the content of a ``dataset.toml``; raise DataError for one that cannot be read or has another form."""
    try:
        return DatasetFile.model_validate(tomllib.loads(path.read_text(encoding="utf-8-sig")))
    except pydantic.ValidationError as error:
        raise DataError(f"file {path}: {first_problem(error, DatasetFile.model_fields)}") from error
    except (OSError, ValueError, RecursionError) as error:  # not there, no UTF-8 or no TOML
        raise DataError(f"file {path} cannot be read as TOML: {error}.") from error


def rules_of(root: Path, given: Path | None) -> DatasetFile:
    """Return the rules for the images in a data root: those of the file ``given``, else of its own ``dataset.toml``."""
    path = given or root / DATASET_FILE
    if given is None:
        refuse_outside(root, path)
    return NO_RULES if given is None and not path.is_file() else read_dataset_file(path)


FEWEST_DOMAINS = 3  # to train: two sources, below which there is nothing to combine, and the held-out one
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


def own_data(place: str | Path, folder: str | Path | None = None, fewest: int = FEWEST_DOMAINS) -> OwnData:
    """Return the data set in a folder ``<domain>/<class>/<image>``, or the one that a ``dataset.toml`` describes.

    Domains and classes are the folders with images, sorted by name, unless the file names them. ``folder`` holds the
    domains; by default the one that the file names, or the file's own. Raises DataError for a folder that is not there
    or holds fewer than ``fewest`` domains, and for an unusable file.
    """
    path = Path(place).expanduser()
    file = path if path.suffix == ".toml" else path / DATASET_FILE
    is_there = file == path or file.is_file()
    rules = read_dataset_file(file) if is_there else NO_RULES
    root = Path(folder).expanduser() if folder is not None else file.parent / (rules.folder or "")
    if not is_folder(root):
        raise DataError(f"there is no folder {root}.", field="folder")
    return _described(root.resolve(), rules, file.resolve() if is_there else None, fewest)


def _described(root: Path, rules: DatasetFile, file: Path | None, fewest: int) -> OwnData:
    present = [name for name in rules.domains or _folders(root) if not rules.excludes(f"{name}/")]
    found = {name: classes for name in present if (classes := _classes_in(root, name, rules))}
    classes = rules.classes or tuple(sorted({name for names in found.values() for name in names}))
    domains = rules.domains or tuple(found)
    _check_found(root, present, domains, classes, rules, fewest)
    plain = plain_name(root.name)
    named = {"name": f"own_{plain}" if plain in DATASETS.names() else plain, "title": visible(root.name)}
    said = rules.model_dump(include={*OwnDataset.model_fields}, exclude_none=True)
    origin = f"folder {root}" if file is None else str(file)
    dataset = read_own_dataset({**named, **said, "domains": domains, "classes": classes}, origin)
    absent = {domain: tuple(name for name in classes if name not in names) for domain, names in found.items()}
    lacking = {domain: names for domain, names in absent.items() if names}
    ignored = () if rules.domains else tuple(name for name in present if name not in found)
    return OwnData(dataset, root, file, lacking, ignored, rules)


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
    is_there = has_masks and all(is_folder(root / domain / part) for part in PARTS)
    is_listed = is_file(root / domain / ("dataset.json" if has_masks else LABELS_FILE))
    return rules.classes or () if is_there or is_listed else ()


def _check_found(
    root: Path,
    present: Sequence[str],
    domains: Sequence[str],
    classes: Sequence[str],
    rules: DatasetFile,
    fewest: int,
) -> None:
    there = [domain for domain in present if is_folder(root / domain)]
    for part in rules.part_folders if len(there) > 1 else ():
        if not any(is_folder(root / domain / part) for domain in there):
            where = f"[parts] of {root / DATASET_FILE}"
            raise DataError(field=where, value=part, expected="the name of a folder in the domains")
    are_pairs = rules.task == "classification" and {*classes} == {*PARTS}
    if len(domains) < fewest or len(classes) < 2 or are_pairs:
        holds = f"{len(domains)} domains ({shorten_names(domains)}) with {len(classes)} classes"
        least = f"{LAYOUT} with at least {counted(fewest, 'domain')} and 2 classes"
        said = 'task = "segmentation"' if are_pairs else "[parts] if train/ and val/ divide them"
        expected = f"{least}, or a {DATASET_FILE} that says {said}"
        holds += f" ({shorten_names(classes)})"
        raise DataError(f"folder {root} holds {holds}, expected {expected}.", field="folder")
    # macOS and many archives decompose accents, other systems do not, and both look the same on a screen.
    alike = {unicodedata.normalize("NFC", name).casefold() for name in classes}
    if rules.classes is None and len(alike) < len(classes):
        expected = f"names that differ in more than case and encoding, or all of them in {DATASET_FILE}"
        raise DataError(site=f"folder {root}", field="classes", value=[*map(ascii, classes)], expected=expected)
