# SPDX-License-Identifier: Apache-2.0
"""Copy the planned files to their targets; an interrupted copy can be resumed at any point.

A file gets its final name only when it is complete. Existing files with the same content are left alone.
"""

import gzip
import io
import os
import shutil
import zlib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, TypeVar

from fdg_plugins.data.folders import refuse_outside
from fdg_plugins.data.unfinished import LOCK, MANIFEST
from fdg_plugins.errors import DataError
from fdg_plugins.lab.preparation.items import Item
from fdg_plugins.lab.preparation.layouts import Plan
from fdg_plugins.lab.preparation.sources import Source, read_bounded
from fdg_plugins.storage import locked

T = TypeVar("T")


class Track(Protocol):
    """Shows the progress of a long loop: yields the ``total`` elements of ``items`` one by one."""

    def __call__(self, items: Iterable[T], what: str, total: int) -> Iterable[T]:
        """Return ``items``; ``what`` describes the operation on them."""


def untracked(items: Iterable[T], what: str, total: int) -> Iterable[T]:
    """Return ``items`` and show nothing."""
    return items


@dataclass(frozen=True)
class Copied:
    """The number of files written (or linked), and of files that already existed with the same content."""

    written: int
    kept: int


def copy_files(plan: Plan, source: Source, target: Path, *, link: bool = False, track: Track = untracked) -> Copied:
    """Copy every item of ``plan`` below ``target``, the resolved folder of the data set; return the counts.

    If ``link`` is true and the file system allows it, hard links to the source's own files save the space. The manifest
    is removed before the first file is written, since it no longer describes the files. Raises DataError if the disk is
    too small, a file cannot be read or written, or a path leads out of ``target``.
    """
    _make_folders(plan, target)
    others = [item for item in plan.items if not _is_same_file(item, source, target)]
    _check_space([item for item in others if not (link and _may_link(item, source, target))], source, target)
    (target / MANIFEST).unlink(missing_ok=True)
    left: dict[str, list[Item]] = {}
    for item in others:
        if not (link and _linked(item, source, target)):
            left.setdefault(item.source, []).append(item)
    linked = len(others) - sum(map(len, left.values()))
    copied = Counter(_copied(left, source, target, track))
    return Copied(linked + copied[True], len(plan.items) - len(others) + copied[False])


def _copied(left: Mapping[str, list[Item]], source: Source, target: Path, track: Track) -> Iterator[bool]:
    """Copy the items, keyed by their file in the source; yield for each whether it was written rather than kept."""
    for file, content in track(source.read(left.keys()), "copying", len(left)):
        for item in left[file]:
            yield _replace(target / item.target, _content(item, content, source))


@contextmanager
def only_one(folder: Path) -> Iterator[None]:
    """Keep other processes from preparing the same folder; raise DataError if one is already preparing it."""
    with ExitStack() as stack:
        try:
            folder.mkdir(parents=True, exist_ok=True)
            stack.enter_context(locked(folder / LOCK, wait=False))
        except BlockingIOError as error:
            raise DataError(f"folder {folder} is being prepared by another process; expected one at a time.") from error
        except OSError as error:
            raise DataError(f"folder {folder} cannot be written: {error.strerror}.") from error
        yield


def _make_folders(plan: Plan, target: Path) -> None:
    for folder in sorted({(target / item.target).parent for item in plan.items}):
        refuse_outside(target, folder)
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise DataError(f"folder {folder} cannot be made: {error.strerror}.") from error


def _is_same_file(item: Item, source: Source, target: Path) -> bool:
    """Return whether the source's file is the target itself, or a hard link to it."""
    path = source.path_of(item.source)
    place = target / item.target
    return path is not None and place.exists() and path.samefile(place) and item.is_copied


def _may_link(item: Item, source: Source, target: Path) -> bool:
    """Return whether the source's file is on the target's file system, where a link takes no space."""
    path = source.path_of(item.source)
    return path is not None and item.is_copied and path.exists() and path.stat().st_dev == target.stat().st_dev


def _linked(item: Item, source: Source, target: Path) -> bool:
    """Make the target a hard link to the source's file; return False if that is impossible."""
    path = source.path_of(item.source)
    if path is None or not item.is_copied:
        return False
    part = _part(target / item.target)
    try:
        part.unlink(missing_ok=True)
        os.link(path, part)
        part.replace(target / item.target)
    except OSError:  # another file system, or one without links: copy the file instead
        part.unlink(missing_ok=True)
        return False
    return True


def _replace(place: Path, content: bytes) -> bool:
    """Write the content to ``place``; return False if it already had that content.

    Files are not synced one by one, which takes hours for a large data set: the manifest, written last, tells whether
    they are complete.
    """
    part = _part(place)
    try:
        if _has(place, content):
            return False
        part.write_bytes(content)
        part.replace(place)
    except OSError as error:
        raise DataError(f"file {place} cannot be written: {error.strerror}.") from error
    finally:
        part.unlink(missing_ok=True)
    return True


def _has(place: Path, content: bytes) -> bool:
    is_plain = place.is_file() and not place.is_symlink()
    return is_plain and place.stat().st_size == len(content) and place.read_bytes() == content


def _has_size(place: Path, size: int) -> bool:
    return place.is_file() and place.stat().st_size == size


def _part(place: Path) -> Path:
    """Return the hidden name of an incomplete file."""
    return place.with_name(f".{place.name}.part")


def _content(item: Item, content: bytes, source: Source) -> bytes:
    """Return the content of the target of ``item``."""
    if item.packed:
        content = _unpacked(content, item.source, source)
    return item.convert(content, f"{item.source} in {source.name}") if item.convert else content


def _unpacked(content: bytes, file: str, source: Source) -> bytes:
    try:
        with gzip.GzipFile(fileobj=io.BytesIO(content)) as stream:
            return read_bounded(stream, f"file {file} in {source.name}, unpacked,")
    except (OSError, EOFError, zlib.error) as error:
        raise DataError(f"file {file} in {source.name} is not an undamaged gzip file: {error}.") from error


def _check_space(items: Iterable[Item], source: Source, target: Path) -> None:
    """Raise DataError, before copying anything, if the files exceed the free space."""
    sizes = ((target / item.target, source.files[item.source]) for item in items)
    needed = sum(size for place, size in sizes if not _has_size(place, size))
    free = shutil.disk_usage(target).free
    if needed > free:
        raise DataError(
            f"folder {target} has {free / 2**30:.1f} GiB left on its disk; expected at least {needed / 2**30:.1f} GiB "
            f"for the files of {source.name}."
        )
