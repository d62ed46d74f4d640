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
from typing import Literal, NamedTuple, Protocol, TypeVar

import pydantic

from fdg_plugins.data.attributes import list_attributed
from fdg_plugins.data.catalogue import Release, origin_of
from fdg_plugins.data.folders import MANIFEST, OF_SYSTEMS, existing_folders, list_domain, refuse_outside
from fdg_plugins.data.own_files import DATASET_FILE, DOMAIN, NO_RULES, FileRules, rules_of
from fdg_plugins.data.pairs import find_data_list, list_pairs, read_data_list
from fdg_plugins.data.published import MNIST_PARTS, published_domain, read_mnist_part
from fdg_plugins.data.specs import (
    AttributeSpec,
    KnownSpec,
    PublishedSpec,
    RotatedSpec,
    Sample,
    SegmentationSpec,
    files_of,
)
from fdg_plugins.data.splits import KFOLD_FOLDERS
from fdg_plugins.errors import DataError
from fdg_plugins.storage import read_json, sha256_of, write_json

Counts = Mapping[str, Mapping[str, int]]
"""Images by domain (MNIST: by part) and class; with masks, pairs by domain under ``PAIRS``."""

PAIRS = "pairs"

T = TypeVar("T")


class Track(Protocol):
    """Shows the progress of a long loop: yields the ``total`` elements of ``items``; ``what`` is done with them."""

    def __call__(self, items: Iterable[T], what: str, total: int) -> Iterable[T]: ...


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
    counts: dict[str, dict[str, int]] = {}
    for domain in spec.domains:
        has_list = isinstance(spec, SegmentationSpec) and find_data_list(root, spec, domain) is not None
        if not has_list and not (root / spec.folder / domain).exists():
            continue
        if isinstance(spec, SegmentationSpec):
            counts[domain] = {PAIRS: len(list_pairs(root, spec, domain, rules).pairs.all)}
        else:
            samples, skipped, _ = list_domain(existing_folders(root, spec, domain), spec, domain, rules)
            known_bad = [spec.classes.index(file.split("/")[-2]) for file in skipped if not spec.described]
            counts[domain] = _by_label([*_labels(samples), *known_bad], spec)
    if not counts:
        raise DataError(f"folder {root / spec.folder} holds no domain; expected one of {', '.join(spec.domains)}.")
    return counts


def _labels(samples: Iterable[Sample]) -> list[int]:
    return [sample.label for sample in samples]


def _by_label(labels: Sequence[int], spec: KnownSpec) -> dict[str, int]:
    found = Counter(labels)
    return {name: found[label] for label, name in enumerate(spec.classes)}


def judge(counts: Counts, spec: KnownSpec) -> Verdict:
    """Compare the counts with the release of the data set that has the fewest differing domains."""
    verdicts = []
    for release in () if spec.described else origin_of(spec.name).releases:
        differences = []
        for domain, by_class in counts.items():
            total, expected = sum(by_class.values()), release.images[domain]
            known = dict(zip(spec.classes, release.by_class.get(domain, ()), strict=False))
            wrong = [
                f"{name} {by_class[name]:,} of {count:,}" for name, count in known.items() if by_class[name] != count
            ]
            if total != expected or wrong:
                where = f" ({', '.join(wrong[:3])}{', ...' if len(wrong) > 3 else ''})" if wrong else ""
                differences.append(f"{domain} has {total:,} images, expected {expected:,}{where}")
        verdicts.append(Verdict(release, tuple(differences)))
    return min(verdicts, key=lambda verdict: len(verdict.differences), default=Verdict(None, ()))


class FileRecord(pydantic.BaseModel, frozen=True, extra="forbid", strict=True):
    """One file: its size and the hexadecimal SHA-256 of its content."""

    bytes: int
    sha256: str


class Manifest(pydantic.BaseModel, frozen=True, extra="forbid", strict=True):
    """All files of a prepared data set by their POSIX path below ``folder``, the data set's folder in its data root.

    ``release`` names the release whose counts match the images, None if there is none. ``sha256`` is the digest of all
    files: that of the lines ``<sha256>  <path>``, sorted by path, in the format of sha256sum.
    """

    format: Literal[1] = 1
    folder: str
    release: str | None
    sha256: str
    files: dict[str, FileRecord]


class Changes(NamedTuple):
    """The differences from a manifest, as sorted paths below the data set's folder."""

    missing: tuple[str, ...]
    extra: tuple[str, ...]
    changed: tuple[str, ...]

    def __bool__(self) -> bool:
        """Return whether there is any difference."""
        return any(self[:])


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
    if manifest.folder != spec.folder or digest(manifest.files) != manifest.sha256:
        raise DataError(f"manifest {path} is of another folder, {manifest.folder!r}, or has not its own digest.")
    return manifest


def find_changes(root: Path, spec: KnownSpec, manifest: Manifest, *, track: Track = untracked) -> Changes:
    """Hash the files below the resolved data root again and return the differences from the manifest."""
    present, known = _paths(root, spec), manifest.files
    common = sorted(present & known.keys())
    changed = [path for path in track(common, "hashing", len(common)) if _record(root, spec, path) != known[path]]
    missing = {path for path in known.keys() - present if _is_content(PurePosixPath(path))}
    return Changes(tuple(sorted(missing)), tuple(sorted(present - known.keys())), tuple(changed))


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


def _places(root: Path, spec: KnownSpec) -> Iterator[Path]:
    base = root / spec.folder
    if isinstance(spec, RotatedSpec) or (isinstance(spec, PublishedSpec) and not (base / "train").is_dir()):
        yield from (root / name for name in files_of(spec))
        return
    if isinstance(spec, AttributeSpec):
        yield from (root / name for name in spec.lists)
        yield from (base / spec.image_folder).glob("*")
        return
    patterns = ["*/*"]
    if spec.described:
        rules = rules_of(base, None)
        patterns = ["**/*", "*/*" if rules.parts is None else "*/*/*"]  # ``**`` enters no linked folder
        lists = () if rules.lists is None else filter(None, (rules.lists.train, rules.lists.validation))
        yield base / DATASET_FILE
        yield from (base / path.replace(DOMAIN, name) for path in lists for name in spec.domains)
    for domain in spec.domains:
        for pattern in patterns:
            yield from (base / domain).glob(pattern)
        if isinstance(spec, SegmentationSpec) and (path := find_data_list(root, spec, domain)) is not None:
            yield path
            for pair in read_data_list(root, path, spec, domain).all:
                yield from (base / pair.file, base / pair.mask)
    for folder in KFOLD_FOLDERS:
        yield from (base / folder).glob("*_kfold.txt")
