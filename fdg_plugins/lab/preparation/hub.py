# SPDX-License-Identifier: Apache-2.0
"""Data sets from public repositories at Hugging Face, through the optional package ``datasets``.

A repository has one row per image with the columns image, domain and label. It lacks the original file names, so images
are named by split and row, and splits by name differ from those of the official archives.
"""

import importlib
from collections.abc import Collection, Iterator, Mapping
from typing import Any, NamedTuple

from fdg_plugins.errors import DataError, SettingsError
from fdg_plugins.lab.preparation.sources import Source


class Repository(NamedTuple):
    """The name of a data set's repository, and the splits that together make up the data set."""

    name: str
    splits: tuple[str, ...]


REPOSITORIES: Mapping[str, Repository] = {
    "pacs": Repository("flwrlabs/pacs", ("train",)),
    "officehome": Repository("flwrlabs/office-home", ("train",)),
    "domainnet": Repository("wltjr1007/DomainNet", ("train", "test")),
    "domainnet10": Repository("wltjr1007/DomainNet", ("train", "test")),
}

_SUFFIXES = {b"\xff\xd8\xff": ".jpg", b"\x89PNG": ".png"}


class HubSource(Source):
    """A repository as a source; opening it downloads it into the cache of ``datasets``, where it can be resumed."""

    def __init__(self, dataset: str) -> None:
        """Raise SettingsError if no repository is known or ``datasets`` is missing, DataError for malformed rows."""
        if dataset not in REPOSITORIES:
            raise SettingsError(f"data set {dataset} is in no known repository; expected {', '.join(REPOSITORIES)}.")
        repository = REPOSITORIES[dataset]
        self.name = f"Hugging Face {repository.name}"
        self._splits = {split: _load(repository.name, split) for split in repository.splits}
        self._rows: dict[str, tuple[str, int]] = {}
        self.files = dict(self._listed())

    def read(self, wanted: Collection[str]) -> Iterator[tuple[str, bytes]]:
        """Read row by row; yields the bytes stored in the repository, without re-encoding."""
        for file, (split, row) in self._rows.items():
            if file in wanted:
                yield file, self._content(split, row, self._splits[split][row])

    def _listed(self) -> Iterator[tuple[str, int]]:
        for split, rows in self._splits.items():
            for number, row in enumerate(rows):
                content = self._content(split, number, row)
                suffix = _suffix_of(content)
                if suffix is None:
                    raise DataError(f"{self.name}, split {split}, row {number}: the image is no JPEG or PNG.")
                domain, label = (_name(rows, row, column) for column in ("domain", "label"))
                file = f"{domain}/{label}/{split}_{number:06d}{suffix}"
                self._rows[file] = (split, number)
                yield file, len(content)

    def _content(self, split: str, number: int, row: Mapping[str, Any]) -> bytes:
        image = row["image"]
        content = image.get("bytes") if isinstance(image, dict) else None
        if not isinstance(content, bytes):
            raise DataError(f"{self.name}, split {split}, row {number} has no bytes of an image.")
        return content


def _suffix_of(content: bytes) -> str | None:
    return next((suffix for start, suffix in _SUFFIXES.items() if content.startswith(start)), None)


def _load(repository: str, split: str) -> Any:
    try:
        package = importlib.import_module("datasets")
    except ImportError as error:
        raise SettingsError(
            "--from hf needs the package datasets, which is not installed: pip install 'fdg-plugins[hf]'."
        ) from error
    try:
        rows = package.load_dataset(repository, split=split).cast_column("image", package.Image(decode=False))
        missing = {"image", "domain", "label"} - set(rows.features)
    except Exception as error:  # the package raises errors of its own, of its HTTP library and of its file formats
        reason = " ".join(str(error).split())[:300]
        raise DataError(
            f"Hugging Face {repository} cannot be downloaded ({type(error).__name__}: {reason})."
        ) from error
    if missing:
        raise DataError(f"Hugging Face {repository} lacks the column {min(missing)}; expected image, domain and label.")
    return rows


def _name(rows: Any, row: Mapping[str, Any], column: str) -> str:
    """Return the name of a domain or class, stored as text or as an index into a list of names."""
    value, names = row[column], getattr(rows.features[column], "names", None)
    return str(names[value]) if names and isinstance(value, int) else str(value)
