# SPDX-License-Identifier: Apache-2.0
"""The images and masks of a domain: listed from two folders or from a data list, and divided as the list says."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path

from fdg_plugins.data.data_lists import find_data_list, read_data_list
from fdg_plugins.data.folders import (
    check_domain_folder,
    existing_root,
    image_names,
    is_folder,
    note_others,
    refuse_outside,
)
from fdg_plugins.data.own_files import NO_RULES, FileRules
from fdg_plugins.data.pair_names import PAIR_SUFFIXES, refuse_mixed, stem_of
from fdg_plugins.data.specs import PairSample, Sample, SegmentationSpec
from fdg_plugins.data.splits import Split, given_split, seeded_split
from fdg_plugins.data.unused import Unused
from fdg_plugins.errors import DataError
from fdg_plugins.values import visible

PARTS = ("images", "masks")
AMONG = "images/ and masks/"


@dataclass(frozen=True)
class Pairs:
    """The pairs of a domain, as listed for each purpose; without a list, all are in ``train``. Each part is sorted."""

    train: tuple[PairSample, ...]
    validation: tuple[PairSample, ...] = ()
    test: tuple[PairSample, ...] = ()

    @property
    def all(self) -> tuple[PairSample, ...]:
        """All pairs, each once."""
        return tuple(sorted({*self.train, *self.validation, *self.test}, key=lambda sample: sample.file))

    def without(self, files: Collection[str]) -> "Pairs":
        """Return the pairs except those whose image is one of ``files``."""
        parts = (self.train, self.validation, self.test)
        return Pairs(*(tuple(pair for pair in part if pair.file not in files) for part in parts))


def list_pairs(
    data_root: Path, spec: SegmentationSpec, domain: str, rules: FileRules = NO_RULES, unused: Unused | None = None
) -> tuple[Pairs, tuple[str, ...]]:
    """Return the pairs of a domain, without opening an image, and the images that ``rules`` leave out.

    A pair is left out if its image or its mask is; neither need have the other then. What else lies in the two folders
    is noted in ``unused``; without them, a list says what is used. Raises DataError for missing
    folders, an unusable data list, images without a mask and masks without an image, two images or masks of one stem,
    links that leave the data root, and unusable names.
    """
    root = existing_root(data_root, spec, domain)
    if (path := find_data_list(root, spec, domain)) is not None:
        pairs = Pairs(*read_data_list(root, path, spec, domain))
        skipped = tuple(pair.file for pair in pairs.all if rules.excludes(pair.file) or rules.excludes(pair.mask))
        return pairs.without(skipped), skipped
    check_domain_folder(root, spec, domain)
    listed, skipped = _pairs_in_folders(root, spec, domain, rules)
    if unused is not None:
        for part in PARTS:
            note_others(root / spec.folder, f"{domain}/{part}", f"domain {domain!r}", PAIR_SUFFIXES, rules, unused)
    return Pairs(listed), skipped


def split_pairs(
    listed: Pairs, left_out: Collection[str], spec: SegmentationSpec, domain: str, *, seed: int, max_samples: int | None
) -> Split:
    """Return the split that the data list gives, or the seeded split of what it leaves open, without ``left_out``.

    The test images are the labelled ones that the list names for this purpose, else the whole domain. Raises DataError
    if too few pairs are left, and SettingsError as :func:`~fdg_plugins.data.splits.seeded_split` does.
    """
    kept = listed.without(left_out)
    _check_enough(listed, kept, domain)
    if not kept.validation and not kept.test:
        return seeded_split(kept.train, spec, domain, seed=seed, max_samples=max_samples)
    train: tuple[Sample, ...] = kept.train
    validation: tuple[Sample, ...] = kept.validation
    origin = "list"
    if not validation:
        drawn = seeded_split(train, spec, domain, seed=seed)
        train, validation, origin = drawn.train, drawn.validation, f"list+90-10@{seed}"
    parts = (train, validation, kept.test or kept.all)
    return given_split(parts, spec, domain, origin, seed=seed, max_samples=max_samples)


def _check_enough(listed: Pairs, kept: Pairs, domain: str) -> None:
    """Reject a part of a split in which nothing is left: a list's validation images must not become others silently."""
    needed = 1 if listed.validation else 2
    for what, before, after, least in (
        ("training", listed.train, kept.train, needed),
        ("validation", listed.validation, kept.validation, min(len(listed.validation), 1)),
        ("test", listed.test, kept.test, min(len(listed.test), 1)),
    ):
        if len(after) < least:
            raise DataError(
                f"of the {len(before):,} {what} images of domain {domain!r}, {len(after)} can be used; expected at "
                f"least {least}.",
                public=True,
            )


def _pairs_in_folders(
    root: Path, spec: SegmentationSpec, domain: str, rules: FileRules
) -> tuple[tuple[PairSample, ...], tuple[str, ...]]:
    """Return the pairs, and the images left out."""
    (images, no_images), (masks, no_masks) = (_by_stem(root, spec, domain, part, rules) for part in PARTS)
    alone = {stem: images.pop(stem) for stem in no_masks.keys() & images.keys() - masks.keys()}
    for stem in no_images.keys() & masks.keys() - images.keys():
        del masks[stem]
    skipped = sorted(f"{domain}/images/{name}" for name in (*no_images.values(), *alone.values()))
    _check_paired(root, spec, domain, images, masks)
    pairs = [
        PairSample(f"{domain}/images/{images[stem]}", 0, f"{domain}/masks/{masks[stem]}") for stem in sorted(images)
    ]
    for pair in pairs:
        refuse_mixed(pair.file, pair.mask, f"folder {root / spec.folder / domain}", f"domain {domain!r}")
    return tuple(sorted(pairs, key=lambda pair: pair.file)), tuple(skipped)


def _check_paired(
    root: Path, spec: SegmentationSpec, domain: str, images: Mapping[str, str], masks: Mapping[str, str]
) -> None:
    """Raise DataError for images without a mask, and for masks without an image; both are names by stem."""
    folder = root / spec.folder / domain
    for what, other, alone in (
        ("image", "mask", {stem: images[stem] for stem in images.keys() - masks.keys()}),
        ("mask", "image", {stem: masks[stem] for stem in masks.keys() - images.keys()}),
    ):
        if alone:
            raise DataError(
                f"folder {folder} has {len(alone):,} {what}s without {other}, such as {what}s/{min(alone.values())}; "
                "expected images and masks of equal names.",
                public=f"domain {domain!r} has {len(alone):,} {what}s without {other}.",
            )


def _by_stem(
    root: Path, spec: SegmentationSpec, domain: str, part: str, rules: FileRules
) -> tuple[dict[str, str], dict[str, str]]:
    """Return the names of the files in one of the two folders of a domain, and of those left out, by stem."""
    folder, where = root / spec.folder / domain / part, f"folder {part!r} of domain {domain!r}"
    if not is_folder(folder):
        raise DataError(
            f"folder {folder} is missing; expected {domain}/images/ and {domain}/masks/, or a data list "
            f"{domain}/dataset.json.",
            public=f"domain {domain!r} has no folder {part!r} and no data list.",
        )
    refuse_outside(root, folder)
    names: dict[str, str] = {}
    left_out: dict[str, str] = {}
    for name in sorted(image_names(root, folder, where, PAIR_SUFFIXES)):
        if rules.excludes(f"{domain}/{part}/{name}"):
            left_out[stem_of(name)] = name
            continue
        if (stem := stem_of(name)) in names:
            raise DataError(
                f"folder {folder} has {visible(names[stem])} and {visible(name)}; expected one file of each name.",
                public=f"{where} has two files whose names differ in their suffixes only.",
            )
        names[stem] = name
    if not names:
        suffixes = ", ".join(PAIR_SUFFIXES)
        raise DataError(
            f"folder {folder} holds no image; expected files ending in {suffixes}.",
            public=f"{where} has no image; expected files ending in {suffixes}.",
        )
    return names, left_out
