# SPDX-License-Identifier: Apache-2.0
"""Whether a data set on disk is as it should be: counts against known numbers, and files against a manifest.

The manifest has size and SHA-256 of every file in the data set's folder, but for hidden ones.
"""

import hashlib
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from typing import Literal, NamedTuple, TypeVar

from rich.console import Console
from rich.markup import escape
from rich.progress import track as track_with_bar

from fdg_plugins.data.catalogue import Release, origin_of
from fdg_plugins.data.folders import MANIFEST, OF_SYSTEMS, refuse_outside
from fdg_plugins.data.listing import list_domain
from fdg_plugins.data.own_files import NO_RULES, DatasetFile
from fdg_plugins.data.pairs import find_data_list
from fdg_plugins.data.published import MNIST_PARTS, read_arrays, read_part
from fdg_plugins.data.specs import AttributeSpec, KnownSpec, Listing, PublishedSpec, RotatedSpec, SegmentationSpec
from fdg_plugins.errors import DataError
from fdg_plugins.messages import Checked
from fdg_plugins.storage import read_json, sha256_of, write_json

Counts = Mapping[str, Mapping[str, int]]
"""Images by domain (MNIST: by part) and class; with masks, by domain under ``pairs``."""

T = TypeVar("T")


def track(items: Collection[T], what: str) -> Iterable[T]:
    """Yield ``items`` with a progress bar on stderr, in a terminal only, that disappears at the end."""
    console = Console(stderr=True)
    return track_with_bar(items, escape(what), console=console, transient=True, disable=not console.is_terminal)


# --- counts ---


class Verdict(NamedTuple):
    """The closest release, None if no numbers are known, and the differences from it, as sentences."""

    release: Release | None
    differences: tuple[str, ...]

    @property
    def is_wrong(self) -> bool:
        """Return whether the images differ from numbers that are certain."""
        return bool(self.differences) and self.release is not None and self.release.certain


def count_images(root: Path, spec: KnownSpec, rules: DatasetFile = NO_RULES) -> Counts:
    """Count the images of the domains below the data root; a site may have only one of them.

    ``rules``: what the file of a user's own data set says. Known bad files are counted. Raises DataError if no domain
    exists, and as opening a domain does.
    """
    if isinstance(spec, RotatedSpec):
        return {part: _by_label(read_part(root, spec, part)[1].tolist(), spec) for part in MNIST_PARTS}
    listings = {domain: listing_of(root, spec, domain, rules) for domain in spec.domains}
    found = {domain: listing for domain, listing in listings.items() if listing is not None}
    if not found:
        raise DataError(f"folder {root / spec.folder} holds no domain; expected one of {', '.join(spec.domains)}.")
    if isinstance(spec, SegmentationSpec):
        return {domain: {"pairs": len(listing.images)} for domain, listing in found.items()}
    counts = {}
    for domain, listing in found.items():
        known_bad = [spec.classes.index(file.split("/")[-2]) for file in listing.skipped if not spec.described]
        counts[domain] = _by_label([*(sample.label for sample in listing.images), *known_bad], spec)
    return counts


def listing_of(root: Path, spec: KnownSpec, domain: str, rules: DatasetFile = NO_RULES) -> Listing | None:
    """Return what a domain holds; None if a domain of folders is not there."""
    if isinstance(spec, PublishedSpec):
        return read_arrays(root, spec, domain)[1]
    is_there = isinstance(spec, AttributeSpec) or (root / spec.folder / domain).exists()
    if isinstance(spec, SegmentationSpec):
        is_there = is_there or find_data_list(root, spec, domain) is not None
    return list_domain(root, spec, domain, rules) if is_there else None


def _by_label(labels: Iterable[int], spec: KnownSpec) -> dict[str, int]:
    found = Counter(labels)
    return {name: found[label] for label, name in enumerate(spec.classes)}


def judge(counts: Counts, spec: KnownSpec) -> Verdict:
    """Compare the counts with the release of the data set that has the fewest differing domains."""
    releases = () if spec.described else origin_of(spec.name).releases
    verdicts = [Verdict(release, tuple(_differences(counts, spec, release))) for release in releases]
    return min(verdicts, key=lambda verdict: len(verdict.differences), default=Verdict(None, ()))


def _differences(counts: Counts, spec: KnownSpec, release: Release) -> Iterable[str]:
    for domain, by_class in counts.items():
        total, expected = sum(by_class.values()), release.images[domain]
        known = dict(zip(spec.classes, release.by_class.get(domain, ()), strict=False))
        wrong = [f"{name} {by_class[name]:,} of {count:,}" for name, count in known.items() if by_class[name] != count]
        if total != expected or wrong:
            where = f" ({', '.join(wrong[:3])}{', ...' if len(wrong) > 3 else ''})" if wrong else ""
            yield f"{domain} has {total:,} images, expected {expected:,}{where}"


# --- manifests ---


class FileRecord(Checked, strict=True):
    """One file: its size and the hexadecimal SHA-256 of its content."""

    bytes: int
    sha256: str


class Manifest(Checked, strict=True):
    """All files of a prepared data set by their POSIX path below ``folder``, the data set's folder in its data root.

    ``release`` names the release whose counts match the images, None if there is none. ``sha256`` is the digest of all
    files: that of the lines ``<sha256>  <path>``, sorted by path, in the format of sha256sum.
    """

    format: Literal[1] = 1
    folder: str
    release: str | None
    sha256: str
    files: dict[str, FileRecord]


def write_manifest(root: Path, spec: KnownSpec, release: str | None) -> Manifest:
    """Hash every file of the data set below the resolved data root; write and return the manifest."""
    files = _records(root, root / spec.folder, sorted(_paths(root / spec.folder)))
    manifest = Manifest(folder=spec.folder, release=release, sha256=_digest(files), files=files)
    write_json(root / spec.folder / MANIFEST, manifest.model_dump())
    return manifest


def read_manifest(root: Path, spec: KnownSpec) -> Manifest | None:
    """Return a data set's manifest, None if it has none; raise DataError if it is damaged or for another data set."""
    path = root / spec.folder / MANIFEST
    if not path.exists():
        return None
    manifest = Manifest.read(read_json(path), f"manifest {path} is not what fdg data prepare writes", DataError)
    if manifest.folder != spec.folder or _digest(manifest.files) != manifest.sha256:
        raise DataError(f"manifest {path} is of another folder, {manifest.folder!r}, or has not its own digest.")
    return manifest


def find_changes(root: Path, spec: KnownSpec, manifest: Manifest) -> dict[str, list[str]]:
    """Hash the files below the resolved data root again; return the paths that are missing, extra and changed."""
    present, known = _paths(root / spec.folder), manifest.files
    found = _records(root, root / spec.folder, sorted(present & known.keys()))
    changed = [path for path, record in found.items() if record != known[path]]
    return {"missing": sorted(known.keys() - present), "extra": sorted(present - known.keys()), "changed": changed}


def _digest(files: Mapping[str, FileRecord]) -> str:
    lines = "".join(f"{files[path].sha256}  {path}\n" for path in sorted(files))
    return hashlib.sha256(lines.encode()).hexdigest()


def _records(root: Path, base: Path, paths: Collection[str]) -> dict[str, FileRecord]:
    found = {}
    for path in track(paths, "hashing"):
        refuse_outside(root, base / path)
        found[path] = FileRecord(bytes=(base / path).stat().st_size, sha256=sha256_of(base / path))
    return found


def _paths(base: Path) -> set[str]:
    paths = {path.relative_to(base) for path in base.rglob("*") if path.is_file() and path.name != MANIFEST}
    seen = (path for path in paths if not any(part.startswith(".") for part in path.parts))
    return {path.as_posix() for path in seen if path.name.lower() not in OF_SYSTEMS}
