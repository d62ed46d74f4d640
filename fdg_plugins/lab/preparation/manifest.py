# SPDX-License-Identifier: Apache-2.0
"""The manifest of a prepared data set: size and SHA-256 of every file, to detect later changes.

It covers the files that the package reads: those in the domain folders, the lists that divide them, a data list with
its images and masks, and ``dataset.toml``; the four files of MNIST; CelebA's lists and images. Hidden files, what
Windows leaves in folders of images, and any other files in the folder are not part of it.
"""

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

import pydantic

from fdg_plugins.data.data_lists import find_data_list, read_data_list
from fdg_plugins.data.folders import refuse_outside
from fdg_plugins.data.mnist import FILES as MNIST_FILES
from fdg_plugins.data.mnist import FOLDER as MNIST_FOLDER
from fdg_plugins.data.own_files import DATASET_FILE, DOMAIN, rules_of
from fdg_plugins.data.specs import AttributeSpec, KnownSpec, PublishedSpec, RotatedSpec, SegmentationSpec, files_of
from fdg_plugins.data.splits import KFOLD_FOLDERS
from fdg_plugins.data.unfinished import MANIFEST
from fdg_plugins.data.unused import OF_SYSTEMS
from fdg_plugins.digests import sha256_of
from fdg_plugins.errors import DataError
from fdg_plugins.lab.preparation.copying import Track, untracked
from fdg_plugins.storage import read_json, write_json


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
    paths = sorted(set(_paths(root, spec)))
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
        problem = error.errors()[0]
        where = ".".join(map(str, problem["loc"]))
        raise DataError(
            f"manifest {path}, {where}: {problem['msg']}; expected what fdg data prepare writes."
        ) from error
    _check_manifest(manifest, path, spec)
    return manifest


def _check_manifest(manifest: Manifest, path: Path, spec: KnownSpec) -> None:
    if manifest.format != 1:
        raise DataError(f"manifest {path} has format {manifest.format}; expected 1.")
    if manifest.folder != spec.folder:
        raise DataError(f"manifest {path} is of folder {manifest.folder}/; expected {spec.folder}/.")
    if digest(manifest.files) != manifest.sha256:
        raise DataError(f"manifest {path} does not have its own digest; expected it as fdg data prepare wrote it.")


def find_changes(root: Path, spec: KnownSpec, manifest: Manifest, *, track: Track = untracked) -> Changes:
    """Hash the files below the resolved data root again and return the differences from the manifest."""
    present = set(_paths(root, spec))
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


def _paths(root: Path, spec: KnownSpec) -> Iterator[str]:
    """Yield the existing files of the data set."""
    base = root / spec.folder
    for place in _places(root, spec):
        if not place.is_relative_to(base):  # a data list beside the folder of its images
            continue
        path = place.relative_to(base)
        if _is_content(path) and place.is_file():
            yield path.as_posix()


def _is_content(path: PurePosixPath | Path) -> bool:
    """Return whether a file is neither hidden nor one that a system leaves behind when somebody looks into a folder."""
    return not any(part.startswith(".") for part in path.parts) and path.name.lower() not in OF_SYSTEMS


def _places(root: Path, spec: KnownSpec) -> list[Path]:
    """Return where files of the data set are or may be."""
    if isinstance(spec, RotatedSpec):
        return [root / MNIST_FOLDER / name for name in MNIST_FILES]
    base = root / spec.folder
    if isinstance(spec, PublishedSpec) and not (base / "train").is_dir():
        return [root / name for name in files_of(spec)]
    if isinstance(spec, AttributeSpec):
        return [*(root / name for name in spec.lists), *(base / spec.image_folder).glob("*")]
    patterns = _patterns_of_own(base) if spec.described else ("*/*",)
    images = [place for domain in spec.domains for pattern in patterns for place in (base / domain).glob(pattern)]
    listed = [place for folder in KFOLD_FOLDERS for place in (base / folder).glob("*_kfold.txt")]
    return images + listed + (_own_files(base, spec) if spec.described else []) + _listed_pairs(root, spec)


def _patterns_of_own(base: Path) -> tuple[str, str]:
    """Return what finds the images of a user's own domain, which may have parts: ``**`` enters no linked folder."""
    return "**/*", "*/*" if rules_of(base, None).parts is None else "*/*/*"


def _own_files(base: Path, spec: KnownSpec) -> list[Path]:
    """Return the files with which a user says how a data set of their own is divided."""
    lists = rules_of(base, None).lists
    patterns = [] if lists is None else list(filter(None, (lists.train, lists.validation)))
    named = [base / pattern.replace(DOMAIN, domain) for pattern in patterns for domain in spec.domains]
    return [base / DATASET_FILE, *named]


def _listed_pairs(root: Path, spec: KnownSpec) -> list[Path]:
    """Return the data lists of images with masks, and what they name, which may be outside the folders of domains."""
    if not isinstance(spec, SegmentationSpec):
        return []
    found = {domain: find_data_list(root, spec, domain) for domain in spec.domains}
    lists = {domain: path for domain, path in found.items() if path is not None}
    parts = [part for domain, path in lists.items() for part in read_data_list(root, path, spec, domain)]
    files = [file for part in parts for pair in part for file in (pair.file, pair.mask)]
    return [*lists.values(), *(root / spec.folder / file for file in files)]
