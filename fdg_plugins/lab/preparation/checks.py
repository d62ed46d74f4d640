# SPDX-License-Identifier: Apache-2.0
"""Whether a data set on disk is as it should be: counts against known numbers, and files against a manifest.

The manifest has size and SHA-256 of every file that the package reads: those in the domain folders, the lists that
divide them, a data list with its images and masks, and ``dataset.toml``; MNIST's files; CelebA's lists and images.
"""

import hashlib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Protocol, TypeVar

import pydantic

from fdg_plugins.data.attributes import list_attributed
from fdg_plugins.data.folders import MANIFEST, OF_SYSTEMS, existing_folders, list_domain, refuse_outside
from fdg_plugins.data.origins import Release, origin_of
from fdg_plugins.data.own_files import DATASET_FILE, DOMAIN, NO_RULES, FileRules, rules_of
from fdg_plugins.data.pairs import find_data_list, list_pairs, read_data_list
from fdg_plugins.data.published import MNIST_PARTS, published_domain, read_mnist_part
from fdg_plugins.data.specs import (
    AttributeSpec,
    ImageFolderSpec,
    KnownSpec,
    PublishedSpec,
    RotatedSpec,
    Sample,
    SegmentationSpec,
    files_of,
)
from fdg_plugins.data.splits import KFOLD_FOLDERS
from fdg_plugins.digests import sha256_of
from fdg_plugins.errors import DataError
from fdg_plugins.storage import read_json, write_json

Counts = Mapping[str, Mapping[str, int]]
"""Images by domain (MNIST: by part) and class; with masks, pairs by domain under ``PAIRS``."""

PAIRS = "pairs"

T = TypeVar("T")


class Track(Protocol):
    """Shows the progress of a long loop: yields the ``total`` elements of ``items`` one by one."""

    def __call__(self, items: Iterable[T], what: str, total: int) -> Iterable[T]:
        """Return ``items``; ``what`` describes the operation on them."""


def untracked(items: Iterable[T], what: str, total: int) -> Iterable[T]:
    """Return ``items`` and show nothing."""
    return items


@dataclass(frozen=True)
class Verdict:
    """The closest release, None if no numbers are known, and the differences from it, as sentences."""

    release: Release | None
    differences: tuple[str, ...]

    @property
    def is_wrong(self) -> bool:
        """Return whether the images differ from numbers that are certain."""
        return bool(self.differences) and self.release is not None and self.release.certain

    @property
    def matched(self) -> str | None:
        """The name of the release that the images match, None if there is none."""
        return self.release.name if self.release and not self.differences else None


def count_images(root: Path, spec: KnownSpec, rules: FileRules | None = None) -> Counts:
    """Count the images of the domains below the data root; a site may have only one of them.

    ``rules``: what the file of a user's own data set says; None: what a file in the data root says. Known bad files are
    counted. Raises DataError if no domain exists, and as opening a domain does.
    """
    if isinstance(spec, RotatedSpec):
        return {part: _by_label(read_mnist_part(root, part, spec.size)[1].tolist(), spec) for part in MNIST_PARTS}
    if isinstance(spec, PublishedSpec):
        return {name: _by_label(_labels(published_domain(root, spec, name)[1]), spec) for name in spec.domains}
    if isinstance(spec, AttributeSpec):
        return {name: _by_label(_labels(list_attributed(root, spec, name)[1]), spec) for name in spec.domains}
    if rules is None:
        rules = rules_of(root, None) if spec.described else NO_RULES
    present = [domain for domain in spec.domains if _is_there(root, spec, domain)]
    if not present:
        raise DataError(f"folder {root / spec.folder} holds no domain; expected one of {', '.join(spec.domains)}.")
    return {domain: _count_domain(root, spec, domain, rules) for domain in present}


def _is_there(root: Path, spec: ImageFolderSpec | SegmentationSpec, domain: str) -> bool:
    has_list = isinstance(spec, SegmentationSpec) and find_data_list(root, spec, domain) is not None
    return has_list or (root / spec.folder / domain).exists()


def _count_domain(
    root: Path, spec: ImageFolderSpec | SegmentationSpec, domain: str, rules: FileRules
) -> dict[str, int]:
    if isinstance(spec, SegmentationSpec):
        return {PAIRS: len(list_pairs(root, spec, domain, rules)[0].all)}
    samples, skipped, _ = list_domain(existing_folders(root, spec, domain), spec, domain, rules)
    known_bad = () if spec.described else skipped
    labels = [spec.classes.index(file.split("/")[-2]) for file in known_bad]
    return _by_label([*_labels(samples), *labels], spec)


def _labels(samples: Iterable[Sample]) -> list[int]:
    return [sample.label for sample in samples]


def _by_label(labels: Sequence[int], spec: KnownSpec) -> dict[str, int]:
    found = Counter(labels)
    return {name: found[label] for label, name in enumerate(spec.classes)}


def judge(counts: Counts, spec: KnownSpec) -> Verdict:
    """Compare the counts with the release of the data set that has the fewest differing domains."""
    releases = () if spec.described else origin_of(spec.name).releases
    verdicts = [Verdict(release, tuple(_differences(counts, spec, release))) for release in releases]
    return min(verdicts, key=lambda verdict: len(verdict.differences), default=Verdict(None, ()))


def _differences(counts: Counts, spec: KnownSpec, release: Release) -> Iterator[str]:
    for domain, by_class in counts.items():
        total, expected = sum(by_class.values()), release.images[domain]
        known = dict(zip(spec.classes, release.by_class.get(domain, ()), strict=False))
        wrong = [f"{name} {by_class[name]:,} of {count:,}" for name, count in known.items() if by_class[name] != count]
        if total != expected or wrong:
            where = f" ({', '.join(wrong[:3])}{', ...' if len(wrong) > 3 else ''})" if wrong else ""
            yield f"{domain} has {total:,} images, expected {expected:,}{where}"


class FileRecord(pydantic.BaseModel, frozen=True, extra="forbid", strict=True):
    """One file: its size and the hexadecimal SHA-256 of its content."""

    bytes: int
    sha256: str


class Manifest(pydantic.BaseModel, frozen=True, extra="forbid", strict=True):
    """All files of a prepared data set by their POSIX path below ``folder``, the data set's folder in its data root.

    ``release`` names the release whose counts match the images, None if there is none. ``sha256`` is the digest of all
    files: that of the lines ``<sha256>  <path>``, sorted by path, in the format of sha256sum.
    """

    format: int = 1
    folder: str
    release: str | None
    sha256: str
    files: dict[str, FileRecord]


@dataclass(frozen=True)
class Changes:
    """The differences from a manifest, as sorted paths below the data set's folder."""

    missing: tuple[str, ...]
    extra: tuple[str, ...]
    changed: tuple[str, ...]

    def __bool__(self) -> bool:
        """Return whether there is any difference."""
        return bool(self.missing or self.extra or self.changed)


def write_manifest(root: Path, spec: KnownSpec, release: str | None, *, track: Track = untracked) -> Manifest:
    """Hash every file of the data set below the resolved data root; write and return the manifest."""
    paths = sorted(_paths(root, spec))
    files = {path: _record(root, spec, path) for path in track(paths, "hashing", len(paths))}
    manifest = Manifest(folder=spec.folder, release=release, sha256=digest(files), files=files)
    write_json(root / spec.folder / MANIFEST, manifest.model_dump())
    return manifest


def read_manifest(root: Path, spec: KnownSpec) -> Manifest | None:
    """Return a data set's manifest, None if it has none; raise DataError if it is damaged or for another data set."""
    path = root / spec.folder / MANIFEST
    if not path.exists():
        return None
    try:
        manifest = Manifest.model_validate(read_json(path))
    except pydantic.ValidationError as error:
        raise DataError(f"manifest {path} is not what fdg data prepare writes: {error}") from error
    if manifest.format != 1 or manifest.folder != spec.folder or digest(manifest.files) != manifest.sha256:
        raise DataError(
            f"manifest {path} has format {manifest.format}, folder {manifest.folder!r}, or not its own digest; "
            f"expected format 1 of {spec.folder}/, as fdg data prepare wrote it."
        )
    return manifest


def find_changes(root: Path, spec: KnownSpec, manifest: Manifest, *, track: Track = untracked) -> Changes:
    """Hash the files below the resolved data root again and return the differences from the manifest."""
    present = _paths(root, spec)
    known = {path for path in manifest.files if _is_content(PurePosixPath(path))}
    common = sorted(present & manifest.files.keys())
    changed = [
        path for path in track(common, "hashing", len(common)) if _record(root, spec, path) != manifest.files[path]
    ]
    return Changes(
        missing=tuple(sorted(known - present)),
        extra=tuple(sorted(present - manifest.files.keys())),
        changed=tuple(changed),
    )


def digest(files: Mapping[str, FileRecord]) -> str:
    """Return the SHA-256 of the lines ``<sha256>  <path>``, sorted by path."""
    lines = "".join(f"{files[path].sha256}  {path}\n" for path in sorted(files))
    return hashlib.sha256(lines.encode()).hexdigest()


def _record(root: Path, spec: KnownSpec, path: str) -> FileRecord:
    place = root / spec.folder / path
    refuse_outside(root, place)
    try:
        return FileRecord(bytes=place.stat().st_size, sha256=sha256_of(place))
    except OSError as error:
        raise DataError(f"file {place} cannot be read: {error.strerror}.") from error


def _paths(root: Path, spec: KnownSpec) -> set[str]:
    """Return the existing files of the data set; a data list beside the folder of its images is none of them."""
    base = root / spec.folder
    paths = {place: place.relative_to(base) for place in _places(root, spec) if place.is_relative_to(base)}
    return {path.as_posix() for place, path in paths.items() if _is_content(path) and place.is_file()}


def _is_content(path: PurePosixPath | Path) -> bool:
    return not any(part.startswith(".") for part in path.parts) and path.name.lower() not in OF_SYSTEMS


def _places(root: Path, spec: KnownSpec) -> list[Path]:
    base = root / spec.folder
    if isinstance(spec, RotatedSpec) or (isinstance(spec, PublishedSpec) and not (base / "train").is_dir()):
        return [root / name for name in files_of(spec)]
    if isinstance(spec, AttributeSpec):
        return [*(root / name for name in spec.lists), *(base / spec.image_folder).glob("*")]
    patterns = ["*/*"]
    named: list[Path] = []
    if spec.described:
        rules = rules_of(base, None)
        patterns = ["**/*", "*/*" if rules.parts is None else "*/*/*"]  # ``**`` enters no linked folder
        lists = [] if rules.lists is None else list(filter(None, (rules.lists.train, rules.lists.validation)))
        named = [base / DATASET_FILE, *(base / path.replace(DOMAIN, name) for path in lists for name in spec.domains)]
    if isinstance(spec, SegmentationSpec):
        for domain in spec.domains:
            if (path := find_data_list(root, spec, domain)) is not None:
                pairs = read_data_list(root, path, spec, domain).all
                named += [path, *(base / file for pair in pairs for file in (pair.file, pair.mask))]
    images = [place for domain in spec.domains for pattern in patterns for place in (base / domain).glob(pattern)]
    return images + named + [place for folder in KFOLD_FOLDERS for place in (base / folder).glob("*_kfold.txt")]
