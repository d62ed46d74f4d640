# SPDX-License-Identifier: Apache-2.0
"""The images and masks of a domain: in two folders, or in a data list, which also divides them.

Data lists have the form of the Medical Segmentation Decathlon, which MONAI and FLARE's prostate example use: a JSON
object with ``training``, and optionally ``validation`` and ``test`` (or ``testing``), each a list of
``{"image": path, "label": path}``, to which a user may add the image's group, such as ``"patient": "P07"``. All other
keys are ignored, and so are images for testing without a label. A path is relative to the folder of the list, to that
of the data set, or to the data root; the first that exists counts.
"""

import os
from pathlib import Path, PurePosixPath
from typing import Annotated

import pydantic

from fdg_plugins.data.folders import PARTS, check_names, existing_root, files_in, is_file, is_folder, refuse_outside
from fdg_plugins.data.own_files import DatasetFile
from fdg_plugins.data.specs import Listing, Sample, SegmentationSpec
from fdg_plugins.errors import DataError, first_problem, visible
from fdg_plugins.storage import read_json

NIFTI_SUFFIXES = (".nii", ".nii.gz")
PAIR_SUFFIXES = (".png", ".jpg", ".jpeg", ".tif", ".tiff", *NIFTI_SUFFIXES)


def stem_of(name: str) -> str:
    """Return the name without its suffix: ``a`` of ``a.nii.gz``, ``a.b`` of ``a.b.png``."""
    suffix = max((suffix for suffix in PAIR_SUFFIXES if name.lower().endswith(suffix)), key=len, default="")
    return name[: len(name) - len(suffix)]


def is_nifti(name: str) -> bool:
    """Return whether the file is NIfTI by its suffix."""
    return name.lower().endswith(NIFTI_SUFFIXES)


def list_pairs(root: Path, spec: SegmentationSpec, domain: str, rules: DatasetFile) -> Listing:
    """Return the pairs of a domain below a resolved data root, those that ``rules`` exclude among them, or skipped."""
    path = find_data_list(root, spec, domain)
    return _in_folders(root, spec, domain, rules) if path is None else _in_list(root, path, spec, domain, rules)


def _in_folders(root: Path, spec: SegmentationSpec, domain: str, rules: DatasetFile) -> Listing:
    folder = existing_root(root, spec, domain) / spec.folder / domain
    (images, out, beside), (masks, masks_out, others) = (_side(root, folder / part, domain, rules) for part in PARTS)
    forgiven = {stem_of(name) for name in out | masks_out}
    if single := sorted((images.keys() ^ masks.keys()) - forgiven):
        problem = f"{len(single):,} images or masks without the other"
        expected = f"such as {visible(single[0])}; expected files of equal names in images/ and masks/"
        raise DataError(f"folder {folder} has {problem}, {expected}.", field="images", public=f"it has {problem}.")
    paired = [(images[stem], masks[stem]) for stem in images.keys() & masks.keys()]
    skipped = (out | {*images.values()}) - {image for image, _ in paired}
    return Listing(
        tuple(Sample(f"{domain}/images/{image}", 0, mask=f"{domain}/masks/{mask}") for image, mask in paired),
        tuple(f"{domain}/images/{name}" for name in skipped),
        (*beside, *others),
    )


def _side(root: Path, folder: Path, domain: str, rules: DatasetFile) -> tuple[dict[str, str], set[str], list[str]]:
    """Return the names of images or masks by stem, those that are excluded, and the paths of all else in the folder."""
    names, others = files_in(root, folder, PAIR_SUFFIXES) if is_folder(folder) else ([], [])
    out = {name for name in names if rules.excludes(f"{domain}/{folder.name}/{name}")}
    kept = [name for name in names if name not in out]
    by_stem = {stem_of(name): name for name in kept}
    if twice := [name for name in kept if by_stem[stem_of(name)] != name]:
        raise DataError(f"folder {folder} has {visible(twice[0])} in two formats.", field="image")
    return by_stem, out, [f"{domain}/{folder.name}/{name}" for name in others]


# --- data lists ---


def find_data_list(root: Path, spec: SegmentationSpec, domain: str) -> Path | None:
    """Return the data list of a domain, the first of several; None if there is none.

    FLARE's prostate example writes those of ``dataset_2D`` as ``datalist_2D/client_<domain>.json``.
    """
    folder = root / spec.folder
    lists = folder.parent / folder.name.replace("dataset", "datalist")
    places = [folder / domain / "dataset.json", folder / f"{domain}.json"]
    places += [place / f"client_{domain}.json" for place in (folder, lists)]
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


def _in_list(root: Path, path: Path, spec: SegmentationSpec, domain: str, rules: DatasetFile) -> Listing:
    refuse_outside(root, path)
    where = f"data list of domain {domain!r}"
    try:
        content = _DataList.model_validate(read_json(path))
    except pydantic.ValidationError as error:
        raise DataError(f"{where}: {first_problem(error)}", field="data list") from error
    tests = [entry for entry in (*content.test, *content.testing) if entry.label is not None]
    listed = {"training": content.training, "validation": content.validation, "test": tests}
    bases = (path.parent, root / spec.folder, root)
    pairs: dict[str, Sample] = {}
    parts: dict[str, set[str]] = {}
    for part, entry in ((part, entry) for part, entries in listed.items() for entry in entries):
        image, mask = (_listed_file(name, bases, where) for name in (entry.image, entry.label))
        group = entry.group(rules.group_column)
        if image in pairs or (rules.group_column and not group):
            expected = f"each once{f', with its {rules.group}' if rules.group_column else ''}"
            raise DataError(site=where, field="image", value=visible(image), expected=expected)
        pairs[image] = Sample(image, 0, group=group, mask=mask)
        if not rules.leaves_out(pairs[image]):
            parts.setdefault(part, set()).add(image)
    divided = parts if parts.keys() - {"training"} else {}
    return Listing(tuple(pairs.values()), parts=divided, origin="list")


def _listed_file(name: str | None, bases: tuple[Path, Path, Path], where: str) -> str:
    """Return a file of a list as a path below the data set's folder, the second of the ``bases``; root is the last."""
    path = PurePosixPath(name or "")
    check_names(bases[0], path.parts)
    is_below = not path.is_absolute() and not any(part.startswith(".") for part in path.parts)
    base = next((base for base in bases if is_below and is_file(base / path)), None)
    if base is None or not path.name.lower().endswith(PAIR_SUFFIXES):
        expected = f"a file, neither hidden nor above the list, that ends in {', '.join(PAIR_SUFFIXES)}"
        raise DataError(site=where, field="image", value=name, expected=expected)
    refuse_outside(bases[-1], base / path)
    return PurePosixPath(os.path.relpath(base / path, bases[1])).as_posix()
