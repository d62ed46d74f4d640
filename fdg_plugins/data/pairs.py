# SPDX-License-Identifier: Apache-2.0
"""The images and masks of a domain: listed from two folders or from a data list, which also divides them.

Data lists have the form of the Medical Segmentation Decathlon, which MONAI and FLARE's prostate example use: a JSON
object with ``training``, and optionally ``validation`` and ``test`` (or ``testing``), each a list of
``{"image": path, "label": path}``, to which a user may add the image's group, such as ``"patient": "P07"``. All other
keys are ignored, and so are images for testing without a label. A path is relative to the folder of the list, to that
of the data set, or to the data root; the first that exists counts.
"""

import os
from collections import Counter
from collections.abc import Collection, Sequence
from pathlib import Path, PurePosixPath
from typing import Annotated

import pydantic

from fdg_plugins.data import folders
from fdg_plugins.data.folders import image_names, is_file, is_folder, names_in, refuse_outside
from fdg_plugins.data.groups import with_groups
from fdg_plugins.data.own_files import NO_RULES, DatasetFile
from fdg_plugins.data.specs import Given, Listing, PairSample, SegmentationSpec
from fdg_plugins.errors import DataError, first_problem, visible
from fdg_plugins.storage import read_json

PARTS = ("images", "masks")
NIFTI_SUFFIXES = (".nii", ".nii.gz")
PAIR_SUFFIXES = (".png", ".jpg", ".jpeg", ".tif", ".tiff", *NIFTI_SUFFIXES)
LARGEST_LIST = 2**26  # bytes


def stem_of(name: str) -> str:
    """Return the name without its suffix: ``a`` of ``a.nii.gz``, ``a.b`` of ``a.b.png``."""
    suffix = max((suffix for suffix in PAIR_SUFFIXES if name.lower().endswith(suffix)), key=len, default="")
    return name[: len(name) - len(suffix)]


def is_nifti(name: str) -> bool:
    """Return whether the file is NIfTI by its suffix."""
    return name.lower().endswith(NIFTI_SUFFIXES)


def list_pairs(data_root: Path, spec: SegmentationSpec, domain: str, rules: DatasetFile = NO_RULES) -> Listing:
    """Return the pairs of a domain, without opening an image, their groups, and how its data list divides them.

    A pair is left out if ``rules`` exclude its image or its mask; neither need have the other then.
    """
    root = folders.existing_root(data_root, spec)
    if (path := find_data_list(root, spec, domain)) is not None:
        return _listed(root, path, spec, domain, rules)
    return with_groups(_in_folders(folders.existing_root(root, spec, domain), spec, domain, rules), rules, {})


# --- two folders ---


def _in_folders(root: Path, spec: SegmentationSpec, domain: str, rules: DatasetFile) -> Listing:
    folder = root / spec.folder / domain
    (images, no_images), (masks, no_masks) = (_by_stem(root, folder / part, domain, rules) for part in PARTS)
    used, lone = images.keys() & masks.keys(), images.keys() ^ masks.keys()
    if not used:
        raise DataError(
            f"folder {folder} has no image with a mask; expected {domain}/images/ and {domain}/masks/ with files of "
            f"equal names ending in {', '.join(PAIR_SUFFIXES)}, or a data list {domain}/dataset.json.",
            public=f"domain {domain!r} has no image with a mask, and no data list.",
        )
    if single := sorted(lone - no_images.keys() - no_masks.keys()):
        problem = f"{len(single):,} images or masks without the other"
        named = images.get(single[0]) or masks[single[0]]
        raise DataError(f"folder {folder} has {problem}, such as {visible(named)}.", public=f"it has {problem}.")
    left_out = {stem: images[stem] for stem in lone & images.keys()} | no_images
    beside = [f"{domain}/{part}/{name}" for part in PARTS for name in names_in(folder / part)]
    return Listing(
        _in_order([_pair(f"{domain}/images/{images[stem]}", f"{domain}/masks/{masks[stem]}") for stem in used]),
        tuple(sorted(f"{domain}/images/{name}" for name in left_out.values())),
        folders.unused_of((path for path in beside if not path.lower().endswith(PAIR_SUFFIXES)), rules),
    )


def _by_stem(root: Path, folder: Path, domain: str, rules: DatasetFile) -> tuple[dict[str, str], dict[str, str]]:
    used: dict[str, str] = {}
    excluded: dict[str, str] = {}
    for name in sorted(image_names(root, folder, PAIR_SUFFIXES)) if is_folder(folder) else ():
        if rules.excludes(f"{domain}/{folder.name}/{name}"):
            excluded[stem_of(name)] = name
        elif (other := used.setdefault(stem_of(name), name)) != name:
            raise DataError(f"folder {folder} has {visible(other)} and {visible(name)}; expected one of each name.")
    return used, excluded


def _pair(image: str, mask: str) -> PairSample:
    if is_nifti(image) != is_nifti(mask):
        raise DataError(f"image {visible(image)} has the mask {visible(mask)}; expected both or neither to be NIfTI.")
    return PairSample(image, 0, mask)


def _in_order(pairs: Collection[PairSample]) -> tuple[PairSample, ...]:
    return tuple(sorted(pairs, key=lambda pair: pair.file))


# --- data lists ---


def find_data_list(root: Path, spec: SegmentationSpec, domain: str) -> Path | None:
    """Return the data list of a domain, the first of several; None if there is none.

    FLARE's prostate example writes those of ``dataset_2D`` as ``datalist_2D/client_<domain>.json``.
    """
    folder = root / spec.folder
    places = [folder / domain / "dataset.json", folder / f"{domain}.json", folder / f"client_{domain}.json"]
    if "dataset" in folder.name:
        places.append(folder.with_name(folder.name.replace("dataset", "datalist")) / f"client_{domain}.json")
    return next((path for path in places if is_file(path)), None)


class _Entry(pydantic.BaseModel, extra="allow"):
    image: str
    label: str | None = None

    def group(self, key: str | None) -> str:
        found = (self.model_extra or {}).get(key or "")
        return str(found) if isinstance(found, str | int) else ""


class _DataList(pydantic.BaseModel):
    training: Annotated[list[_Entry], pydantic.Field(min_length=1)]
    validation: list[_Entry] = []
    test: list[_Entry] = []
    testing: list[_Entry] = []


def _listed(root: Path, path: Path, spec: SegmentationSpec, domain: str, rules: DatasetFile) -> Listing:
    refuse_outside(root, path)
    where = f"data list of domain {domain!r}"
    try:
        content = _DataList.model_validate(read_json(path) if path.stat().st_size <= LARGEST_LIST else None)
    except pydantic.ValidationError as error:
        raise DataError(f"{where}: {first_problem(error)}") from error
    bases = (path.parent, root / spec.folder, root)
    groups: dict[str, str] = {}

    def pairs(entries: Sequence[_Entry]) -> list[PairSample]:
        made = [_pair(*(_listed_file(name, bases, where) for name in (one.image, one.label))) for one in entries]
        groups.update((pair.file, one.group(rules.group_column)) for pair, one in zip(made, entries, strict=True))
        return made

    tests = [entry for entry in (*content.test, *content.testing) if entry.label is not None]
    listed = [pairs(entries) for entries in (content.training, content.validation, tests)]
    every = _in_order([pair for part in listed for pair in part])
    if twice := [file for file, count in Counter(pair.file for pair in every).items() if count > 1]:
        raise DataError(f"{where} names {visible(twice[0])} twice.")
    if rules.group_column and (without := [file for file, group in groups.items() if not group]):
        expected = f'"{rules.group}": "...", as all have a group'
        raise DataError(site=where, field=f"{rules.group} of {visible(without[0])}", value=None, expected=expected)
    skipped = {pair.file for pair in every if rules.excludes(pair.file) or rules.excludes(pair.mask)}
    train, validation, test = (_in_order([pair for pair in part if pair.file not in skipped]) for part in listed)
    given = Given("list", train, validation or None, test or None) if validation or test else None
    images = tuple(pair for pair in every if pair.file not in skipped)
    return with_groups(Listing(images, tuple(sorted(skipped)), given=given), rules, groups)


def _listed_file(name: str | None, bases: tuple[Path, Path, Path], where: str) -> str:
    """Return a file of a list as a path below the data set's folder, the second of the ``bases``; root is the last."""
    path = PurePosixPath(name or "")
    folders.check_names(bases[0], path.parts)
    is_below = not path.is_absolute() and not any(part.startswith(".") for part in path.parts)
    base = next((base for base in bases if is_below and is_file(base / path)), None)
    if base is None or not path.name.lower().endswith(PAIR_SUFFIXES):
        expected = f"a file, neither hidden nor above the list, that ends in {', '.join(PAIR_SUFFIXES)}"
        raise DataError(site=where, field="image", value=name, expected=expected)
    refuse_outside(bases[-1], base / path)
    return PurePosixPath(os.path.relpath(base / path, bases[1])).as_posix()
