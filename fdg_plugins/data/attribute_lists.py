# SPDX-License-Identifier: Apache-2.0
"""Images in one folder with a list of their attributes and a list of their parts: the files of CelebA.

``list_attr_celeba.txt`` has the number of images in its first line, the names of the attributes in the second, and then
a line per image: its file name, and 1 or -1 for each attribute. ``list_eval_partition.txt`` has a file name and the
number of a part in each line. Only the two lists and the names in the folder are read when a domain is opened; images
are decoded when they are needed.
"""

import re
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path

from fdg_plugins.data.folders import image_names, is_file, is_folder, refuse_outside, resolved
from fdg_plugins.data.specs import IMAGE_SUFFIXES, AttributeSample, AttributeSpec
from fdg_plugins.errors import DataError
from fdg_plugins.values import shorten

HAS, HAS_NOT = "1", "-1"

_VALUES = frozenset((HAS, HAS_NOT))
_NUMBER = re.compile(r"\d{1,9}")
_PLAIN_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*", re.ASCII)


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
        lists = (spec.attribute_list, spec.part_list)
        having, lacking = lists if odd[0] in attributes else lists[::-1]
        raise DataError(
            f"image {odd[0]} is in {having} and not in {lacking} of {root / spec.folder}; expected it in both.",
            public=f"{len(odd):,} images of {spec.title} are in one of its two lists only.",
        )
    chosen = sorted(name for name, part in parts.items() if part == spec.parts[domain])
    _check_files(root, spec, parts, chosen)
    samples = tuple(AttributeSample(f"{spec.image_folder}/{name}", *attributes[name]) for name in chosen)
    for label, name in enumerate(spec.classes):
        if not any(sample.label == label for sample in samples):
            raise DataError(
                f"{spec.part_list} gives part {domain!r} of {spec.title} no image of class {name!r}; expected some.",
                public=f"part {domain!r} of {spec.title} has no image of class {name!r}.",
            )
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

    def entries(self, start: int) -> Iterator[tuple[int, list[str]]]:
        """Yield the number, from 1, and the words of each line that is not empty, from line ``start`` on."""
        for number, line in enumerate(self.lines[start - 1 :], start):
            if words := line.split():
                yield number, words

    def error(self, number: int, found: str, expected: str, public: str = "it has another form") -> DataError:
        """Return the error for a line; ``public`` says what is wrong without quoting it."""
        return DataError(
            f"{self.path}, line {number}: {found}; expected {expected}.",
            public=f"{self.what}, line {number}: {public}; expected {expected}.",
        )


def _attributes(found: _List, spec: AttributeSpec) -> dict[str, tuple[int, int]]:
    """Return label and attribute by name of the image."""
    count, header = ([*found.lines, "", ""])[:2]
    if not _NUMBER.fullmatch(count.strip()):
        raise found.error(1, f"it is {shorten(count)}", "the number of images")
    names = header.split()
    target, attribute = (_column(found, names, name) for name in (spec.target, spec.attribute))
    result: dict[str, tuple[int, int]] = {}
    for number, (name, *values) in found.entries(3):
        _check_name(found, number, name, result)
        if len(values) != len(names):
            raise found.error(number, f"it has {len(values)} values", f"{len(names)}, one for each attribute")
        if not _VALUES.issuperset(values):
            wrong = next(value for value in values if value not in _VALUES)
            raise found.error(number, f"it has the value {shorten(wrong)}", f"{HAS} or {HAS_NOT}")
        result[name] = (int(values[target] == HAS_NOT), int(values[attribute] == HAS))
    if len(result) != int(count):
        raise found.error(1, f"it says {int(count):,} images, and {len(result):,} lines follow", "as many lines")
    return result


def _column(found: _List, names: Sequence[str], name: str) -> int:
    if names.count(name) != 1:
        problem = f"it names the attribute {name} {names.count(name)} times"
        raise found.error(2, problem, "the names of the attributes, this one once", problem)
    return names.index(name)


def _parts(found: _List) -> dict[str, str]:
    """Return the number of the part by name of the image."""
    result: dict[str, str] = {}
    for number, words in found.entries(1):
        _check_name(found, number, words[0], result)
        if len(words) != 2 or not _NUMBER.fullmatch(words[1]):
            raise found.error(number, f"it is {shorten(' '.join(words))}", "the name of an image and a part's number")
        result[words[0]] = words[1]
    return result


def _check_name(found: _List, number: int, name: str, known: Collection[str]) -> None:
    """Refuse what is not a plain name of an image file, such as a path that leaves the folder, and a second mention."""
    if not _PLAIN_NAME.fullmatch(name) or not name.lower().endswith(IMAGE_SUFFIXES):
        raise found.error(number, f"it names {shorten(name)}", "the name of an image file without any folder")
    if name in known:
        raise found.error(number, f"it names {name} once more", "each image once", "an image is named twice")


def _check_files(root: Path, spec: AttributeSpec, listed: Collection[str], needed: Sequence[str]) -> None:
    """Refuse a folder that is missing or outside, and one without the images of the domain."""
    folder = root / spec.folder / spec.image_folder
    if not is_folder(folder):
        raise DataError(
            f"folder {folder} is missing; expected it to hold the {len(listed):,} images of {spec.title}.",
            public=f"{spec.title} lacks its folder of images.",
        )
    refuse_outside(root, folder)
    present = set(image_names(root, folder, f"the folder of images of {spec.title}"))
    if absent := [name for name in needed if name not in present]:
        listing = f"of the {len(needed):,} images listed for a part of {spec.title}"
        raise DataError(
            f"{listing}, {len(absent):,} are not in {folder}, such as {absent[0]}; expected all.",
            public=f"{listing}, {len(absent):,} are missing.",
        )
