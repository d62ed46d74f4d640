# SPDX-License-Identifier: Apache-2.0
"""``fdg data verify``: the files of a data set against its manifest, and whether its images can be decoded."""

from pathlib import Path
from typing import TYPE_CHECKING

from fdg_plugins.cli.console import say
from fdg_plugins.cli.data_check import check_masks
from fdg_plugins.cli.data_tables import counts_table, show, track
from fdg_plugins.cli.image_check import check_images
from fdg_plugins.cli.own_data import introduce, most_pixels
from fdg_plugins.errors import DataError

if TYPE_CHECKING:
    from fdg_plugins.data.own_files import FileRules
    from fdg_plugins.data.specs import ImageFolderSpec, KnownSpec, SegmentationSpec
    from fdg_plugins.lab.preparation import Changes, Manifest, Verdict

SHOWN = 5


def verify_data_set(spec: "KnownSpec", root: Path, *, images: bool) -> None:
    """Compare a data set below the resolved data root with its manifest, or count its images if it has none.

    ``images``: decode every image too. Raises DataError if anything is not as expected.
    """
    from fdg_plugins.lab.preparation import count_images, judge, read_manifest

    _check_is_there(spec, root)
    manifest = read_manifest(root, spec)
    if manifest is not None:
        _compare(spec, root, manifest)
    counts = count_images(root, spec)
    verdict = judge(counts, spec)
    show(counts_table(counts, verdict))
    if manifest is None:
        _accept_counts(spec, root, verdict)
    if images:
        _check_images(spec, root, list(counts))


def find_own(place: str, data_root: Path | None) -> "tuple[ImageFolderSpec | SegmentationSpec, Path, FileRules]":
    """Return the record of a user's own data set, its data root, and what its file says; tell what it has."""
    from fdg_plugins.data.catalogue import described_spec
    from fdg_plugins.data.own_folder import own_data

    own = own_data(place, data_root if place.endswith(".toml") else None)
    introduce(own)
    spec = described_spec(own.dataset)
    return spec, own.root, own.rules


def verify_own(place: str, data_root: Path | None, *, images: bool, write: bool) -> None:
    """Compare a user's own data set with its manifest, which ``write`` makes anew; without one, count its images."""
    from fdg_plugins.data.folders import MANIFEST
    from fdg_plugins.data.specs import ImageFolderSpec, SegmentationSpec
    from fdg_plugins.lab.preparation import count_images, read_manifest, write_manifest

    spec, root, rules = find_own(place, data_root)
    manifest = None if write else read_manifest(root, spec)
    if manifest is not None:
        _compare(spec, root, manifest)
    decoded = spec if images and isinstance(spec, ImageFolderSpec) else None
    if decoded is None:  # what is decoded has a table of its own
        show(counts_table(count_images(root, spec, rules)))
    if write:
        written = write_manifest(root, spec, None, track=track)
        say(f"{root / MANIFEST}: {len(written.files):,} files, sha256 {written.sha256[:16]}")
    elif manifest is None:
        say(f"{spec.name}: no manifest, so only the images were counted; --write makes one")
    if decoded is not None:
        check_images(decoded, root, rules, None)
    elif images and isinstance(spec, SegmentationSpec):
        check_masks(spec, root, rules, None)


def _check_is_there(spec: "KnownSpec", root: Path) -> None:
    """Raise DataError if the data root holds the stand-in, or no folder of the data set."""
    from fdg_plugins.data.stand_in import is_stand_in

    if is_stand_in(root, spec.folder):
        raise DataError(f"data root {root} holds the STAND-IN, drawings; expected images of {spec.title}.")
    if not (root / spec.folder).is_dir():
        raise DataError(f"folder {root / spec.folder} is not there; fdg data prepare {spec.name} makes it.")


def _compare(spec: "KnownSpec", root: Path, manifest: "Manifest") -> None:
    """Compare the data set with its manifest; name the differences and raise DataError if there are any."""
    from fdg_plugins.lab.preparation import find_changes

    if changes := find_changes(root, spec, manifest, track=track):
        _show_changes(changes)
        raise DataError(
            f"data set {spec.name} in {root} is not as its manifest says; files missing: {len(changes.missing):,}, "
            f"extra: {len(changes.extra):,}, changed: {len(changes.changed):,}."
        )
    say(f"{spec.name}: all {len(manifest.files):,} files are as the manifest says (sha256 {manifest.sha256[:16]})")


def _accept_counts(spec: "KnownSpec", root: Path, verdict: "Verdict") -> None:
    """Say that only the images of a data set without manifest were counted; raise DataError for wrong counts."""
    counted = f"no manifest, so only the images were counted; fdg data prepare {spec.name} --from {root} writes one"
    say(f"{spec.name}: {counted}")
    if verdict.is_wrong:
        raise DataError(f"data set {spec.name} in {root}: {'; '.join(verdict.differences)}.")


def _check_images(spec: "KnownSpec", root: Path, domains: list[str]) -> None:
    """Decode every image of the domains and name all unusable ones; raise DataError, with their number, if any."""
    from fdg_plugins.data import PublishedSpec, RotatedSpec, find_damaged, open_domain

    if isinstance(spec, PublishedSpec | RotatedSpec):
        return  # read as a whole when the images were counted
    unusable = looked_at = 0
    for domain in track(domains, "decoding", len(domains)):
        data = open_domain(root, spec.name, domain, seed=0, max_pixels=most_pixels())
        damaged = find_damaged(data)
        looked_at += len({sample.file for sample in (*data.train, *data.validation, *data.test)})
        unusable += len(damaged)
        for file, reason in damaged.items():
            say(f"unusable    {file} {reason}")
    if unusable:
        raise DataError(f"of {looked_at:,} images of data set {spec.name} in {root}, {unusable:,} cannot be used.")
    say(f"{spec.name}: all {looked_at:,} images can be decoded")


def _show_changes(changes: "Changes") -> None:
    for word in ("missing", "extra", "changed"):
        files = getattr(changes, word)
        for file in files[:SHOWN]:
            say(f"{word:8}{file}")
        if len(files) > SHOWN:
            say(f"{word:8}... and {len(files) - SHOWN:,} more")
