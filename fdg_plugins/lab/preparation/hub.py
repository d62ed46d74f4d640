# SPDX-License-Identifier: Apache-2.0
"""Data sets from public repositories at Hugging Face, through the optional package ``datasets``.

A repository has one row per image with the columns image, domain and label. It lacks the original file names, so images
are named by split and row, and splits by name differ from those of the official archives.
"""

from collections.abc import Collection, Iterator, Mapping
from typing import Any

from fdg_plugins.errors import DataError, SettingsError
from fdg_plugins.extras import load_extra
from fdg_plugins.lab.preparation.sources import Source

REPOSITORIES: Mapping[str, tuple[str, tuple[str, ...]]] = {
    "pacs": ("flwrlabs/pacs", ("train",)),
    "officehome": ("flwrlabs/office-home", ("train",)),
    "domainnet": ("wltjr1007/DomainNet", ("train", "test")),
    "domainnet10": ("wltjr1007/DomainNet", ("train", "test")),
}
"""By data set: the name of its repository, and the splits that together make up the data set."""

_SUFFIXES = {b"\xff\xd8\xff": ".jpg", b"\x89PNG": ".png"}


class HubSource(Source):
    """A repository as a source; opening it downloads it into the cache of ``datasets``, where it can be resumed."""

    def __init__(self, dataset: str) -> None:
        """Raise SettingsError if no repository is known or ``datasets`` is missing, DataError for malformed rows."""
        if dataset not in REPOSITORIES:
            raise SettingsError(f"data set {dataset} is in no known repository; expected {', '.join(REPOSITORIES)}.")
        repository, splits = REPOSITORIES[dataset]
        self.name = f"Hugging Face {repository}"
        self._splits = {split: _load(repository, split) for split in splits}
        self._rows: dict[str, tuple[str, int]] = {}
        self.files = dict(self._listed())

    def read(self, wanted: Collection[str]) -> Iterator[tuple[str, bytes]]:
        """Read row by row; yields the bytes stored in the repository, without re-encoding."""
        for file, (split, row) in self._rows.items():
            if file in wanted:
                yield file, self._splits[split][row]["image"]["bytes"]

    def _listed(self) -> Iterator[tuple[str, int]]:
        for split, rows in self._splits.items():
            for number, row in enumerate(rows):
                image = row["image"]
                content = image.get("bytes") if isinstance(image, dict) else None
                content = content if isinstance(content, bytes) else b""
                suffix = next((suffix for start, suffix in _SUFFIXES.items() if content.startswith(start)), None)
                if suffix is None:
                    raise DataError(f"{self.name}, split {split}, row {number}: the image is no JPEG or PNG.")
                domain, label = (_name(rows, row, column) for column in ("domain", "label"))
                file = f"{domain}/{label}/{split}_{number:06d}{suffix}"
                self._rows[file] = (split, number)
                yield file, len(content)


def _load(repository: str, split: str) -> Any:
    package = load_extra("datasets", "--from hf", "hf")
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
    value, names = row[column], getattr(rows.features[column], "names", None)
    return str(names[value]) if names and isinstance(value, int) else str(value)
