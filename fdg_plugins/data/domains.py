# SPDX-License-Identifier: Apache-2.0
"""One domain of a data set at a site: checked, listed in a fixed order, split, and divided among sites.

Opening a domain of image folders reads folder names only; ``soundness`` is the separate, slower check of the files.
Images that come in one array are read, rotated and kept in memory when the domain is opened.
"""

from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

from fdg_plugins.data.catalogue import ImageFolderSpec, RotatedSpec, Sample, dataset_spec
from fdg_plugins.data.decoding import MOST_PIXELS
from fdg_plugins.data.folders import existing_folders, list_domain
from fdg_plugins.data.image_files import ImageFiles
from fdg_plugins.data.rotated import ImageArray, rotated_domain
from fdg_plugins.data.splits import Split, listed_split, part_of, seeded_split
from fdg_plugins.errors import DataError, SettingsError
from fdg_plugins.tasks import DEFAULT_TASK, TASKS, Task

__all__ = ["DomainData", "Sample", "open_domain"]


@dataclass(frozen=True)
class DomainData:
    """The images of one domain at one site.

    ``images`` is their source: files below a folder, keyed by the ``file`` of each sample, or an array. ``test`` are
    the images that evaluate a held-out domain: the whole domain, or those in its official test list. ``skipped`` are
    files left out because they are known to be bad, ``left_out`` those that the site found damaged. ``task`` defines
    the target of a sample.
    """

    dataset: str
    domain: str
    images: ImageFiles | ImageArray
    classes: tuple[str, ...]
    train: tuple[Sample, ...]
    validation: tuple[Sample, ...]
    test: tuple[Sample, ...]
    split: str
    split_hash: str
    skipped: tuple[str, ...]
    left_out: tuple[str, ...] = ()
    task: Task = DEFAULT_TASK


def open_domain(
    data_root: Path | None,
    dataset: str,
    domain: str,
    *,
    seed: int,
    max_samples: int | None = None,
    part: tuple[int, int] | None = None,
    image_memory: int = 0,
    max_pixels: int = MOST_PIXELS,
    left_out: Collection[str] = (),
) -> DomainData:
    """List and split the images of a domain: those in ``<data_root>/<data set>/<domain>/<class>/``, or rotated digits.

    Without a data root, RotatedDigits replaces RotatedMNIST; the name of the split shows this. Image folders use the
    official lists if they exist below the data set's folder; otherwise, a 90/10 split that depends only on ``seed``
    and the names of the images.

    ``max_samples`` keeps that many images of the domain, chosen by ``seed`` in proportion to the classes. ``part``,
    the site's number (from 1) and the number of sites that share the domain, keeps the site's share of the training
    and of the validation images; the test images remain those of the whole domain. ``image_memory`` is the number of
    bytes for decoded image files, each of which is then decoded only once. Images of more than ``max_pixels`` pixels
    are rejected when they are read. ``left_out`` are image files, named as samples name them, to omit from the split.

    Raises SettingsError for an unknown data set or domain, too small a ``max_samples`` or an impossible ``part``.
    Raises DataError for a data root, folders or files that are missing, broken, empty or unexpected, for links that
    leave the data root, for lists that do not match the images, and for a class with too few images left.
    """
    spec = dataset_spec(dataset)
    if domain not in spec.domains:
        known = ", ".join(spec.domains)
        raise SettingsError(
            f"domain {domain!r} is unknown in data set {spec.name}; expected one of: {known}.",
            public=f"its domain is none of data set {spec.name}; expected one of: {known}.",
        )
    images: ImageFiles | ImageArray
    skipped: tuple[str, ...] = ()
    omitted: tuple[str, ...] = ()
    if isinstance(spec, RotatedSpec):
        images, split = _turned(data_root, spec, domain, seed, max_samples)
    else:
        found = _found(data_root, spec, domain, left_out)
        images = ImageFiles(found.root / spec.folder, image_memory, max_pixels)
        split, skipped, omitted = _split_of(found, spec, domain, seed, max_samples), found.skipped, found.left_out
    if part is not None:
        split = part_of(split, spec, domain, part, seed=seed)
    return DomainData(
        dataset=spec.name,
        domain=domain,
        images=images,
        classes=spec.classes,
        train=split.train,
        validation=split.validation,
        test=split.test,
        split=split.name,
        split_hash=split.digest,
        skipped=skipped,
        left_out=omitted,
        task=TASKS.get(spec.task),
    )


@dataclass(frozen=True)
class _Found:
    """The listing of a domain's folder: its images, without ``left_out``, and those known to be bad."""

    root: Path
    images: tuple[Sample, ...]
    left_out: tuple[str, ...]
    skipped: tuple[str, ...]


def _turned(
    data_root: Path | None, spec: RotatedSpec, domain: str, seed: int, max_samples: int | None
) -> tuple[ImageArray, Split]:
    opened = spec if data_root is not None or spec.stand_in is None else spec.stand_in
    images, samples = rotated_domain(data_root, opened, domain)
    return images, seeded_split(samples, opened, domain, seed=seed, max_samples=max_samples)


def _found(data_root: Path | None, spec: ImageFolderSpec, domain: str, left_out: Collection[str]) -> _Found:
    if data_root is None:
        raise DataError(
            f"data set {spec.name} has no data root; expected the folder that holds {spec.folder}/.", public=True
        )
    root = existing_folders(Path(data_root), spec, domain)
    listed, skipped = list_domain(root, spec, domain)
    kept = tuple(sample for sample in listed if sample.file not in left_out)
    _check_enough(listed, kept, spec, domain)
    return _Found(root, kept, tuple(sample.file for sample in listed if sample.file in left_out), skipped)


def _check_enough(listed: Collection[Sample], kept: Collection[Sample], spec: ImageFolderSpec, domain: str) -> None:
    """Reject a class with no usable image, or with one where there were two or more: each part of a split needs one."""
    task = TASKS.get(spec.task)
    before, after = (Counter(map(task.stratum, samples)) for samples in (listed, kept))
    for number, name in enumerate(task.strata(spec.classes)):
        if after[number] < min(before[number], 2):
            raise DataError(
                f"of the {before[number]:,} images of class {name!r} in domain {domain!r}, {after[number]} can be "
                "used; expected at least 2, one for training and one for validation.",
                public=True,
            )


def _split_of(found: _Found, spec: ImageFolderSpec, domain: str, seed: int, max_samples: int | None) -> Split:
    """Return the split of the official lists, or the seeded split if there are none."""
    listed = listed_split(
        found.images, spec, domain, found.root, seed=seed, max_samples=max_samples, left_out=found.left_out
    )
    return listed or seeded_split(found.images, spec, domain, seed=seed, max_samples=max_samples)
