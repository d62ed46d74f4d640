# SPDX-License-Identifier: Apache-2.0
"""One domain of a data set at a site: found, listed in a fixed order, split, divided among sites, and checked.

Opening a domain of image folders reads names only; looking for damaged images is a separate, slower step. An image is
damaged if Pillow, or nibabel, refuses to decode it; a garbled JPEG that is decoded to wrong pixels counts as sound.
Images that come in one array are read when the domain is opened.
"""

from collections.abc import Callable, Collection, Hashable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from fdg_plugins.data.catalogue import dataset_spec
from fdg_plugins.data.decoding import MOST_PIXELS, DamagedError
from fdg_plugins.data.folders import existing_root, is_folder, is_unfinished
from fdg_plugins.data.image_files import AttributeFiles, ImageFiles, ImageSource, joined
from fdg_plugins.data.listing import list_domain
from fdg_plugins.data.own_files import NO_RULES, rules_of
from fdg_plugins.data.presets import PairFiles, preset_of
from fdg_plugins.data.published import read_arrays
from fdg_plugins.data.specs import (
    AttributeSpec,
    KnownSpec,
    Listing,
    PublishedSpec,
    RotatedSpec,
    Sample,
    SegmentationSpec,
)
from fdg_plugins.data.splits import (
    EQUAL,
    EQUAL_PARTS,
    MIX,
    Partition,
    Split,
    mixed_split,
    part_of,
    site_splits,
    split_of,
)
from fdg_plugins.data.stand_in import STAND_INS, VERSION, cache_folder, is_stand_in, write_stand_in
from fdg_plugins.errors import DataError, SettingsError
from fdg_plugins.plugins.own_dataset import DatasetRef

T = TypeVar("T")

SHOWN = 10  # damaged files that a sentence names


# --- the data root ---


class DataRoot(NamedTuple):
    """The folder for ``open_domain``, None if it needs none, and whether the images only stand in for others."""

    path: Path | None
    stand_in: bool


def find_data_root(dataset: DatasetRef, data_root: Path | None, cache: Path | None) -> DataRoot:
    """Return the data root that a site configures for ``dataset``, or the stand-in if it configures none.

    PACS, CelebA and the vessels are drawn below ``cache`` (default: this user's cache of the package); for MNIST,
    EMNIST and CIFAR, scikit-learn's digits stand in. Raises DataError for a configured root that does not exist (such
    a site never falls back to a stand-in), for a data set in it whose preparation has not ended, and for a missing root
    if the data set has no stand-in.
    """
    spec = dataset_spec(dataset)
    if not spec.needs_data_root:
        return DataRoot(None, stand_in=False)
    if data_root is None and isinstance(spec, PublishedSpec | RotatedSpec):
        return DataRoot(None, stand_in=True)
    if data_root is None and not spec.described and spec.name in STAND_INS:
        root = cache_folder(cache) / f"stand-in-{spec.name}-v{VERSION}"
        return DataRoot(write_stand_in(root, spec.name), stand_in=True)
    root = _checked_root(spec, data_root)
    if is_unfinished(root / spec.folder):
        public = f"its preparation of data set {spec.name} has not ended."
        expected = f"one for which fdg data prepare {spec.name} has ended (--any-counts accepts what is there)"
        raise DataError(field="folder", value=root / spec.folder, expected=expected, public=public)
    return DataRoot(root, stand_in=is_stand_in(root, spec.folder))


def _checked_root(spec: KnownSpec, data_root: Path | None) -> Path:
    if data_root is None or not is_folder(data_root):
        holds = "its domains" if spec.described else f"{spec.folder}/, which fdg data prepare {spec.name} fills"
        expected = f"a folder, named by --data-root, FDG_DATA_ROOT or fdg_site.json, that holds {holds}"
        public = f"data set {spec.name} needs a data root, and has none here."
        raise DataError(field="data root", value=data_root, expected=expected, public=public)
    return data_root


# --- opening ---


@dataclass(frozen=True)
class DomainData(Split):
    """The images of one domain at one site, and how they are split.

    ``images`` is their source, from which ``fdg_plugins.data.images`` makes batches. ``skipped`` are files known to be
    bad or excluded, ``left_out`` those that the site found damaged. ``unused`` says, in phrases, what else lies in the
    folders of the domain.
    """

    dataset: str
    domain: str
    images: ImageSource
    classes: tuple[str, ...]
    skipped: tuple[str, ...] = ()
    left_out: tuple[str, ...] = ()
    unused: tuple[str, ...] = ()

    @property
    def samples(self) -> dict[str, Sample]:
        """All images by file."""
        return {sample.file: sample for sample in (*self.train, *self.validation, *self.test)}


class SharedDomains:
    """What has been made in this process for all its sites: opened domains, and how they are divided."""

    def __init__(self) -> None:
        self._made: dict[Hashable, Any] = {}

    def once(self, key: Hashable, make: Callable[[], T]) -> T:
        """Return what ``make`` returned at the first call with this key."""
        if key not in self._made:
            self._made[key] = make()
        made: T = self._made[key]
        return made


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
    shared: SharedDomains | None = None,
    dataset_file: Path | None = None,
) -> DomainData:
    """List and split the images of a domain below ``data_root``, in the layout of the data set's record.

    Without a data root, RotatedDigits replaces RotatedMNIST; the name of the split shows this.

    Args:
        max_samples: how many images of the domain to keep, chosen by ``seed`` in proportion to the classes.
        part: the site's number (from 1) and the number of sites that share the domain, to keep the site's share of the
            training and of the validation images; the test images remain those of the whole domain.
        partition: how they share it; one that is not equal divides the images by their classes
            (:mod:`fdg_plugins.data.splits`), and the test images are the site's own; ``mix`` gives images of all
            domains.
        image_memory: bytes for decoded image files, each of which is then decoded only once.
        max_pixels: of the largest image that is read.
        left_out: image files, named as samples name them, to omit from the split.
        preset: the transforms of images with masks, by default the data set's own.
        shared: the domains that other sites of this process have opened: they are not listed again, and sites of the
            same domain share the decoded images.
        dataset_file: what says more about the files of a described data set, by default ``dataset.toml`` in the root.

    Raises SettingsError for an unknown data set, domain or preset, too small a ``max_samples`` or too many parts.
    Raises DataError for a data root, folders or files that are missing, broken, empty or unexpected, for links that
    leave the data root, for lists that do not match the images, and for a class with too few images left.
    """
    spec = dataset_spec(dataset)
    if domain not in spec.domains:
        expected = f"one of data set {spec.name}: {', '.join(spec.domains)}"
        raise SettingsError(field="domain", value=domain, expected=expected, public=f"its domain is not {expected}.")
    shared = shared or SharedDomains()
    omitted = frozenset(left_out)
    asked = _Asked(data_root, dataset, seed, max_samples, omitted, image_memory, max_pixels, preset, dataset_file)
    whole = shared.once((asked, domain), partial(_open, asked, domain))
    if partition.kind == MIX and domain in dict(partition.counts):
        return _mixed(asked, domain, part or (1, 1), partition, shared)
    if part is None:
        return whole
    number, count = part
    if partition.kind == EQUAL:
        own = part_of(whole, spec, domain, part, seed=seed)
    else:
        divide = partial(site_splits, whole, spec, domain, count, partition, seed)
        own = shared.once((asked, domain, count, partition), divide)[number - 1]
    return replace(whole, train=own.train, validation=own.validation, test=own.test, name=own.name)


class _Asked(NamedTuple):
    """The arguments of :func:`open_domain` that determine what all sites of a domain share."""

    root: Path | None
    dataset: DatasetRef
    seed: int
    max_samples: int | None
    left_out: frozenset[str]
    memory: int
    max_pixels: int
    preset: str
    dataset_file: Path | None


def _mixed(
    asked: _Asked, domain: str, part: tuple[int, int], partition: Partition, shared: SharedDomains
) -> DomainData:
    counts = dict(partition.counts)
    if part[1] != counts[domain]:
        raise SettingsError(field=f"number of sites of {domain!r}", value=part[1], expected=str(counts[domain]))
    opened = {name: shared.once((asked, name), partial(_open, asked, name)) for name in counts}
    own = mixed_split(opened, domain, part[0], partition, asked.seed)
    images = shared.once(("joined", asked, *counts), lambda: joined([one.images for one in opened.values()]))
    return replace(opened[domain], train=own.train, validation=own.validation, name=own.name, images=images)


def _open(asked: _Asked, domain: str) -> DomainData:
    known = dataset_spec(asked.dataset)
    spec, images, listing = _read(known, asked, domain)
    split = split_of(listing, spec, domain, seed=asked.seed, max_samples=asked.max_samples, left_out=asked.left_out)
    parts = (split.train, split.validation, split.test, split.name)
    damaged = tuple(sample.file for sample in listing.images if sample.file in asked.left_out)
    named = (known.name, domain, images, spec.classes)
    return DomainData(*parts, *named, skipped=listing.skipped, left_out=damaged, unused=listing.unused)


def _read(spec: KnownSpec, asked: _Asked, domain: str) -> tuple[KnownSpec, ImageSource, Listing]:
    """Return the record of the images, which may be that of a stand-in, their source, and what the domain holds."""
    if isinstance(spec, PublishedSpec):
        return spec, *read_arrays(asked.root, spec, domain, asked.max_pixels)
    if isinstance(spec, RotatedSpec):
        spec = spec.stand_in if spec.stand_in is not None and asked.root is None else spec
        return spec, *read_arrays(_checked_root(spec, asked.root) if spec.needs_data_root else None, spec, domain)
    root = existing_root(_checked_root(spec, asked.root), spec)
    listing = list_domain(root, spec, domain, rules_of(root, asked.dataset_file) if spec.described else NO_RULES)
    files = (root / spec.folder, asked.memory, asked.max_pixels)
    if isinstance(spec, SegmentationSpec):
        return spec, PairFiles(*files, spec, preset_of(asked.preset, spec)), listing
    return spec, (AttributeFiles if isinstance(spec, AttributeSpec) else ImageFiles)(*files), listing


# --- damaged images ---

Poll = Callable[[], object]


def find_damaged(data: DomainData, sound: set[str] | None = None, poll: Poll = bool) -> dict[str, str]:
    """Decode all images of ``data`` except those known to be ``sound``; return why which cannot be used, by file.

    Those that can be used join ``sound``. ``poll`` is called before each image; what it raises ends the search.
    """
    sound = set() if sound is None else sound
    damaged: dict[str, str] = {}
    for file, sample in ((file, sample) for file, sample in data.samples.items() if file not in sound):
        poll()
        try:
            data.images.check(sample)
            sound.add(file)
        except DamagedError as error:
            damaged[file] = error.reason
    return damaged


def check_images(data: DomainData, sound: set[str] | None = None, poll: Poll = bool) -> None:
    """Decode every image file of ``data`` once; raise DataError if any cannot be used, with their number and names.

    ``sound`` and ``poll``: as in :func:`find_damaged`.
    """
    if damaged := find_damaged(data, sound, poll):
        problem = f"of the images of domain {data.domain!r}, {len(damaged):,} cannot be used"
        reasons = "; ".join(f"{file} {damaged[file]}" for file in sorted(damaged)[:SHOWN])
        instead = "damaged_images 'leave_out' in the site's config does without them"
        raise DataError(f"{problem} ({reasons}); {instead}.", public=f"{problem}.")


def without_damaged(
    data: DomainData,
    reopen: Callable[[frozenset[str]], DomainData],
    sound: set[str] | None = None,
    poll: Poll = bool,
) -> tuple[DomainData, frozenset[str]]:
    """Return the domain without the images that cannot be used, and those images; each image is decoded once.

    ``reopen`` returns the domain without the given files. A subsampled domain may then contain other images, which
    are checked in turn. ``sound`` and ``poll``: as in :func:`find_damaged`.
    """
    sound = set() if sound is None else sound
    found: frozenset[str] = frozenset()
    while more := find_damaged(data, sound, poll):
        found |= more.keys()
        data = reopen(found)
    return data, found
