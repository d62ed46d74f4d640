# SPDX-License-Identifier: Apache-2.0
"""What a user has downloaded, as files: a folder and the archives directly in it, or one archive.

Archives are unpacked into a temporary folder. ``tarfile`` and ``zipfile`` write nothing outside of it, and no device;
links out of it and more bytes than the disk has room for make the whole archive unacceptable.
"""

import gzip
import lzma
import os
import shutil
import struct
import tarfile
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

from fdg_plugins.data.folders import leads_outside
from fdg_plugins.errors import DataError

MAX_FILE_BYTES = 512 * 2**20
"""Limit on the bytes of a file that is read into memory; no image has as many."""

SUFFIXES = (".zip", ".tar", ".tar.gz", ".tgz", ".tar.bz2", ".tar.xz")
PACKED = ".gz"

# Exceptions of zipfile, tarfile and gzip for files that are damaged, encrypted, or compressed by an unknown method.
_BROKEN = (
    *(OSError, EOFError, RuntimeError, ValueError, struct.error, tarfile.TarError, zipfile.BadZipFile),
    *(zlib.error, lzma.LZMAError),
)


class Source(NamedTuple):
    """Named files: ``files`` maps each path (POSIX, no hidden component) to its place on this machine.

    ``unpacked``: the temporary folder, below which are the files of archives.
    """

    name: str
    files: Mapping[str, Path]
    unpacked: Path

    def read(self, file: str, *, gunzip: bool = False) -> bytes:
        """Return the content of a file; raise DataError, naming it, if it is damaged or too large."""
        try:
            with gzip.open(self.files[file]) if gunzip else self.files[file].open("rb") as stream:
                content: bytes = stream.read(MAX_FILE_BYTES + 1)
            if len(content) > MAX_FILE_BYTES:
                raise ValueError(f"it has more than {MAX_FILE_BYTES:,} bytes")
        except _BROKEN as error:
            raise DataError(f"file {file} in {self.name} cannot be read: {error}.") from error
        return content


@contextmanager
def opened(path: Path, room: Path) -> Iterator[Source]:
    """Yield the folder or archive at ``path`` as a source; archives are unpacked in the folder ``room`` meanwhile.

    Of several files of one path, the folder's is used, then that of the first archive. Raises DataError for anything
    else, for unsafe or broken archives, and for links that leave the folder.
    """
    if not path.exists():
        raise DataError(f"source {path} is not there; expected a folder or an archive ({', '.join(SUFFIXES)}).")
    archives = [path]
    if path.is_dir():
        archives = sorted(one for one in path.iterdir() if one.name.lower().endswith(SUFFIXES) and one.is_file())
    with TemporaryDirectory(dir=room, prefix=".fdg_unpacked-") as temporary:
        files = dict(_listed(path.resolve())) if path.is_dir() else {}
        for number, archive in enumerate(archives):
            place = Path(temporary) / str(number)
            place.mkdir()
            _unpack(archive, place)
            files = dict(_listed(place)) | {file: there for file, there in files.items() if there != archive.resolve()}
        yield Source(str(path), dict(sorted(files.items())), Path(temporary))


def _unpack(archive: Path, place: Path) -> None:
    free = shutil.disk_usage(place).free

    def take(size: int) -> None:
        nonlocal free
        free -= size
        if free < 0:
            raise ValueError("it holds more than the disk has room for")

    def fitting(member: tarfile.TarInfo, folder: str) -> tarfile.TarInfo:
        take(member.size)
        return tarfile.data_filter(member, folder)

    try:
        if tarfile.is_tarfile(archive):  # first, as the last file of a tar archive may be a zip archive
            with tarfile.open(archive) as tar:
                tar.extractall(place, filter=fitting)
        else:
            with zipfile.ZipFile(archive) as packed:
                take(sum(member.file_size for member in packed.infolist()))
                packed.extractall(place)
    except _BROKEN as error:
        raise DataError(f"archive {archive} cannot be read ({type(error).__name__}: {error}).") from error


def _listed(root: Path) -> Iterator[tuple[str, Path]]:
    for place, folders, names in os.walk(root):
        folders[:] = [name for name in folders if not name.startswith(".") and name != "__MACOSX"]
        for path in (Path(place) / name for name in (*folders, *names) if not name.startswith(".")):
            if path.is_symlink() and (path.is_dir() or leads_outside(root, path)):
                raise DataError(f"{path} is a link to a folder or out of the source; expected files below {root}.")
            if path.is_file():
                yield path.relative_to(root).as_posix(), path
