# SPDX-License-Identifier: Apache-2.0
"""The images and masks of a domain: listed from two folders or from a data list, and divided as the list says.

Data lists have the form of the Medical Segmentation Decathlon, which MONAI and FLARE's prostate example use: a JSON
object with ``training``, and optionally ``validation`` and ``test`` (or ``testing``), each a list of
``{"image": path, "label": path}``. All other keys are ignored, and so are images for testing without a label. A path is
relative to the folder of the list, to that of the data set, or to the data root; the first that exists counts.
"""

import os
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from fdg_plugins.data.folders import (
    Unused,
    check_names,
    existing_folders,
    existing_root,
    image_names,
    is_file,
    is_folder,
    note_others,
    refuse_outside,
)
from fdg_plugins.data.own_files import NO_RULES, FileRules
from fdg_plugins.data.specs import PairSample, Sample, SegmentationSpec
from fdg_plugins.data.splits import Split, given_split, seeded_split
from fdg_plugins.errors import DataError
from fdg_plugins.storage import read_json
from fdg_plugins.values import shorten, visible

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


def list_pairs(
    data_root: Path, spec: SegmentationSpec, domain: str, rules: FileRules = NO_RULES, unused: Unused | None = None
) -> tuple[Pairs, tuple[str, ...]]:
    """Return the pairs of a domain, without opening an image, and the images that ``rules`` leave out.

    A pair is left out if its image or its mask is; neither need have the other then. What else lies in the two folders
    is noted in ``unused``; without them, a list says what is used. Raises DataError for missing
    folders, an unusable data list, images without a mask and masks without an image, two images or masks of one stem,
    links that leave the data root, and unusable names.
    """
    root = existing_root(data_root, spec)
    if (path := find_data_list(root, spec, domain)) is not None:
        pairs = read_data_list(root, path, spec, domain)
        skipped = tuple(pair.file for pair in pairs.all if rules.excludes(pair.file) or rules.excludes(pair.mask))
        return pairs.without(skipped), skipped
    existing_folders(root, spec, domain)
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


def _pairs_in_folders(
    root: Path, spec: SegmentationSpec, domain: str, rules: FileRules
) -> tuple[_PairPart, tuple[str, ...]]:
    (images, no_images), (masks, no_masks) = (_by_stem(root, spec, domain, part, rules) for part in PARTS)
    alone = {stem: images.pop(stem) for stem in no_masks.keys() & images.keys() - masks.keys()}
    for stem in no_images.keys() & masks.keys() - images.keys():
        del masks[stem]
    skipped = sorted(f"{domain}/images/{name}" for name in (*no_images.values(), *alone.values()))
    folder = root / spec.folder / domain
    for what, these, others in (("image", images, masks), ("mask", masks, images)):
        if single := sorted(these[stem] for stem in these.keys() - others.keys()):
            raise DataError(
                f"folder {folder} has {len(single):,} {what}s without the other, such as {what}s/{single[0]}; "
                "expected images and masks of equal names.",
                public=f"domain {domain!r} has {len(single):,} {what}s without the other.",
            )
    pairs = [PairSample(f"{domain}/images/{name}", 0, f"{domain}/masks/{masks[stem]}") for stem, name in images.items()]
    for pair in pairs:
        _refuse_mixed(pair, f"folder {folder}", f"domain {domain!r}")
    return tuple(sorted(pairs, key=lambda pair: pair.file)), tuple(skipped)


def _refuse_mixed(pair: PairSample, own: str, public: str) -> None:
    """Raise DataError if only one of image and mask is NIfTI, whose axes have another order."""
    if is_nifti(pair.file) != is_nifti(pair.mask):
        raise DataError(
            f"{own} has the image {pair.file} with the mask {pair.mask}; expected both or neither to be NIfTI.",
            public=f"{public} has an image and a mask of which only one is NIfTI.",
        )


def _by_stem(
    root: Path, spec: SegmentationSpec, domain: str, part: str, rules: FileRules
) -> tuple[dict[str, str], dict[str, str]]:
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
        stem = stem_of(name)
        if rules.excludes(f"{domain}/{part}/{name}"):
            left_out[stem] = name
        elif stem in names:
            raise DataError(
                f"folder {folder} has {visible(names[stem])} and {visible(name)}; expected one file of each name.",
                public=f"{where} has two files whose names differ in their suffixes only.",
            )
        else:
            names[stem] = name
    if not names:
        suffixes = ", ".join(PAIR_SUFFIXES)
        raise DataError(
            f"folder {folder} holds no image; expected files ending in {suffixes}.",
            public=f"{where} has no image; expected files ending in {suffixes}.",
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
        raise DataError(
            f"domain {domain} has the data lists {found[0]} and {found[1]}; expected one.",
            public=f"domain {domain!r} has two data lists; expected one.",
        )
    return found[0] if found else None


def read_data_list(root: Path, path: Path, spec: SegmentationSpec, domain: str) -> Pairs:
    """Return the pairs that the list at ``path`` names for training, validation and test, each sorted by image.

    The last two may be empty. Raises DataError, naming list and entry, if the list cannot be read or has another form,
    if a file is missing, named twice or outside the data root.
    """
    reader = _Reader(root, path, spec, domain)
    lists = reader.lists()
    tests = [key for key in ("test", "testing") if lists.get(key)]
    if len(tests) > 1:
        raise reader.error("it has both 'test' and 'testing', expected one")
    training, validation, test = (reader.part(lists, key) for key in ("training", "validation", *(tests or ["test"])))
    if not training:
        raise reader.error("it names no training image, expected a list 'training' of images with labels")
    return Pairs(training, validation, test)


class _Reader:
    """Reads one data list; errors name list and file in the site's own log, but not in public."""

    def __init__(self, root: Path, path: Path, spec: SegmentationSpec, domain: str) -> None:
        self.root = root
        self.path = path
        self.folder = root / spec.folder
        self.public = f"its data list of domain {domain!r}"
        self._named: set[str] = set()

    def error(self, problem: str, detail: str = "") -> DataError:
        """Return the error; only ``problem`` is public."""
        return DataError(
            f"data list {self.path}: {problem}{f' ({detail})' if detail else ''}.", public=f"{self.public}: {problem}."
        )

    def lists(self) -> Mapping[str, Any]:
        """Return the whole content."""
        refuse_outside(self.root, self.path)
        try:
            if self.path.stat().st_size > LARGEST_LIST:
                raise self.error(f"it is longer than {LARGEST_LIST:,} bytes")
            content = read_json(self.path)
        except OSError as error:
            raise self.error("it cannot be read") from error
        except DataError as error:
            raise DataError(str(error), public=f"{self.public} cannot be read as JSON.") from error
        if not isinstance(content, dict):
            raise self.error("it is no JSON object, expected one with a list 'training'")
        return content

    def part(self, lists: Mapping[str, Any], key: str) -> _PairPart:
        """Return the labelled images of one of the lists; images for testing may come without a label."""
        entries = lists.get(key, [])
        if not isinstance(entries, list):
            raise self.error(f"{key!r} is not a list, expected one of images with labels")
        if key in ("test", "testing"):
            entries = [entry for entry in entries if isinstance(entry, dict) and "label" in entry]
        pairs = [self._pair(entry, f"{key}, entry {number}") for number, entry in enumerate(entries, start=1)]
        return tuple(sorted(pairs, key=lambda pair: pair.file))

    def _pair(self, entry: Any, place: str) -> PairSample:
        if not isinstance(entry, dict) or not all(isinstance(entry.get(key), str) for key in ("image", "label")):
            expected = 'expected {"image": "<path>", "label": "<path>"}'
            raise self.error(f"{place}: it has another form, {expected}", f"got {shorten(entry)}")
        image, mask = (self._file(entry[key], f"{place}: its {key}") for key in ("image", "label"))
        pair = PairSample(image, 0, mask)
        _refuse_mixed(pair, f"data list {self.path}", self.public)
        if image in self._named:
            raise self.error(f"{place}: its image is named before, expected each once", image)
        self._named.add(image)
        return pair

    def _file(self, named: str, place: str) -> str:
        check_names(self.path, self.public, [named])
        path = PurePosixPath(named)
        if path.is_absolute() or any(part.startswith(".") for part in path.parts):
            raise self.error(f"{place} is absolute, hidden or above the list, expected a relative path", shorten(named))
        if not path.name.lower().endswith(PAIR_SUFFIXES):
            raise self.error(f"{place} has another suffix, expected one of {', '.join(PAIR_SUFFIXES)}", shorten(named))
        for base in (self.path.parent, self.folder, self.root):
            if is_file(base / path):
                refuse_outside(self.root, base / path)
                return PurePosixPath(os.path.relpath(base / path, self.folder)).as_posix()
        raise self.error(f"{place} does not exist", shorten(named))
