# SPDX-License-Identifier: Apache-2.0
"""From a source to a data set below a data root: plan, copy, count, and write the manifest last."""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from fdg_plugins.data.decoding import MOST_PIXELS
from fdg_plugins.data.folders import refuse_outside
from fdg_plugins.data.mask_facts import read_pair
from fdg_plugins.data.pairs import list_pairs
from fdg_plugins.data.specs import KnownSpec, SegmentationSpec
from fdg_plugins.data.stand_in import is_stand_in
from fdg_plugins.errors import DataError
from fdg_plugins.lab.preparation.copying import Copied, Track, copy_files, only_one, untracked
from fdg_plugins.lab.preparation.counts import Counts, Verdict, count_images, judge
from fdg_plugins.lab.preparation.layouts import Plan, make_plan
from fdg_plugins.lab.preparation.manifest import Manifest, write_manifest
from fdg_plugins.lab.preparation.sources import Source


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
    root, target = _checked_places(spec, data_root)
    plan = make_plan(spec, source, target)
    with only_one(target):
        copied = copy_files(plan, source, target, link=link, track=track)
        counts = count_images(root, spec)
        _check_pairs(root, spec, counts, track, max_pixels)
        verdict = judge(counts, spec)
        manifest = None
        if any_counts or not verdict.is_wrong:
            manifest = write_manifest(root, spec, verdict.matched, track=track)
    return Prepared(plan, copied, counts, verdict, manifest)


def _check_pairs(root: Path, spec: KnownSpec, domains: Iterable[str], track: Track, max_pixels: int) -> None:
    """Decode all images with masks; raise DataError for the first pair that cannot be used."""
    if not isinstance(spec, SegmentationSpec):
        return
    pairs = [pair for domain in domains for pair in list_pairs(root, spec, domain)[0].all]
    for pair in track(pairs, "decoding", len(pairs)):
        read_pair(root, spec, pair, max_pixels)


def _checked_places(spec: KnownSpec, data_root: Path) -> tuple[Path, Path]:
    """Return the resolved data root and the data set's folder in it; raise DataError if they must not be written."""
    if is_stand_in(data_root, spec.folder):
        raise DataError(f"data root {data_root} holds the STAND-IN; expected another one for images of {spec.title}.")
    if data_root.exists() and not data_root.is_dir():
        raise DataError(f"data root {data_root} is not a folder.")
    root = data_root.resolve()
    target = root / spec.folder
    refuse_outside(root, target)
    return root, target.resolve()
