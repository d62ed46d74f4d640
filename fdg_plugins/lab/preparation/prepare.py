# SPDX-License-Identifier: Apache-2.0
"""From a source to a data set below a data root: plan, copy, count, and write the manifest last.

A file gets its final name only when it is complete. Existing files with the same content are left alone, so an
interrupted preparation can be resumed at any point.
"""

import gzip
import io
import os
import shutil
import zlib
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from fdg_plugins.data.decoding import MOST_PIXELS
from fdg_plugins.data.facts import read_pair
from fdg_plugins.data.folders import LOCK, MANIFEST, refuse_outside
from fdg_plugins.data.pairs import list_pairs
from fdg_plugins.data.specs import KnownSpec, SegmentationSpec
from fdg_plugins.data.stand_in import is_stand_in
from fdg_plugins.errors import DataError
from fdg_plugins.lab.preparation.checks import (
    Counts,
    Manifest,
    Track,
    Verdict,
    count_images,
    judge,
    untracked,
    write_manifest,
)
from fdg_plugins.lab.preparation.layouts import Plan, make_plan
from fdg_plugins.lab.preparation.mask_layouts import Item
from fdg_plugins.lab.preparation.sources import Source, read_bounded
from fdg_plugins.storage import locked


@dataclass(frozen=True)
class Copied:
    """The number of files written (or linked), and of files that already existed with the same content."""

    written: int
    kept: int


@dataclass(frozen=True)
class Prepared:
    """The outcome; ``manifest`` is None if the counts differ from the known ones and that was not accepted."""

    plan: Plan
    copied: Copied
    counts: Counts
    verdict: Verdict
    manifest: Manifest | None


def prepare(
    spec: KnownSpec,
    source: Source,
    data_root: Path,
    *,
    link: bool = False,
    any_counts: bool = False,
    track: Track = untracked,
    max_pixels: int = MOST_PIXELS,
) -> Prepared:
    """Copy a data set, or the domains of it that the source has, below ``data_root``, and check it.

    After an interruption, calling it again resumes; previously prepared domains are kept. A difference from certain
    numbers leaves the data set without a manifest, unless ``any_counts``. Raises DataError for anything that prevents
    ``open_domain`` from reading the data set, and with masks for a pair that cannot be used, such as an image of more
    than ``max_pixels``; the files copied so far remain.
    """
    if is_stand_in(data_root, spec.folder):
        raise DataError(f"data root {data_root} holds the STAND-IN; expected another one for images of {spec.title}.")
    if data_root.exists() and not data_root.is_dir():
        raise DataError(f"data root {data_root} is not a folder.")
    root = data_root.resolve()
    refuse_outside(root, root / spec.folder)
    target = (root / spec.folder).resolve()
    plan = make_plan(spec, source, target)
    with _only_one(target):
        copied = copy_files(plan, source, target, link=link, track=track)
        counts = count_images(root, spec)
        if isinstance(spec, SegmentationSpec):
            pairs = [pair for domain in counts for pair in list_pairs(root, spec, domain)[0].all]
            for pair in track(pairs, "decoding", len(pairs)):
                read_pair(root, spec, pair, max_pixels)
        verdict = judge(counts, spec)
        accepted = any_counts or not verdict.is_wrong
        manifest = write_manifest(root, spec, verdict.matched, track=track) if accepted else None
    return Prepared(plan, copied, counts, verdict, manifest)


@contextmanager
def _only_one(folder: Path) -> Iterator[None]:
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


def copy_files(plan: Plan, source: Source, target: Path, *, link: bool = False, track: Track = untracked) -> Copied:
    """Copy every item of ``plan`` below ``target``, the resolved folder of the data set; return the counts.

    If ``link`` is true and the file system allows it, hard links to the source's own files save the space. The manifest
    is removed before the first file is written, since it no longer describes the files. Raises DataError if the disk is
    too small, a file cannot be read or written, or a path leads out of ``target``.
    """
    for folder in sorted({(target / item.target).parent for item in plan.items}):
        refuse_outside(target, folder)
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise DataError(f"folder {folder} cannot be made: {error.strerror}.") from error
    others = [item for item in plan.items if not _is_same_file(item, source, target)]
    if not link:
        _check_space(others, source, target)
    (target / MANIFEST).unlink(missing_ok=True)
    left: dict[str, list[Item]] = {}
    for item in others:
        if not (link and _linked(item, source, target)):
            left.setdefault(item.source, []).append(item)
    written = len(others) - sum(map(len, left.values()))
    kept = len(plan.items) - len(others)
    for file, content in track(source.read(left.keys()), "copying", len(left)):
        for item in left[file]:
            is_new = _replace(target / item.target, _content(item, content, source))
            written, kept = written + is_new, kept + (not is_new)
    return Copied(written, kept)


def _check_space(items: list[Item], source: Source, target: Path) -> None:
    """Raise DataError, before copying anything, if the files exceed the free space."""
    needed = 0
    for item in items:
        place, size = target / item.target, source.files[item.source]
        needed += 0 if place.is_file() and place.stat().st_size == size else size
    free = shutil.disk_usage(target).free
    if needed > free:
        raise DataError(
            f"folder {target} has {free / 2**30:.1f} GiB left on its disk; expected at least {needed / 2**30:.1f} GiB "
            f"for the files of {source.name}."
        )


def _is_same_file(item: Item, source: Source, target: Path) -> bool:
    path = source.path_of(item.source)
    place = target / item.target
    return path is not None and place.exists() and path.samefile(place) and item.is_copied


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
        is_plain = place.is_file() and not place.is_symlink()
        if is_plain and place.stat().st_size == len(content) and place.read_bytes() == content:
            return False
        part.write_bytes(content)
        part.replace(place)
    except OSError as error:
        raise DataError(f"file {place} cannot be written: {error.strerror}.") from error
    finally:
        part.unlink(missing_ok=True)
    return True


def _part(place: Path) -> Path:
    return place.with_name(f".{place.name}.part")


def _content(item: Item, content: bytes, source: Source) -> bytes:
    """Return the content of the target of ``item``."""
    file = f"{item.source} in {source.name}"
    if item.packed:
        try:
            with gzip.GzipFile(fileobj=io.BytesIO(content)) as stream:
                content = read_bounded(stream, f"file {file}, unpacked,")
        except (OSError, EOFError, zlib.error) as error:
            raise DataError(f"file {file} is not an undamaged gzip file: {error}.") from error
    return item.convert(content, file) if item.convert else content
