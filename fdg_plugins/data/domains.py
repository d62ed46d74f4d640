# SPDX-License-Identifier: Apache-2.0
"""One domain of a data set as a site finds it on disk: checked, listed in a fixed order, and split.

Opening a domain reads folder names only. ``check_images`` is the separate, slower look into the files.
"""

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from fdg_plugins.data.catalogue import ImageFolderSpec, Sample, dataset_spec
from fdg_plugins.data.splits import listed_split, seeded_split
from fdg_plugins.data.transforms import open_image
from fdg_plugins.errors import DataError, SettingsError

__all__ = ["DomainData", "Sample", "check_images", "open_domain"]

IMAGE_SUFFIXES = (".jpg", ".jpeg", ".png")


@dataclass(frozen=True)
class DomainData:
    """The images of one domain at one site; ``file`` of each sample is relative to ``folder``.

    ``test`` is what a held-out domain is judged on: all of the domain, or what its official test list
    names. ``skipped`` are the files left out because they are known to be bad.
    """

    dataset: str
    domain: str
    folder: Path
    classes: tuple[str, ...]
    train: tuple[Sample, ...]
    validation: tuple[Sample, ...]
    test: tuple[Sample, ...]
    split: str
    split_hash: str
    skipped: tuple[str, ...]


def open_domain(data_root: Path, dataset: str, domain: str, *, seed: int, max_samples: int | None = None) -> DomainData:
    """List and split the images in ``<data_root>/<data set>/<domain>/<class>/``.

    The official lists are used where they are found below the data set's folder, else a 90/10 split
    that depends on ``seed`` and on nothing but the names of the files. ``max_samples`` keeps that many
    images of the domain, chosen by ``seed`` in proportion to the classes.

    Raises SettingsError for an unknown data set or domain or too small a ``max_samples``, and DataError
    for folders that are missing, empty or unexpected, links that leave the data root, and lists that do
    not fit the images.
    """
    spec = dataset_spec(dataset)
    if domain not in spec.domains:
        raise SettingsError(
            f"domain {domain!r} is unknown in data set {spec.name}; expected one of: {', '.join(spec.domains)}."
        )
    root = _existing_folders(Path(data_root), spec, domain)
    found, skipped = _list_domain(root, spec, domain)
    split = listed_split(found, spec, domain, root, seed=seed, max_samples=max_samples)
    split = split or seeded_split(found, spec, domain, seed=seed, max_samples=max_samples)
    return DomainData(
        dataset=spec.name,
        domain=domain,
        folder=root / spec.folder,
        classes=spec.classes,
        train=split.train,
        validation=split.validation,
        test=split.test,
        split=split.name,
        split_hash=split.digest,
        skipped=skipped,
    )


def check_images(data: DomainData) -> None:
    """Open the header of every image of ``data`` once; DataError naming the first that is no image."""
    for file in dict.fromkeys(sample.file for sample in (*data.train, *data.validation, *data.test)):
        open_image(data.folder / file).close()


def _existing_folders(data_root: Path, spec: ImageFolderSpec, domain: str) -> Path:
    """Return the resolved data root after checking that the folders down to the domain's are there."""
    root = data_root.resolve()
    layout = f"<data root>/{spec.folder}/{domain}/<class>/*.jpg"
    for what, folder in (
        ("data root", root),
        (f"folder of data set {spec.name}", root / spec.folder),
        (f"folder of domain {domain}", root / spec.folder / domain),
    ):
        if not folder.is_dir():
            raise DataError(f"{what} {folder} is not a folder; expected the layout {layout}.")
        _refuse_outside(root, folder)
    return root


def _list_domain(root: Path, spec: ImageFolderSpec, domain: str) -> tuple[tuple[Sample, ...], tuple[str, ...]]:
    """Return the images of the domain and the known bad files among them, both sorted by name."""
    folder = root / spec.folder / domain
    _check_classes(root, folder, spec)
    found: list[Sample] = []
    skipped: list[str] = []
    for label, name in enumerate(spec.classes):
        listed = [Sample(f"{domain}/{name}/{file}", label) for file in _image_names(root, folder / name)]
        kept = [sample for sample in listed if sample.stem not in spec.known_bad]
        if not kept:
            suffixes = ", ".join(IMAGE_SUFFIXES)
            raise DataError(f"class folder {folder / name} holds no usable image; expected files ending in {suffixes}.")
        found += kept
        skipped += [sample.file for sample in listed if sample.stem in spec.known_bad]
    return tuple(sorted(found, key=lambda sample: sample.file)), tuple(sorted(skipped))


def _check_classes(root: Path, folder: Path, spec: ImageFolderSpec) -> None:
    """Refuse a domain whose class folders are not exactly those of the data set."""
    present = {entry.name for entry in _entries(folder) if entry.is_dir()}
    expected = f"expected exactly {', '.join(spec.classes)}"
    if missing := sorted(set(spec.classes) - present):
        raise DataError(f"folder {folder} lacks the class folder {missing[0]}; {expected}.")
    if extra := sorted(present - set(spec.classes)):
        raise DataError(f"folder {folder} has the unexpected class folder {extra[0]}; {expected}.")
    for name in spec.classes:
        _refuse_outside(root, folder / name)


def _image_names(root: Path, folder: Path) -> Iterator[str]:
    """Yield the names of the image files in a class folder, in no particular order."""
    for entry in _entries(folder):
        if not entry.name.lower().endswith(IMAGE_SUFFIXES):
            continue
        if entry.is_symlink():
            _refuse_outside(root, Path(entry.path))
        if not entry.is_file():
            raise DataError(f"{entry.path} is not a regular file; expected an image.")
        yield entry.name


def _entries(folder: Path) -> list[os.DirEntry[str]]:
    """Return what a folder holds, except hidden files and folders."""
    try:
        with os.scandir(folder) as entries:
            return [entry for entry in entries if not entry.name.startswith(".")]
    except OSError as error:
        raise DataError(f"folder {folder} cannot be listed: {error.strerror}.") from error


def _refuse_outside(root: Path, path: Path) -> None:
    """Refuse a path that, followed through links, leaves the data root."""
    if not path.resolve().is_relative_to(root):
        raise DataError(f"{path} is a link out of the data root; expected its target below {root}.")
