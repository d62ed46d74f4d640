# SPDX-License-Identifier: Apache-2.0
"""The images and masks of a domain: listed from two folders or from a data list, and divided as the list says.

Data lists have the form of the Medical Segmentation Decathlon, which MONAI and FLARE's prostate example use: a JSON
object with ``training``, and optionally ``validation`` and ``test`` (or ``testing``), each a list of
``{"image": path, "label": path}``. All other keys are ignored, and so are images for testing without a label. A path is
relative to the folder of the list, to that of the data set, or to the data root; the first that exists counts.
"""

import os
from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple

from fdg_plugins.data.folders import (
    check_names,
    existing_folders,
    existing_root,
    image_names,
    is_file,
    is_folder,
    names_in,
    refuse_outside,
    unused_of,
)
from fdg_plugins.data.own_files import NO_RULES, FileRules
from fdg_plugins.data.specs import PairSample, Sample, SegmentationSpec
from fdg_plugins.data.splits import Split, given_split, seeded_split
from fdg_plugins.errors import DataError, shorten, visible
from fdg_plugins.storage import read_json

PARTS = ("images", "masks")
NIFTI_SUFFIXES = (".nii", ".nii.gz")
PAIR_SUFFIXES = (".png", ".jpg", ".jpeg", ".tif", ".tiff", *NIFTI_SUFFIXES)
LARGEST_LIST = 2**26  # bytes

_PairPart = tuple[PairSample, ...]


def stem_of(name: str) -> str:
    """Return the name without its suffix: ``a`` of ``a.nii.gz``, ``a.b`` of ``a.b.png``."""
    suffix = max((suffix for suffix in PAIR_SUFFIXES if name.lower().endswith(suffix)), key=len, default="")
    return name[: len(name) - len(suffix)]


def is_nifti(name: str) -> bool:
    """Return whether the file is NIfTI by its suffix."""
    return name.lower().endswith(NIFTI_SUFFIXES)


@dataclass(frozen=True)
class Pairs:
    """The pairs of a domain, as listed for each purpose; without a list, all are in ``train``. Each part is sorted."""

    train: _PairPart
    validation: _PairPart = ()
    test: _PairPart = ()

    @property
    def all(self) -> _PairPart:
        """All pairs, each once."""
        return tuple(sorted({*self.train, *self.validation, *self.test}, key=lambda sample: sample.file))

    def without(self, files: Collection[str]) -> "Pairs":
        """Return the pairs except those whose image is one of ``files``."""
        parts = (self.train, self.validation, self.test)
        return Pairs(*(tuple(pair for pair in part if pair.file not in files) for part in parts))


class ListedPairs(NamedTuple):
    """The pairs of a domain, the images that are left out, and, in words, what else lies in the two folders."""

    pairs: Pairs
    left_out: tuple[str, ...]
    unused: tuple[str, ...] = ()


def list_pairs(data_root: Path, spec: SegmentationSpec, domain: str, rules: FileRules = NO_RULES) -> ListedPairs:
    """Return the pairs of a domain, without opening an image, except those that ``rules`` leave out.

    A pair is left out if its image or its mask is; neither need have the other then. Raises DataError for missing
    folders, an unusable data list, images without a mask and masks without an image, two images or masks of one stem,
    links that leave the data root, and unusable names.
    """
    root = existing_root(data_root, spec)
    if (path := find_data_list(root, spec, domain)) is not None:
        pairs = read_data_list(root, path, spec, domain)
        skipped = tuple(pair.file for pair in pairs.all if rules.excludes(pair.file) or rules.excludes(pair.mask))
        return ListedPairs(pairs.without(skipped), skipped)
    return _pairs_in_folders(existing_folders(root, spec, domain), spec, domain, rules)


def split_pairs(
    listed: Pairs, left_out: Collection[str], spec: SegmentationSpec, domain: str, *, seed: int, max_samples: int | None
) -> Split:
    """Return the split that the data list gives, or the seeded split of what it leaves open, without ``left_out``.

    The test images are the labelled ones that the list names for this purpose, else the whole domain. Raises DataError
    if too few pairs are left, and SettingsError as :func:`~fdg_plugins.data.splits.seeded_split` does.
    """
    kept = listed.without(left_out)
    for what, before, after, least in (
        ("training", listed.train, kept.train, 1 if listed.validation else 2),
        ("validation", listed.validation, kept.validation, min(len(listed.validation), 1)),
        ("test", listed.test, kept.test, min(len(listed.test), 1)),
    ):
        if len(after) < least:  # a list's validation images must not become others silently
            raise DataError(
                f"of the {len(before):,} {what} images of domain {domain!r}, {len(after)} can be used; expected at "
                f"least {least}.",
                public=True,
            )
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


def _pairs_in_folders(root: Path, spec: SegmentationSpec, domain: str, rules: FileRules) -> ListedPairs:
    folder = root / spec.folder / domain
    (images, no_images), (masks, no_masks) = (_by_stem(root, spec, domain, part, rules) for part in PARTS)
    left_out = no_images | {stem: images.pop(stem) for stem in no_masks.keys() & images.keys() - masks.keys()}
    for stem in no_images.keys() & masks.keys() - images.keys():
        del masks[stem]
    if single := sorted(f"images/{images[stem]}" for stem in images.keys() - masks.keys()) + sorted(
        f"masks/{masks[stem]}" for stem in masks.keys() - images.keys()
    ):
        problem = f"{len(single):,} images or masks without the other"
        raise DataError(f"folder {folder} has {problem}, such as {single[0]}.", public=f"it has {problem}.")
    pairs = [PairSample(f"{domain}/images/{name}", 0, f"{domain}/masks/{masks[stem]}") for stem, name in images.items()]
    _refuse_mixed(pairs, f"folder {folder}")
    names = [(part, name) for part in PARTS for name in names_in(folder / part)]
    beside = [f"{domain}/{part}/{name}" for part, name in names if not name.lower().endswith(PAIR_SUFFIXES)]
    skipped = tuple(sorted(f"{domain}/images/{name}" for name in left_out.values()))
    ordered = tuple(sorted(pairs, key=lambda pair: pair.file))
    return ListedPairs(Pairs(ordered), skipped, unused_of(beside, rules))


def _refuse_mixed(pairs: Collection[PairSample], where: str) -> None:
    """Raise DataError if only one of image and mask is NIfTI, whose axes have another order."""
    if mixed := [pair for pair in pairs if is_nifti(pair.file) != is_nifti(pair.mask)]:
        raise DataError(f"{where} has {mixed[0].file} with {mixed[0].mask}; expected both or neither to be NIfTI.")


def _by_stem(
    root: Path, spec: SegmentationSpec, domain: str, part: str, rules: FileRules
) -> tuple[dict[str, str], dict[str, str]]:
    """Return the files in the folder of one part by their stems: those used, and those left out."""
    folder = root / spec.folder / domain / part
    names: dict[str, str] = {}
    left_out: dict[str, str] = {}
    for name in sorted(image_names(root, folder, PAIR_SUFFIXES)) if is_folder(folder) else ():
        known = left_out if rules.excludes(f"{domain}/{part}/{name}") else names
        if (other := known.setdefault(stem_of(name), name)) != name and known is names:
            raise DataError(
                f"folder {folder} has {visible(other)} and {visible(name)}; expected one file of each name."
            )
    if not names:
        raise DataError(
            f"folder {folder} has no image; expected {domain}/images/ and {domain}/masks/ with files ending in "
            f"{', '.join(PAIR_SUFFIXES)}, or a data list {domain}/dataset.json.",
            public=f"folder {part!r} of domain {domain!r} has no image, and there is no data list.",
        )
    return names, left_out


def find_data_list(root: Path, spec: SegmentationSpec, domain: str) -> Path | None:
    """Return the data list of a domain, None if there is none; raise DataError if there are two.

    FLARE's prostate example writes those of ``dataset_2D`` as ``datalist_2D/client_<domain>.json``.
    """
    folder = root / spec.folder
    places = [folder / domain / "dataset.json", folder / f"{domain}.json", folder / f"client_{domain}.json"]
    if "dataset" in folder.name:
        places.append(folder.with_name(folder.name.replace("dataset", "datalist")) / f"client_{domain}.json")
    found = [path for path in places if is_file(path)]
    if len(found) > 1:
        raise DataError(f"domain {domain} has the data lists {found[0]} and {found[1]}; expected one.")
    return found[0] if found else None


def read_data_list(root: Path, path: Path, spec: SegmentationSpec, domain: str) -> Pairs:
    """Return the pairs that the list at ``path`` names for training, validation and test, each sorted by image.

    The last two may be empty. Raises DataError, naming list and entry, if the list cannot be read or has another form,
    if a file is missing, named twice or outside the data root.
    """
    refuse_outside(root, path)
    where = f"data list of domain {domain!r}"
    try:
        content = read_json(path) if path.stat().st_size <= LARGEST_LIST else None
    except (OSError, DataError) as error:
        raise DataError(f"{where}: {error}") from error
    if not isinstance(content, dict):
        raise DataError(f"{where} is not a JSON object of at most {LARGEST_LIST:,} bytes.")
    bases = (path.parent, root / spec.folder, root)
    parts = {}
    for key in ("training", "validation", "test", "testing"):
        entries = content.get(key, [])
        if not isinstance(entries, list):
            raise DataError(f"{where}: {key!r} is not a list of images with labels.")
        if key in ("test", "testing"):
            entries = [entry for entry in entries if isinstance(entry, dict) and "label" in entry]
        pairs = [_pair(entry, bases, f"{where}, {key}, entry {number}") for number, entry in enumerate(entries, 1)]
        parts[key] = tuple(sorted(pairs, key=lambda pair: pair.file))
    if not parts["training"] or (parts["test"] and parts["testing"]):
        raise DataError(f"{where} needs training images, and not both 'test' and 'testing'.")
    named = Counter(pair.file for part in parts.values() for pair in part)
    if named and (most := named.most_common(1)[0])[1] > 1:
        raise DataError(f"{where} names {most[0]} twice.")
    return Pairs(parts["training"], parts["validation"], parts["test"] or parts["testing"])


def _pair(entry: Any, bases: tuple[Path, Path, Path], where: str) -> PairSample:
    """Return the pair that an entry of a list names; paths are below one of the ``bases``, the last the data root."""
    if not isinstance(entry, Mapping) or not all(isinstance(entry.get(key), str) for key in ("image", "label")):
        raise DataError(f'{where} is {shorten(entry)}; expected {{"image": "<path>", "label": "<path>"}}.')
    files = []
    for key in ("image", "label"):
        named = entry[key]
        path = PurePosixPath(named)
        check_names(bases[0], [named])
        is_below = not path.is_absolute() and not any(part.startswith(".") for part in path.parts)
        if not is_below or not path.name.lower().endswith(PAIR_SUFFIXES):
            raise DataError(
                f"{where}: its {key} is {shorten(named)}; expected a relative path, neither hidden nor above the list, "
                f"that ends in {', '.join(PAIR_SUFFIXES)}."
            )
        if (base := next((base for base in bases if is_file(base / path)), None)) is None:
            raise DataError(f"{where}: its {key}, {shorten(named)}, does not exist.")
        refuse_outside(bases[-1], base / path)
        files.append(PurePosixPath(os.path.relpath(base / path, bases[1])).as_posix())
    pair = PairSample(files[0], 0, files[1])
    _refuse_mixed([pair], where)
    return pair
