# SPDX-License-Identifier: Apache-2.0
"""Copy a data set into a data root, check it, and write its manifest.

A file gets its final name only when it is complete. Existing files with the same content are left alone, so an
interrupted preparation can be resumed at any point.
"""

import filecmp
import shutil
from pathlib import Path
from typing import NamedTuple

from fdg_plugins.data.decoding import MOST_PIXELS
from fdg_plugins.data.folders import LOCK, MANIFEST, refuse_outside
from fdg_plugins.data.listing import list_domain
from fdg_plugins.data.specs import KnownSpec, SegmentationSpec
from fdg_plugins.data.stand_in import is_stand_in
from fdg_plugins.errors import DataError
from fdg_plugins.lab.preparation.checks import Counts, Manifest, Verdict, count_images, judge, track, write_manifest
from fdg_plugins.lab.preparation.facts import read_pair
from fdg_plugins.lab.preparation.layouts import Item, Plan, make_plan
from fdg_plugins.lab.preparation.sources import Source, opened
from fdg_plugins.storage import link


class Prepared(NamedTuple):
    """The outcome: how many files were ``written``, and how many were there already.

    ``manifest`` is None if the counts differ from the known ones and that was not accepted.
    """

    plan: Plan
    written: int
    kept: int
    counts: Counts
    verdict: Verdict
    manifest: Manifest | None


def prepare(
    spec: KnownSpec, place: Path, data_root: Path, *, any_counts: bool = False, max_pixels: int = MOST_PIXELS
) -> Prepared:
    """Copy a data set, or the domains of it that a folder or archive has, below ``data_root``, and check it.

    After an interruption, calling it again resumes; previously prepared domains are kept. A difference from certain
    numbers leaves the data set without a manifest, unless ``any_counts``. Raises DataError for anything that prevents
    ``open_domain`` from reading the data set, and with masks for a pair that cannot be used, such as an image of more
    than ``max_pixels``; the files copied so far remain.
    """
    if is_stand_in(data_root, spec.folder):
        raise DataError(f"data root {data_root} holds the STAND-IN; expected another one for images of {spec.title}.")
    root = data_root.resolve()
    refuse_outside(root, root / spec.folder)
    target = (root / spec.folder).resolve()
    try:
        root.mkdir(parents=True, exist_ok=True)
        with opened(place, root) as source:
            plan = make_plan(spec, source, target)
            target.mkdir(exist_ok=True)
            (target / LOCK).touch()
            (target / MANIFEST).unlink(missing_ok=True)  # it no longer describes the files
            written = sum(_put(item, source, target) for item in track(plan.items, "copying"))
    except OSError as error:
        raise DataError(f"{error.filename or target} cannot be written: {error.strerror}.") from error
    counts = count_images(root, spec)
    if isinstance(spec, SegmentationSpec):
        pairs = [pair for domain in counts for pair in list_domain(root, spec, domain).images]
        for pair in track(pairs, "decoding"):
            read_pair(root, spec, pair, max_pixels)
    verdict = judge(counts, spec)
    accepted = any_counts or not verdict.is_wrong
    matched = verdict.release.name if verdict.release and not verdict.differences else None
    manifest = write_manifest(root, spec, matched) if accepted else None
    return Prepared(plan, written, len(plan.items) - written, counts, verdict, manifest)


def _put(item: Item, source: Source, target: Path) -> bool:
    """Make the file of an item below ``target``; return False if it was there with the same content."""
    # Not synced, which takes hours for a large data set: the manifest, written last, tells whether all are complete.
    place, path = target / item.target, source.files[item.source]
    refuse_outside(target, place.parent)
    place.parent.mkdir(parents=True, exist_ok=True)
    content = item.content(source)
    is_there = place.is_file() and not place.is_symlink()
    if is_there and (filecmp.cmp(place, path, shallow=False) if content is None else place.read_bytes() == content):
        return False
    part = place.with_name(f".{place.name}.part")
    part.unlink(missing_ok=True)
    try:
        if content is not None:
            part.write_bytes(content)
        elif path.is_relative_to(source.unpacked):
            link(str(path), str(part))
        else:
            shutil.copyfile(path, part)
        part.replace(place)
    finally:
        part.unlink(missing_ok=True)
    return True
