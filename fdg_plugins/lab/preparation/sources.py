# SPDX-License-Identifier: Apache-2.0
"""The source of a data set: a folder, an archive, or both together, as named files that can be read.

Listing a source unpacks nothing: it first lists its files, then yields the content of the requested ones.
"""

import os
from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Protocol, TypeVar

from fdg_plugins.data.links import leads_outside
from fdg_plugins.errors import DataError

MAX_FILES = 2_000_000
MAX_FILE_BYTES = 512 * 2**20
"""Limits on the number of files and on the bytes of one file; the largest data set has 0.6 million images."""

T = TypeVar("T")


class Readable(Protocol):
    """A binary stream that can be read in bounded pieces."""

    def read(self, size: int, /) -> bytes:
        """Return up to ``size`` bytes, fewer only at the end."""


class Source(ABC):
    """Named files: ``files`` maps each path (POSIX, no hidden component) to its size in bytes, as stored."""

    name: str
    files: Mapping[str, int]

    @abstractmethod
    def read(self, wanted: Collection[str]) -> Iterator[tuple[str, bytes]]:
        """Yield path and content of each wanted file once, in the source's order; raise DataError if one is broken."""

    def path_of(self, file: str) -> Path | None:
        """Return the path of ``file`` on this machine, None if it is part of an archive."""
        return None

    def read_one(self, file: str) -> bytes:
        """Return the content of one file."""
        return next(content for _, content in self.read({file}))


class FolderSource(Source):
    """The files below a folder, ``without`` some paths. Rejects linked folders and links that leave the folder."""

    def __init__(self, folder: Path, without: Collection[str] = ()) -> None:
        self.name = str(folder)
        self._root = folder.resolve()
        self.files = bounded({file: size for file, size in self._listed() if file not in without}, self.name)

    def read(self, wanted: Collection[str]) -> Iterator[tuple[str, bytes]]:
        """Read the wanted files in the order of their names."""
        for file in sorted(wanted):
            try:
                with (self._root / file).open("rb") as stream:
                    content = read_bounded(stream, f"file {self._root / file}")
            except OSError as error:
                raise DataError(f"file {self._root / file} cannot be read: {error.strerror}.") from error
            yield file, content

    def path_of(self, file: str) -> Path:
        """Return the path of ``file`` with links resolved."""
        return (self._root / file).resolve()

    def _listed(self) -> Iterator[tuple[str, int]]:
        for place, folders, names in os.walk(self._root, onerror=_cannot_be_listed):
            folders[:] = _without_hidden(folders)
            _refuse_links(Path(place) / name for name in folders)
            for path in (Path(place) / name for name in _without_hidden(names)):
                self._refuse_outside(path)
                if path.is_file():
                    yield path.relative_to(self._root).as_posix(), path.stat().st_size

    def _refuse_outside(self, path: Path) -> None:
        if path.is_symlink() and leads_outside(self._root, path):
            raise DataError(f"{path} is a link out of the source; expected its target below {self._root}.")


class JoinedSource(Source):
    """Several sources as one; if several hold the same path, the first one's file is used."""

    def __init__(self, name: str, parts: Sequence[Source]) -> None:
        self.name = name
        self._owners = {file: part for part in reversed(parts) for file in part.files}
        self.files = bounded({file: part.files[file] for file, part in self._owners.items()}, name)
        self._parts = parts

    def read(self, wanted: Collection[str]) -> Iterator[tuple[str, bytes]]:
        """Read from the parts in turn."""
        for part in self._parts:
            if own := {file for file in wanted if self._owners[file] is part}:
                yield from part.read(own)

    def path_of(self, file: str) -> Path | None:
        """Return the path given by the part that holds ``file``."""
        return self._owners[file].path_of(file)


def is_hidden(name: str) -> bool:
    """Return whether a file or folder is not content: names that begin with a dot, and the extras of Mac archives."""
    return name.startswith(".") or name == "__MACOSX"


def _without_hidden(names: Iterable[str]) -> list[str]:
    """Return the names of content, sorted."""
    return sorted(name for name in names if not is_hidden(name))


def _refuse_links(folders: Iterable[Path]) -> None:
    if links := [folder for folder in folders if folder.is_symlink()]:
        raise DataError(f"{links[0]} is a link to a folder; expected the folder itself, or --from its target.")


def bounded(files: dict[str, T], name: str) -> dict[str, T]:
    """Return ``files``; raise DataError if there are more than ``MAX_FILES``."""
    if len(files) > MAX_FILES:
        raise DataError(f"source {name} holds {len(files):,} files; expected at most {MAX_FILES:,}.")
    return files


def read_bounded(stream: Readable, what: str) -> bytes:
    """Return the content of ``stream``; raise DataError, naming ``what``, if it exceeds ``MAX_FILE_BYTES``."""
    content = stream.read(MAX_FILE_BYTES + 1)
    if len(content) > MAX_FILE_BYTES:
        raise DataError(f"{what} has more than {MAX_FILE_BYTES:,} bytes; expected an image, a list or annotations.")
    return content


def _cannot_be_listed(error: OSError) -> None:
    raise DataError(f"folder {error.filename} cannot be listed: {error.strerror}.") from error
