# SPDX-License-Identifier: Apache-2.0
"""One domain of a data set at a site: checked, listed in a fixed order, split, and divided among sites.

Opening a domain of image folders reads folder names only; ``soundness`` is the separate, slower check of the files.
Images that come in one array are read, rotated and kept in memory when the domain is opened.
"""

from collections import Counter
from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

from fdg_plugins.data.attributes import list_attributed
from fdg_plugins.data.catalogue import dataset_spec
from fdg_plugins.data.decoding import MOST_PIXELS
from fdg_plugins.data.folders import existing_folders, existing_root, list_domain
from fdg_plugins.data.image_files import AttributeFiles, ImageFiles
from fdg_plugins.data.own_files import NO_RULES, rules_of
from fdg_plugins.data.pair_files import PairFiles
from fdg_plugins.data.pairs import list_pairs, split_pairs
from fdg_plugins.data.presets import preset_of
from fdg_plugins.data.published import published_domain, rotated_domain
from fdg_plugins.data.skew import EQUAL, EQUAL_PARTS, Partition, Shares, site_splits
from fdg_plugins.data.sources import ImageSource
from fdg_plugins.data.specs import (
    AttributeSpec,
    KnownSpec,
    PublishedSpec,
    RotatedSpec,
    Sample,
    SegmentationSpec,
)
from fdg_plugins.data.splits import Split, folder_split, part_of, seeded_split
from fdg_plugins.errors import DataError, SettingsError
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
    skipped: tuple[str, ...] = ()
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
            f"domain {domain!r} is unknown in data set {spec.name}; {expected}.",
            public=f"its domain is none of data set {spec.name}; {expected}.",
        )
    files = frozenset(left_out)
    asked = _Asked(
        spec.name, data_root, domain, seed, max_samples, image_memory, max_pixels, files, preset, dataset_file
    )
    shared = shared or SharedDomains()
    whole = shared.open(asked, spec)
    return whole if part is None else shared.part(whole, spec, asked, part, partition)


class _Asked(NamedTuple):
    """What a domain is opened with: the arguments of :func:`open_domain`."""

    dataset: str
    data_root: Path | None
    domain: str
    seed: int
    max_samples: int | None
    image_memory: int
    max_pixels: int
    left_out: frozenset[str]
    preset: str
    dataset_file: Path | None


class SharedDomains:
    """The domains that have been opened in this process, each before it is divided among sites."""

    def __init__(self) -> None:
        self._opened: dict[_Asked, DomainData] = {}
        self._sound: dict[int, set[str]] = {}
        self._shares: dict[tuple[int, int, Partition], Shares] = {}

    def open(self, asked: _Asked, spec: KnownSpec) -> DomainData:
        """Return a domain, listed and split at the first call."""
        if asked not in self._opened:
            self._opened[asked] = _open(asked, spec)
        return self._opened[asked]

    def part(
        self, whole: DomainData, spec: KnownSpec, asked: _Asked, part: tuple[int, int], partition: Partition
    ) -> DomainData:
        """Return a site's share of an opened domain; the partition is computed once for all sites."""
        number, count = part
        if not 1 <= number <= count:
            where, expected = f"domain {asked.domain!r}", f"a number from 1 to {count}"
            raise SettingsError(site=where, field="part", value=number, expected=expected, public=True)
        split = Split(whole.train, whole.validation, whole.test, whole.split)
        if partition.kind == EQUAL:
            return _divided(whole, part_of(split, spec, asked.domain, part, seed=asked.seed))
        key = (id(whole), count, partition)
        if key not in self._shares:
            self._shares[key] = site_splits(split, spec, asked.domain, count, partition, asked.seed)
        return _divided(whole, self._shares[key].split_of(number))

    def sound_images(self, images: ImageSource) -> set[str]:
        """Return the files of an opened domain that are known to be sound; the caller may add some."""
        return self._sound.setdefault(id(images), set())


def _divided(data: DomainData, split: Split) -> DomainData:
    train, validation, test = split.train, split.validation, split.test
    return replace(data, train=train, validation=validation, test=test, split=split.name, split_hash=split.digest)


def _open(asked: _Asked, spec: KnownSpec) -> DomainData:
    domain, seed, most = asked.domain, asked.seed, asked.max_samples

    def made(images: ImageSource, split: Split, **others: tuple[str, ...]) -> DomainData:
        return _divided(DomainData(spec.name, domain, images, spec.classes, (), (), (), "", "", **others), split)

    def seeded(samples: tuple[Sample, ...], used: KnownSpec = spec) -> Split:
        return seeded_split(samples, used, domain, seed=seed, max_samples=most)

    if isinstance(spec, RotatedSpec):
        used = spec if asked.data_root is not None or spec.stand_in is None else spec.stand_in
        array, samples = rotated_domain(_root_of(asked, used) if used.needs_data_root else None, used, domain)
        return made(array, seeded(samples, used))
    if isinstance(spec, PublishedSpec):
        array, samples = published_domain(asked.data_root, spec, domain, asked.max_pixels)
        return made(array, seeded(samples))
    root = _root_of(asked, spec)
    if isinstance(spec, AttributeSpec):
        root, attributed = list_attributed(root, spec, domain)
        files: ImageFiles = AttributeFiles(root / spec.folder, asked.image_memory, asked.max_pixels)
        return made(files, seeded(_kept(attributed, spec, asked)), left_out=_among(attributed, asked))
    root = existing_root(root, spec)
    rules = rules_of(root, asked.dataset_file) if spec.described else NO_RULES
    if isinstance(spec, SegmentationSpec):
        pairs, skipped, unused = list_pairs(root, spec, domain, rules)
        split = split_pairs(pairs, asked.left_out, spec, domain, seed=seed, max_samples=most)
        preset = preset_of(asked.preset, spec)
        pair_files = PairFiles(root / spec.folder, spec, preset, asked.image_memory, asked.max_pixels)
        return made(pair_files, split, left_out=_among(pairs.all, asked), skipped=skipped, unused=unused)
    listed, skipped, unused = list_domain(existing_folders(root, spec, domain), spec, domain, rules)
    kept, damaged = _kept(listed, spec, asked), _among(listed, asked)
    absent = (*damaged, *skipped)
    split = folder_split(kept, spec, domain, root, rules, seed=seed, max_samples=most, left_out=absent)
    files = ImageFiles(root / spec.folder, asked.image_memory, asked.max_pixels)
    return made(files, split, left_out=damaged, skipped=skipped, unused=unused)


def _root_of(asked: _Asked, spec: KnownSpec) -> Path:
    if asked.data_root is None:
        holds = f"{spec.folder}/" if spec.folder else "its domains"
        raise DataError(f"data set {spec.name} has no data root; expected the folder that holds {holds}.", public=True)
    return Path(asked.data_root)


def _among(listed: Iterable[Sample], asked: _Asked) -> tuple[str, ...]:
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
