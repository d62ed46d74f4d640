# SPDX-License-Identifier: Apache-2.0
"""A data set of a user's own, described by values: what server and sites must agree on, and nothing else.

The description takes the place of a name wherever a data set is named, and travels in the protocol of a run. It is
plain data, checked wherever it arrives: names of folders below a site's own data root, which no description can
leave. What concerns the files of one site stays with that site (:mod:`fdg_plugins.data.own_files`).
"""

import re
import unicodedata
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal, TypeAlias

import pydantic

from fdg_plugins.errors import SettingsError, first_problem, shorten

LONGEST_NAME = 200
MOST_ENTRIES = 10_000  # domains, or classes
LARGEST_MASK_VALUE = 65_535
MOST_NAMES = 10  # in a message

_FOLDER = re.compile(rf"(?!\.)[^/\\]{{1,{LONGEST_NAME}}}")  # a single component of a path, visible to `ls`
_LEFT_OUT = ("C", "Zl", "Zp")  # kinds of characters that could forge lines of logs: control, invisible, ends of lines


def _folder_name(name: str) -> str:
    """Return ``name`` if it is that of a visible folder, without separators, control and invisible characters."""
    is_plain = not any(unicodedata.category(character).startswith(_LEFT_OUT) for character in name)
    if not (is_plain and _FOLDER.fullmatch(name) is not None and name == name.strip()):
        raise ValueError("it should be a folder's name: no '/', no control or invisible characters, no '.' in front")
    return name


def _distinct(names: tuple[str, ...]) -> tuple[str, ...]:
    if len(set(names)) < len(names):
        raise ValueError("each name should be given once")
    return names


FolderName = Annotated[str, pydantic.AfterValidator(_folder_name)]
PlainName = Annotated[str, pydantic.StringConstraints(pattern=r"^[A-Za-z0-9_][A-Za-z0-9_.-]{0,99}$")]
Title = Annotated[str, pydantic.StringConstraints(max_length=LONGEST_NAME, pattern=r"^[^\p{C}\p{Zl}\p{Zp}]*$")]
MaskValue = Annotated[int, pydantic.Field(ge=0, le=LARGEST_MASK_VALUE)]
FolderNames = Annotated[
    tuple[FolderName, ...],
    pydantic.Field(min_length=1, max_length=MOST_ENTRIES, fail_fast=True),
    pydantic.AfterValidator(_distinct),
]
MaskValues = Annotated[
    tuple[Annotated[tuple[MaskValue, ...], pydantic.Field(max_length=LARGEST_MASK_VALUE + 1, fail_fast=True)], ...],
    pydantic.Field(max_length=MOST_ENTRIES, fail_fast=True),
]


class OwnDataset(pydantic.BaseModel):
    """The description of a data set that has no record: images are in ``<data root>/<domain>/<class>/``.

    ``name`` is for files and tables, ``title`` for people. The position of a class in ``classes`` is its label at every
    site. With the task ``multilabel``, ``<data root>/<domain>/labels.csv`` lists the images. With ``segmentation``,
    images and masks are in ``<data root>/<domain>/{images,masks}/``; ``mask_values``, ``channels``, ``dims`` and
    ``preset`` are then those of a ``SegmentationSpec``.
    """

    model_config = pydantic.ConfigDict(frozen=True, extra="forbid")

    format: Literal[1] = 1
    name: PlainName
    title: Title = ""
    domains: FolderNames
    classes: Annotated[FolderNames, pydantic.Field(min_length=2)]
    task: Literal["classification", "multilabel", "segmentation"] = "classification"
    mask_values: MaskValues = ()
    channels: Literal[1, 3] = 3
    dims: Literal[2, 3] = 2
    preset: Title = "photo"

    @pydantic.model_serializer(mode="wrap")
    def _without_defaults(self, write: pydantic.SerializerFunctionWrapHandler) -> dict[str, Any]:
        changed = {name for name, field in type(self).model_fields.items() if getattr(self, name) != field.default}
        return {name: value for name, value in write(self).items() if name in changed | {"format"}}

    def __str__(self) -> str:
        """Return the name."""
        return self.name


DatasetRef: TypeAlias = str | OwnDataset
"""What a protocol calls its data set: a name of the catalogue, or the description of a data set of one's own."""


def read_own_dataset(value: Mapping[str, Any], origin: str = "dataset") -> OwnDataset:
    """Return the description in a JSON value; raise ``SettingsError`` that names ``origin``."""
    try:
        return OwnDataset.model_validate(value)
    except pydantic.ValidationError as error:
        raise SettingsError(f"{origin}: {first_problem(error)}", public=True) from error


def plain_dataset(dataset: DatasetRef) -> Any:
    """Return a data set as JSON values: its name, or its description."""
    return dataset if isinstance(dataset, str) else dataset.model_dump(mode="json")


def plain_name(text: str) -> str:
    """Return the nearest name for files: ``"Meine Fotos"`` gives ``"Meine_Fotos"``."""
    return re.sub(r"[^A-Za-z0-9_.-]+", "_", text).strip("_.-")[:100] or "data"


def shorten_names(names: Sequence[str]) -> str:
    """Return the first names, and the number of the others, for a message."""
    more = f" and {len(names) - MOST_NAMES:,} more" if len(names) > MOST_NAMES else ""
    return ", ".join(shorten(name)[1:-1] for name in names[:MOST_NAMES]) + more
