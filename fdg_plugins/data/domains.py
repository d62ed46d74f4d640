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

from fdg_plugins.data.attributes import AttributeFiles, list_attributed
from fdg_plugins.data.catalogue import dataset_spec
from fdg_plugins.data.decoding import MOST_PIXELS
from fdg_plugins.data.folders import FolderSpec, Unused, existing_folders, existing_root, list_domain
from fdg_plugins.data.image_files import ImageFiles
from fdg_plugins.data.own_files import NO_RULES, FileRules, rules_of
from fdg_plugins.data.pair_files import PairFiles
from fdg_plugins.data.pairs import list_pairs, split_pairs
from fdg_plugins.data.presets import preset_of
from fdg_plugins.data.published import published_domain, rotated_domain
from fdg_plugins.data.skew import EQUAL, EQUAL_PARTS, Partition, Shares, site_splits
from fdg_plugins.data.sources import ImageSource
from fdg_plugins.data.specs import (
    AttributeSpec,
    ImageFolderSpec,
    KnownSpec,
    PublishedSpec,
    RotatedSpec,
    Sample,
    SegmentationSpec,
)
from fdg_plugins.data.splits import Split, check_part, folder_split, part_of, seeded_split
from fdg_plugins.errors import DataError, SettingsError
from fdg_plugins.naming import perhaps
from fdg_plugins.plugins.own_dataset import DatasetRef
from fdg_plugins.tasks import TASKS


@dataclass(frozen=True)
class DomainData:
    """The images of one domain at one site.

    ``images`` is their source, from which ``fdg_plugins.data.images`` makes batches. ``test`` are
    the images that evaluate a held-out domain: the whole domain, or those in its official test list. ``skipped`` are
    files left out because they are known to be bad, ``left_out`` those that the site found damaged. ``unused`` says,
    in phrases, what else lies in the folders of the domain.
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
    unused: tuple[str, ...] = ()


def open_domain(
    data_root: Path | None,
    dataset: DatasetRef,
    domain: str,
    *,
    seed: int,
    max_samples: int | None = None,
    part: tuple[int, int] | None = None,
    partition: Partition = EQUAL_PARTS,
    image_memory: int = 0,
    max_pixels: int = MOST_PIXELS,
    left_out: Collection[str] = (),
    preset: str = "",
    shared: "SharedDomains | None" = None,
    dataset_file: Path | None = None,
) -> DomainData:
    """List and split the images of a domain below ``data_root``, in the layout of the data set's record.

    Without a data root, RotatedDigits replaces RotatedMNIST; the name of the split shows this. Image folders use the
    official lists if they exist below the data set's folder; otherwise, a 90/10 split that depends only on ``seed``
    and the names of the images.

    Args:
        max_samples: how many images of the domain to keep, chosen by ``seed`` in proportion to the classes.
        part: the site's number (from 1) and the number of sites that share the domain, to keep the site's share of the
            training and of the validation images; the test images remain those of the whole domain.
        partition: how they share it; one that is not equal divides the images by their classes
            (:mod:`fdg_plugins.data.skew`), and the test images are the site's own.
        image_memory: bytes for decoded image files, each of which is then decoded only once.
        max_pixels: of the largest image that is read.
        left_out: image files, named as samples name them, to omit from the split.
        preset: the transforms of images with masks, by default the data set's own.
        shared: the domains that other sites of this process have opened: they are not listed again, and sites of the
            same domain share the decoded images.
        dataset_file: what says more about the files of a described data set, by default ``dataset.toml`` in the root.

    Raises SettingsError for an unknown data set, domain or preset, too small a ``max_samples`` or an impossible
    ``part``. Raises DataError for a data root, folders or files that are missing, broken, empty or unexpected, for
    links that leave the data root, for lists that do not match the images, and for a class with too few images left.
    """
    spec = dataset_spec(dataset)
    if domain not in spec.domains:
        expected = f"expected one of: {', '.join(spec.domains)}"
        raise SettingsError(
            f"domain {domain!r} is unknown in data set {spec.name}; {expected}{perhaps(domain, spec.domains)}",
            public=f"its domain is none of data set {spec.name}; {expected}.",
        )
    files = frozenset(left_out)
    asked = _Asked(data_root, domain, seed, max_samples, image_memory, max_pixels, files, dataset_file)
    shared = shared or SharedDomains()
    opened = shared.open(asked, spec, preset)
    split = opened.split if part is None else shared.part(opened, spec, asked, part, partition)
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
        unused=opened.unused,
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
    left_out: frozenset[str]
    dataset_file: Path | None

    def rules_of(self, spec: FolderSpec, root: Path) -> FileRules:
        """Return what the site's own file says about the images below the resolved data root."""
        return rules_of(root, self.dataset_file) if spec.described else NO_RULES

    def root_of(self, spec: KnownSpec) -> Path:
        """Return the data root; raise DataError if none is given."""
        if self.data_root is None:
            holds = f"{spec.folder}/" if spec.folder else "its domains"
            raise DataError(
                f"data set {spec.name} has no data root; expected the folder that holds {holds}.", public=True
            )
        return Path(self.data_root)


class _Opened(NamedTuple):
    """The images of a domain and their split, before it is divided among sites."""

    images: ImageSource
    split: Split
    left_out: tuple[str, ...] = ()
    skipped: tuple[str, ...] = ()
    unused: tuple[str, ...] = ()


class SharedDomains:
    """The domains that have been opened in this process, each before it is divided among sites."""

    def __init__(self) -> None:
        self._opened: dict[tuple[_Asked, str, str], _Opened] = {}
        self._sound: dict[int, set[str]] = {}
        self._shares: dict[tuple[int, int, Partition], Shares] = {}

    def open(self, asked: _Asked, spec: KnownSpec, preset: str) -> _Opened:
        """Return a domain, listed and split at the first call."""
        key = (asked, spec.name, preset)
        if key not in self._opened:
            self._opened[key] = _open(asked, spec, preset)
        return self._opened[key]

    def part(
        self, opened: _Opened, spec: KnownSpec, asked: _Asked, part: tuple[int, int], partition: Partition
    ) -> Split:
        """Return a site's share of an opened domain; the partition is computed once for all sites."""
        if partition.kind == EQUAL:
            return part_of(opened.split, spec, asked.domain, part, seed=asked.seed)
        check_part(asked.domain, part)
        key = (id(opened.split), part[1], partition)
        if key not in self._shares:
            self._shares[key] = site_splits(opened.split, spec, asked.domain, part[1], partition, asked.seed)
        return self._shares[key].split_of(part[0])

    def sound_images(self, images: ImageSource) -> set[str]:
        """Return the files of an opened domain that are known to be sound; the caller may add some."""
        return self._sound.setdefault(id(images), set())


def _open(asked: _Asked, spec: KnownSpec, preset: str) -> _Opened:
    images: ImageSource
    match spec:
        case RotatedSpec():
            used = spec if asked.data_root is not None or spec.stand_in is None else spec.stand_in
            root = None if used.source == "digits" else asked.root_of(used)
            images, samples = rotated_domain(root, used, asked.domain)
            return _Opened(images, _seeded(samples, used, asked))
        case PublishedSpec():
            images, samples = published_domain(asked.data_root, spec, asked.domain, asked.max_pixels)
            return _Opened(images, _seeded(samples, spec, asked))
        case AttributeSpec():
            root, listed = list_attributed(asked.root_of(spec), spec, asked.domain)
            kept = _kept(listed, spec, asked)
            images = AttributeFiles(root / spec.folder, asked.image_memory, asked.max_pixels)
            return _Opened(images, _seeded(kept, spec, asked), _left_out(listed, asked))
        case ImageFolderSpec():
            return _in_folders(asked, spec)
        case SegmentationSpec():
            return _in_pairs(asked, spec, preset)


def _seeded(samples: tuple[Sample, ...], spec: KnownSpec, asked: _Asked) -> Split:
    return seeded_split(samples, spec, asked.domain, seed=asked.seed, max_samples=asked.max_samples)


def _in_folders(asked: _Asked, spec: ImageFolderSpec) -> _Opened:
    domain = asked.domain
    root = existing_folders(asked.root_of(spec), spec, domain)
    rules = asked.rules_of(spec, root)
    listed, skipped, unused = list_domain(root, spec, domain, rules)
    kept, left_out = _kept(listed, spec, asked), _left_out(listed, asked)
    images = ImageFiles(root / spec.folder, asked.image_memory, asked.max_pixels)
    seed, max_samples, absent = asked.seed, asked.max_samples, (*left_out, *skipped)
    split = folder_split(kept, spec, domain, root, rules, seed=seed, max_samples=max_samples, left_out=absent)
    return _Opened(images, split, left_out, skipped, tuple(unused.phrases()))


def _in_pairs(asked: _Asked, spec: SegmentationSpec, preset: str) -> _Opened:
    transforms = preset_of(preset, spec)
    root = existing_root(asked.root_of(spec), spec)
    unused = Unused()
    listed, skipped = list_pairs(root, spec, asked.domain, asked.rules_of(spec, root), unused)
    split = split_pairs(listed, asked.left_out, spec, asked.domain, seed=asked.seed, max_samples=asked.max_samples)
    images = PairFiles(root / spec.folder, spec, transforms, asked.image_memory, asked.max_pixels)
    return _Opened(images, split, _left_out(listed.all, asked), skipped, tuple(unused.phrases()))


def _left_out(listed: Iterable[Sample], asked: _Asked) -> tuple[str, ...]:
    return tuple(sample.file for sample in listed if sample.file in asked.left_out)


def _kept(listed: Collection[Sample], spec: KnownSpec, asked: _Asked) -> tuple[Sample, ...]:
    """Return the images that are not left out.

    Raises DataError for a class with none left, or with one where there were two: each part of a split needs one.
    """
    kept = tuple(sample for sample in listed if sample.file not in asked.left_out)
    task = TASKS.get(spec.task)
    before, after = (Counter(map(task.stratum, samples)) for samples in (listed, kept))
    for number, name in enumerate(task.strata(spec.classes)):
        if after[number] < min(before[number], 2):
            raise DataError(
                f"of the {before[number]:,} images of class {name!r} in domain {asked.domain!r}, {after[number]} can "
                "be used; expected at least 2, one for training and one for validation.",
                public=True,
            )
    return kept
