# SPDX-License-Identifier: Apache-2.0
"""One domain of a data set at a site: checked, listed in a fixed order, split, and divided among sites.

Opening a domain of image folders reads folder names only; ``soundness`` is the separate, slower check of the files.
Images that come in one array are read, rotated and kept in memory when the domain is opened.
"""

from collections import Counter
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from fdg_plugins.data.catalogue import ImageFolderSpec, RotatedSpec, Sample, SegmentationSpec, dataset_spec
from fdg_plugins.data.decoding import MOST_PIXELS
from fdg_plugins.data.folders import FolderSpec, existing_folders, list_domain
from fdg_plugins.data.image_files import ImageFiles
from fdg_plugins.data.pair_files import PairFiles
from fdg_plugins.data.pairs import list_pairs, split_pairs
from fdg_plugins.data.presets import preset_of
from fdg_plugins.data.rotated import rotated_domain
from fdg_plugins.data.sources import ImageSource
from fdg_plugins.data.splits import Split, listed_split, part_of, seeded_split
from fdg_plugins.errors import DataError, SettingsError
from fdg_plugins.tasks import TASKS

__all__ = ["DomainData", "Sample", "open_domain"]


@dataclass(frozen=True)
class DomainData:
    """The images of one domain at one site.

    ``images`` is their source, from which ``fdg_plugins.data.images`` makes batches. ``test`` are
    the images that evaluate a held-out domain: the whole domain, or those in its official test list. ``skipped`` are
    files left out because they are known to be bad, ``left_out`` those that the site found damaged.
    """

    dataset: str
    domain: str
    images: ImageSource
    classes: tuple[str, ...]
    train: tuple[Sample, ...]
    validation: tuple[Sample, ...]
    test: tuple[Sample, ...]
    split: str
    split_hash: str
    skipped: tuple[str, ...]
    left_out: tuple[str, ...] = ()


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
    preset: str = "",
) -> DomainData:
    """List and split the images of a domain: those in ``<data_root>/<data set>/<domain>/<class>/``, those with masks in
    ``<data_root>/<data set>/<domain>/{images,masks}/`` or a data list, or rotated digits.

    Without a data root, RotatedDigits replaces RotatedMNIST; the name of the split shows this. Image folders use the
    official lists if they exist below the data set's folder; otherwise, a 90/10 split that depends only on ``seed``
    and the names of the images.

    ``max_samples`` keeps that many images of the domain, chosen by ``seed`` in proportion to the classes. ``part``,
    the site's number (from 1) and the number of sites that share the domain, keeps the site's share of the training
    and of the validation images; the test images remain those of the whole domain. ``image_memory`` is the number of
    bytes for decoded image files, each of which is then decoded only once. Images of more than ``max_pixels`` pixels
    are rejected when they are read. ``left_out`` are image files, named as samples name them, to omit from the split.
    ``preset`` names the transforms of images with masks, by default the data set's own.

    Raises SettingsError for an unknown data set, domain or preset, too small a ``max_samples`` or an impossible
    ``part``. Raises DataError for a data root, folders or files that are missing, broken, empty or unexpected, for
    links that leave the data root, for lists that do not match the images, and for a class with too few images left.
    """
    spec = dataset_spec(dataset)
    if domain not in spec.domains:
        known = ", ".join(spec.domains)
        raise SettingsError(
            f"domain {domain!r} is unknown in data set {spec.name}; expected one of: {known}.",
            public=f"its domain is none of data set {spec.name}; expected one of: {known}.",
        )
    asked = _Asked(data_root, domain, seed, max_samples, image_memory, max_pixels, left_out)
    match spec:
        case RotatedSpec():
            opened = _turned(asked, spec)
        case ImageFolderSpec():
            opened = _in_folders(asked, spec)
        case SegmentationSpec():
            opened = _in_pairs(asked, spec, preset)
    split = opened.split if part is None else part_of(opened.split, spec, domain, part, seed=seed)
    return DomainData(
        dataset=spec.name,
        domain=domain,
        images=opened.images,
        classes=spec.classes,
        train=split.train,
        validation=split.validation,
        test=split.test,
        split=split.name,
        split_hash=split.digest,
        skipped=opened.skipped,
        left_out=opened.left_out,
    )


@dataclass(frozen=True)
class _Asked:
    """What a domain is opened with: the arguments of :func:`open_domain`."""

    data_root: Path | None
    domain: str
    seed: int
    max_samples: int | None
    image_memory: int
    max_pixels: int
    left_out: Collection[str]

    def root_of(self, spec: FolderSpec) -> Path:
        """Return the data root; raise DataError if none is given."""
        if self.data_root is None:
            raise DataError(
                f"data set {spec.name} has no data root; expected the folder that holds {spec.folder}/.", public=True
            )
        return Path(self.data_root)


class _Opened(NamedTuple):
    """The images of a domain and their split, before it is divided among sites."""

    images: ImageSource
    split: Split
    left_out: tuple[str, ...] = ()
    skipped: tuple[str, ...] = ()


def _turned(asked: _Asked, spec: RotatedSpec) -> _Opened:
    used = spec if asked.data_root is not None or spec.stand_in is None else spec.stand_in
    images, samples = rotated_domain(asked.data_root, used, asked.domain)
    return _Opened(images, seeded_split(samples, used, asked.domain, seed=asked.seed, max_samples=asked.max_samples))


def _in_folders(asked: _Asked, spec: ImageFolderSpec) -> _Opened:
    """Open image folders, with the split of the official lists, or the seeded split if there are none."""
    domain = asked.domain
    root = existing_folders(asked.root_of(spec), spec, domain)
    listed, skipped = list_domain(root, spec, domain)
    kept = tuple(sample for sample in listed if sample.file not in asked.left_out)
    _check_enough(listed, kept, spec, domain)
    left_out = _named(listed, asked.left_out)
    images = ImageFiles(root / spec.folder, asked.image_memory, asked.max_pixels)
    seed, max_samples = asked.seed, asked.max_samples
    split = listed_split(kept, spec, domain, root, seed=seed, max_samples=max_samples, left_out=left_out)
    split = split or seeded_split(kept, spec, domain, seed=seed, max_samples=max_samples)
    return _Opened(images, split, left_out, skipped)


def _in_pairs(asked: _Asked, spec: SegmentationSpec, preset: str) -> _Opened:
    """Open images with masks."""
    transforms = preset_of(preset, spec)
    root, listed = list_pairs(asked.root_of(spec), spec, asked.domain)
    split = split_pairs(listed, asked.left_out, spec, asked.domain, seed=asked.seed, max_samples=asked.max_samples)
    images = PairFiles(root / spec.folder, spec, transforms, asked.image_memory, asked.max_pixels)
    return _Opened(images, split, _named(listed.all, asked.left_out))


def _named(listed: Iterable[Sample], files: Collection[str]) -> tuple[str, ...]:
    return tuple(sample.file for sample in listed if sample.file in files)


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
