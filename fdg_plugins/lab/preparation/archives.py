# SPDX-License-Identifier: Apache-2.0
"""Zip and tar archives as sources; names and kinds of members are checked, and the archive chooses no path on disk.

An absolute name, a name that leads out of the archive, a link or a device makes the whole archive unacceptable.
"""

import lzma
import re
import stat
import struct
import tarfile
import zipfile
import zlib
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from typing import Any, TypeVar

from fdg_plugins.errors import DataError
from fdg_plugins.lab.preparation.sources import (
    FolderSource,
    JoinedSource,
    Source,
    bounded,
    is_hidden,
    read_bounded,
)

SUFFIXES = (".zip", ".tar", ".tar.gz", ".tgz", ".tar.bz2", ".tar.xz")

_ABSOLUTE = re.compile("/|[A-Za-z]:")

# Exceptions of zipfile and tarfile for archives that are damaged, encrypted, or compressed by an unknown method.
_BROKEN = (
    OSError,
    EOFError,
    RuntimeError,
    ValueError,
    struct.error,
    tarfile.TarError,
    zipfile.BadZipFile,
    zlib.error,
    lzma.LZMAError,
)

T = TypeVar("T")


def open_source(path: Path) -> Source:
    """Return the folder or archive at ``path`` as a source; a folder is joined with the archives directly in it.

    Raises DataError for anything else, and for unsafe or broken archives.
    """
    if path.is_dir():
        return _folder(path)
    if not path.is_file():
        raise DataError(f"source {path} is not there; expected a folder or an archive ({', '.join(SUFFIXES)}).")
    return _archive(path)


def _folder(path: Path) -> Source:
    archives = sorted(entry for entry in path.iterdir() if is_archive(entry))
    folder = FolderSource(path, without={archive.name for archive in archives})
    return JoinedSource(str(path), [folder, *map(_archive, archives)]) if archives else folder


def is_archive(path: Path) -> bool:
    """Return whether ``path`` is a file with the name of an archive."""
    return path.name.lower().endswith(SUFFIXES) and not is_hidden(path.name) and path.is_file()


class ZipSource(Source):
    """The files in a zip archive."""

    def __init__(self, path: Path) -> None:
        self.name = str(path)
        self._path = path
        with self._opened() as archive:
            self._members = _named(((info.filename, info) for info in archive.infolist() if not info.is_dir()), path)
        for file, info in self._members.items():
            if stat.S_ISLNK(info.external_attr >> 16):
                raise DataError(f"archive {path} holds the link {file}; expected plain files only.")
        self.files = {file: info.file_size for file, info in self._members.items()}

    def read(self, wanted: Collection[str]) -> Iterator[tuple[str, bytes]]:
        """Read the files in the order of the archive."""
        with self._opened() as archive:
            for file, info in ((file, info) for file, info in self._members.items() if file in wanted):
                with _translated(self._path), archive.open(info) as stream:
                    content = read_bounded(stream, f"file {file} in {self._path}")
                yield file, content

    @contextmanager
    def _opened(self) -> Iterator[zipfile.ZipFile]:
        with _translated(self._path):
            archive = zipfile.ZipFile(self._path)
        with archive:
            yield archive


class _Remembering:
    """A file that remembers what was last read of it.

    tarfile takes a damaged header, unless it is the first, for the end of the archive, which is zeros, or nothing.
    """

    def __init__(self, file: Any) -> None:
        self._file = file
        self.last = b""

    def read(self, size: int = -1) -> bytes:
        """Read as the file does."""
        self.last = self._file.read(size)
        return self.last

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)


class TarSource(Source):
    """The files in a tar archive, compressed or not; it is read from the start once to list it and once to copy."""

    def __init__(self, path: Path) -> None:
        self.name = str(path)
        self._path = path
        self.files = _named(((member.name, member.size) for _, member in self._walked()), path)

    def read(self, wanted: Collection[str]) -> Iterator[tuple[str, bytes]]:
        """Read the files in the order of the archive, up to the last wanted file."""
        left = set(wanted)
        for archive, member in self._walked():
            if (file := safe_path(member.name, self._path)) in left:
                left.discard(file)
                yield file, self._content(archive, member, file)
            if not left:
                return

    def _content(self, archive: tarfile.TarFile, member: tarfile.TarInfo, file: str) -> bytes:
        with _translated(self._path):
            stream = archive.extractfile(member)
            if stream is None:  # cannot happen for a regular file
                raise DataError(f"archive {self._path} holds {file}, which is not a file.")
            return read_bounded(stream, f"file {file} in {self._path}")

    def _walked(self) -> Iterator[tuple[tarfile.TarFile, tarfile.TarInfo]]:
        """Yield the regular files; raise DataError at the first link, device or pipe."""
        with _translated(self._path):
            archive = tarfile.open(self._path, "r:*")  # noqa: SIM115
        archive.fileobj = file = _Remembering(archive.fileobj)
        with archive:
            while True:
                with _translated(self._path):
                    member = archive.next()
                    if member is None and any(file.last):
                        raise tarfile.ReadError("a wrong checksum or length in a member's header")
                if member is None:
                    return
                archive.members = []  # type: ignore[attr-defined]  # tarfile would keep every member it has read
                if member.isdir():
                    continue
                self._refuse_special(member)
                yield archive, member

    def _refuse_special(self, member: tarfile.TarInfo) -> None:
        if not member.isreg():
            kind = "link" if member.issym() or member.islnk() else "device or pipe"
            raise DataError(f"archive {self._path} holds the {kind} {member.name!r}; expected plain files only.")


def safe_path(name: str, archive: Path) -> str | None:
    """Return the path of a member, None if hidden; raise DataError if it is not plain or leads out of the archive."""
    parts = PurePosixPath(name).parts
    if not parts or not _is_plain(name):
        raise DataError(f"archive {archive} holds a file named {name!r}; expected a plain path within the archive.")
    return None if any(is_hidden(part) for part in parts) else "/".join(parts)


def _is_plain(name: str) -> bool:
    """Return whether a name is printable and relative, without ``..``, and not in the form of Windows."""
    is_within = not _ABSOLUTE.match(name) and ".." not in name.split("/")
    return is_within and "\\" not in name and name.isprintable()


def _archive(path: Path) -> Source:
    with _translated(path):
        if tarfile.is_tarfile(path):  # first, as the last file of a tar archive may be a zip archive
            return TarSource(path)
        if zipfile.is_zipfile(path):
            return ZipSource(path)
    raise DataError(f"file {path} is not a zip or tar archive; expected one of {', '.join(SUFFIXES)}, undamaged.")


def _named(members: Iterator[tuple[str, T]], archive: Path) -> dict[str, T]:
    """Return the members by their checked paths, without hidden ones."""
    found: dict[str, T] = {}
    for name, value in members:
        if (file := safe_path(name, archive)) is None:
            continue
        if file in found:
            raise DataError(f"archive {archive} holds {file} twice; expected it once.")
        found[file] = value
        bounded(found, str(archive))
    return found


@contextmanager
def _translated(archive: Path) -> Iterator[None]:
    """Turn the exceptions of a broken archive into a DataError of one sentence."""
    try:
        yield
    except _BROKEN as error:
        raise DataError(
            f"archive {archive} cannot be read ({type(error).__name__}: {error}); expected an undamaged zip or tar "
            "file without a password."
        ) from error
