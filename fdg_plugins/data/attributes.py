# SPDX-License-Identifier: Apache-2.0
"""Images in one folder with a list of their attributes and a list of their parts: the files of CelebA.

``list_attr_celeba.txt`` has the number of images in its first line, the names of the attributes in the second, and then
a line per image: its file name, and 1 or -1 for each attribute. ``list_eval_partition.txt`` has a file name and the
number of a part in each line. Only the two lists and the names in the folder are read when a domain is opened; images
are decoded when they are needed. Evaluations also tell an attribute of each image; training and reports never do.
"""

import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path

from fdg_plugins.data.folders import image_names, is_file, is_folder, refuse_outside, resolved
from fdg_plugins.data.image_files import ImageFiles, WholeImages
from fdg_plugins.data.sources import Epochs
from fdg_plugins.data.specs import IMAGE_SUFFIXES, AttributeSample, AttributeSpec, Sample
from fdg_plugins.errors import DataError
from fdg_plugins.values import shorten

HAS, HAS_NOT = "1", "-1"

_NUMBER = re.compile(r"\d{1,9}")
_PLAIN_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*", re.ASCII)


@dataclass(frozen=True)
class AttributeFiles(ImageFiles):
    """Images with attributes below ``folder``, used whole: resized only, as they are in the papers' code.

    Targets are labels ``[B]`` in training and in what methods report, labels and attributes ``[B, 2]`` in evaluations.
    """

    reports_differ = True

    def training(self, samples: Sequence[Sample], image_size: int, epochs: Epochs) -> WholeImages:
        """Return the whole images with their labels, once per epoch."""
        return WholeImages(self, samples, image_size, len(epochs))

    def evaluation(self, samples: Sequence[Sample], image_size: int) -> "AttributeImages":
        """Return the whole images with labels and attributes."""
        return AttributeImages(self, samples, image_size)

    def reported(self, samples: Sequence[Sample], image_size: int, epochs: Epochs) -> WholeImages:
        """Return the whole images with their labels."""
        return WholeImages(self, samples, image_size)


class AttributeImages(WholeImages):
    """Samples as ``(image uint8 [3, S, S], (label, attribute))``, in batches with targets ``[B, 2]``."""

    def target_of(self, sample: Sample) -> tuple[int, int]:
        """Return label and attribute."""
        assert isinstance(sample, AttributeSample)
        return sample.label, sample.attribute


def list_attributed(data_root: Path, spec: AttributeSpec, domain: str) -> tuple[Path, tuple[AttributeSample, ...]]:
    """Return the resolved data root, and the images of a domain, sorted by file, which is the path below the folder.

    Raises DataError for lists that are missing, no text, or have a line of another form, an image that only one of them
    names or that is not in the folder, names that are not plain names of image files, links that leave the data root,
    and a class without images.
    """
    root = resolved(data_root)
    attributes = _attributes(_List(root, spec, spec.attribute_list), spec)
    parts = _parts(_List(root, spec, spec.part_list))
    if odd := sorted(attributes.keys() ^ parts.keys()):
        raise DataError(
            f"image {odd[0]} is in only one of {spec.attribute_list} and {spec.part_list} in {root / spec.folder}.",
            public=f"{len(odd):,} images of {spec.title} are in one of its two lists only.",
        )
    chosen = sorted(name for name, part in parts.items() if part == spec.parts[domain])
    _check_files(root, spec, chosen)
    samples = tuple(AttributeSample(f"{spec.image_folder}/{name}", *attributes[name]) for name in chosen)
    for label, name in enumerate(spec.classes):
        if not any(sample.label == label for sample in samples):
            raise DataError(f"part {domain!r} of {spec.title} has no image of class {name!r}.", public=True)
    return root, samples


class _List:
    """The lines of a list; its errors name it and the line in the site's own log, and neither path nor image in public.

    Raises DataError if the list is missing, no text, or a link out of the data root.
    """

    def __init__(self, root: Path, spec: AttributeSpec, name: str) -> None:
        self.path = root / spec.folder / name
        self.what = f"list {name} of {spec.title}"
        if not is_file(self.path):
            raise DataError(
                f"{self.what} is missing; expected the file {self.path}.", public=f"{self.what} is missing."
            )
        refuse_outside(root, self.path)
        try:
            self.lines = self.path.read_text(encoding="utf-8-sig").splitlines()
        except (OSError, UnicodeDecodeError) as error:
            problem = f"cannot be read as text ({type(error).__name__})"
            raise DataError(f"{self.path} {problem}.", public=f"{self.what} {problem}.") from error

    def error(self, number: int, expected: str) -> DataError:
        """Return the error for a line that is not as expected."""
        found = shorten(self.lines[number - 1]) if number <= len(self.lines) else "missing"
        return DataError(
            f"{self.path}, line {number}: it is {found}; expected {expected}.",
            public=f"{self.what}, line {number}: it has another form; expected {expected}.",
        )

    def entries(self, start: int) -> dict[str, tuple[int, list[str]]]:
        """Return the line's number and the other words of each line from line ``start`` on, by the name of its image.

        A name is a plain one of an image file, and no path that leaves the folder.
        """
        found: dict[str, tuple[int, list[str]]] = {}
        for number, line in enumerate(self.lines[start - 1 :], start):
            if not line.strip():
                continue
            name, *others = line.split()
            if not _PLAIN_NAME.fullmatch(name) or not name.lower().endswith(IMAGE_SUFFIXES) or name in found:
                raise self.error(number, "the name of an image file without any folder, each once")
            found[name] = number, others
        return found


def _attributes(found: _List, spec: AttributeSpec) -> dict[str, tuple[int, int]]:
    count, header = ([*found.lines, "", ""])[:2]
    names = header.split()
    if names.count(spec.target) != 1 or names.count(spec.attribute) != 1:
        raise found.error(2, f"the names of the attributes, {spec.target} and {spec.attribute} once among them")
    target, attribute = names.index(spec.target), names.index(spec.attribute)
    result: dict[str, tuple[int, int]] = {}
    for name, (number, values) in found.entries(3).items():
        if len(values) != len(names) or not {HAS, HAS_NOT}.issuperset(values):
            raise found.error(number, f"{len(names)} values, {HAS} or {HAS_NOT} for each attribute")
        result[name] = (int(values[target] == HAS_NOT), int(values[attribute] == HAS))
    if not _NUMBER.fullmatch(count.strip()) or len(result) != int(count):
        raise found.error(1, f"the number of images, and {len(result):,} lines follow")
    return result


def _parts(found: _List) -> dict[str, str]:
    result: dict[str, str] = {}
    for name, (number, words) in found.entries(1).items():
        if len(words) != 1 or not _NUMBER.fullmatch(words[0]):
            raise found.error(number, "the name of an image and a part's number")
        result[name] = words[0]
    return result


def _check_files(root: Path, spec: AttributeSpec, needed: Collection[str]) -> None:
    folder = root / spec.folder / spec.image_folder
    if not is_folder(folder):
        raise DataError(
            f"folder {folder} is missing; expected it to hold the images of {spec.title}.",
            public=f"{spec.title} lacks its folder of images.",
        )
    refuse_outside(root, folder)
    present = set(image_names(root, folder, f"the folder of images of {spec.title}"))
    if absent := [name for name in needed if name not in present]:
        listing = f"of the {len(needed):,} images listed for a part of {spec.title}, {len(absent):,} are missing"
        raise DataError(f"{listing} in {folder}, such as {absent[0]}.", public=f"{listing}.")
