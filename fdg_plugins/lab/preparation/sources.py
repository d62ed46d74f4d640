# SPDX-License-Identifier: Apache-2.0
"""The source of a data set: a folder, a zip or tar archive, or both together, as named files that can be read.

Listing a source unpacks nothing, and an archive chooses no path on disk. An absolute name, a name that leads out of the
archive, a link or a device makes the whole archive unacceptable.
"""

import lzma
import os
import re
import stat
import struct
import tarfile
import zipfile
import zlib
from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from gzip import GzipFile
from pathlib import Path, PurePosixPath
from typing import IO, TypeVar

from fdg_plugins.data.own_files import leads_outside
from fdg_plugins.errors import DataError

MAX_FILES = 2_000_000
MAX_FILE_BYTES = 512 * 2**20
"""Limits on the number of files and on the bytes of one file; the largest data set has 0.6 million images."""

SUFFIXES = (".zip", ".tar", ".tar.gz", ".tgz", ".tar.bz2", ".tar.xz")

_ABSOLUTE = re.compile("/|[A-Za-z]:")
# Exceptions of zipfile and tarfile for archives that are damaged, encrypted, or compressed by an unknown method.
_BROKEN = (
    *(OSError, EOFError, RuntimeError, ValueError, struct.error, tarfile.TarError, zipfile.BadZipFile),
    *(zlib.error, lzma.LZMAError),
)

T = TypeVar("T")


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


def open_source(path: Path) -> Source:
    """Return the folder or archive at ``path`` as a source; a folder is joined with the archives directly in it.

    Raises DataError for anything else, and for unsafe or broken archives.
    """
    if path.is_dir():
        archives = sorted(entry for entry in path.iterdir() if _is_archive(entry))
        folder = FolderSource(path, without={archive.name for archive in archives})
        return JoinedSource(str(path), [folder, *map(_archive, archives)]) if archives else folder
    if not path.is_file():
        raise DataError(f"source {path} is not there; expected a folder or an archive ({', '.join(SUFFIXES)}).")
    return _archive(path)


def _is_archive(path: Path) -> bool:
    return path.name.lower().endswith(SUFFIXES) and not _is_hidden(path.name) and path.is_file()


def _archive(path: Path) -> Source:
    with _translated(path):
        if tarfile.is_tarfile(path):  # first, as the last file of a tar archive may be a zip archive
            return TarSource(path)
        if zipfile.is_zipfile(path):
            return ZipSource(path)
    raise DataError(f"file {path} is not a zip or tar archive; expected one of {', '.join(SUFFIXES)}, undamaged.")


class FolderSource(Source):
    """The files below a folder, ``without`` some paths. Rejects linked folders and links that leave the folder."""

    def __init__(self, folder: Path, without: Collection[str] = ()) -> None:
        self.name = str(folder)
        self._root = folder.resolve()
        self.files = _bounded(((file, size) for file, size in self._listed() if file not in without), self.name)

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
            folders[:] = sorted(name for name in folders if not _is_hidden(name))
            for path in (Path(place) / name for name in (*folders, *sorted(names)) if not _is_hidden(name)):
                if path.is_symlink() and (path.is_dir() or leads_outside(self._root, path)):
                    raise DataError(
                        f"{path} is a link to a folder or out of the source; expected files below {self._root}."
                    )
                if path.is_file():
                    yield path.relative_to(self._root).as_posix(), path.stat().st_size


class ZipSource(Source):
    """The files in a zip archive."""

    def __init__(self, path: Path) -> None:
        self.name = str(path)
        self._path = path
        with _translated(path), zipfile.ZipFile(path) as archive:
            members = [info for info in archive.infolist() if not info.is_dir()]
        if links := [info.filename for info in members if stat.S_ISLNK(info.external_attr >> 16)]:
            raise DataError(f"archive {path} holds the link {links[0]!r}; expected plain files only.")
        self._members = _named(((info.filename, info) for info in members), path)
        self.files = {file: info.file_size for file, info in self._members.items()}

    def read(self, wanted: Collection[str]) -> Iterator[tuple[str, bytes]]:
        """Read the files in the order of the archive."""
        with _translated(self._path):
            archive = zipfile.ZipFile(self._path)
        with archive:
            for file, info in ((file, info) for file, info in self._members.items() if file in wanted):
                with _translated(self._path), archive.open(info) as stream:
                    content = read_bounded(stream, f"file {file} in {self._path}")
                yield file, content


class TarSource(Source):
    """The files in a tar archive, compressed or not; it is read from the start once to list it and once to copy."""

    def __init__(self, path: Path) -> None:
        self.name = str(path)
        self._path = path
        self.files = _named(((member.name, member.size) for _, member in self._walked()), path)

    def read(self, wanted: Collection[str]) -> Iterator[tuple[str, bytes]]:
        """Read the files in the order of the archive, up to the last wanted file."""
        left = set(wanted)
        for archive, member in self._walked() if left else ():
            if (file := safe_path(member.name, self._path)) in left:
                left.discard(file)
                with _translated(self._path):
                    stream = archive.extractfile(member)
                    assert stream is not None  # of a regular file
                    content = read_bounded(stream, f"file {file} in {self._path}")
                yield file, content
            if not left:
                return

    def _walked(self) -> Iterator[tuple[tarfile.TarFile, tarfile.TarInfo]]:
        """Yield the regular files; raise DataError at the first link, device or pipe."""
        with _translated(self._path):
            archive = tarfile.open(self._path, "r:*")  # noqa: SIM115
        with archive:
            while True:
                with _translated(self._path):
                    member = archive.next()
                if member is None:
                    return
                archive.members = []  # type: ignore[attr-defined]  # tarfile would keep every member it has read
                with _translated(self._path):
                    tarfile.data_filter(member, "/")  # refuses what would leave a folder on unpacking
                if not member.isreg() and not member.isdir():
                    raise DataError(
                        f"archive {self._path} holds the link or device {member.name!r}; expected plain files only."
                    )
                if member.isreg():
                    yield archive, member


class JoinedSource(Source):
    """Several sources as one; if several hold the same path, the first one's file is used."""

    def __init__(self, name: str, parts: Sequence[Source]) -> None:
        self.name = name
        self._owners = {file: part for part in reversed(parts) for file in part.files}
        self.files = _bounded(((file, part.files[file]) for file, part in self._owners.items()), name)
        self._parts = parts

    def read(self, wanted: Collection[str]) -> Iterator[tuple[str, bytes]]:
        """Read from the parts in turn."""
        for part in self._parts:
            if own := {file for file in wanted if self._owners[file] is part}:
                yield from part.read(own)

    def path_of(self, file: str) -> Path | None:
        """Return the path given by the part that holds ``file``."""
        return self._owners[file].path_of(file)


def safe_path(name: str, archive: Path) -> str | None:
    """Return the path of a member, None if hidden; raise DataError if it is not plain or leads out of the archive."""
    parts = PurePosixPath(name).parts
    is_within = not _ABSOLUTE.match(name) and ".." not in name.split("/")
    if not parts or not is_within or "\\" in name or not name.isprintable():
        raise DataError(f"archive {archive} holds a file named {name!r}; expected a plain path within the archive.")
    return None if any(_is_hidden(part) for part in parts) else "/".join(parts)


def read_bounded(stream: IO[bytes] | GzipFile, what: str) -> bytes:
    """Return the content of ``stream``; raise DataError, naming ``what``, if it exceeds ``MAX_FILE_BYTES``."""
    content = stream.read(MAX_FILE_BYTES + 1)
    if len(content) > MAX_FILE_BYTES:
        raise DataError(f"{what} has more than {MAX_FILE_BYTES:,} bytes; expected an image, a list or annotations.")
    return content


def _is_hidden(name: str) -> bool:
    return name.startswith(".") or name == "__MACOSX"


def _named(members: Iterable[tuple[str, T]], archive: Path) -> dict[str, T]:
    found = ((safe_path(name, archive), value) for name, value in members)
    return _bounded(((file, value) for file, value in found if file is not None), str(archive))


def _bounded(files: Iterable[tuple[str, T]], name: str) -> dict[str, T]:
    """Return the files by name; raise DataError for one that is there twice, and for more than ``MAX_FILES``."""
    found: dict[str, T] = {}
    for file, value in files:
        if file in found or len(found) == MAX_FILES:
            raise DataError(f"source {name} holds {file} twice, or more than {MAX_FILES:,} files.")
        found[file] = value
    return found


def _cannot_be_listed(error: OSError) -> None:
    raise DataError(f"folder {error.filename} cannot be listed: {error.strerror}.") from error


@contextmanager
def _translated(archive: Path) -> Iterator[None]:
    """Turn the exceptions of a broken archive into a DataError of one sentence."""
    try:
        yield
    except _BROKEN as error:
        raise DataError(
            f"archive {archive} cannot be read ({type(error).__name__}: {error}); expected an undamaged zip or tar "
            "file without a password, links and devices."
        ) from error
