# SPDX-License-Identifier: Apache-2.0
"""``dataset.toml``: what a user says about their images beyond the names of their folders.

Names, domains, classes and the task go into the description that everyone shares
(:mod:`fdg_plugins.plugins.own_dataset`). What concerns files, which are left out, which belong together and how a
domain is divided, is read by each participant from its own file and never leaves it.
"""

import re
import tomllib
import unicodedata
from fnmatch import fnmatchcase
from pathlib import Path, PurePosixPath
from typing import Annotated, Literal

import pydantic
from pydantic_core import PydanticCustomError

from fdg_plugins.data.folders import refuse_outside
from fdg_plugins.data.specs import Sample
from fdg_plugins.errors import DataError, first_problem
from fdg_plugins.plugins.own_dataset import FolderName, FolderNames, MaskValues, PlainName, Title

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
        return sum(map(self.excludes, {sample.file, getattr(sample, "mask", sample.file)})) > 0

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
