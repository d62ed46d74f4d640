# SPDX-License-Identifier: Apache-2.0
"""Images in one folder with a list of their attributes and a list of their parts: the files of CelebA.

``list_attr_celeba.txt`` has the number of images in its first line, the names of the attributes in the second, and then
a line per image: its file name, and 1 or -1 for each attribute. ``list_eval_partition.txt`` has a file name and the
number of a part in each line. Only the two lists and the names in the folder are read here, and no image.
"""

import re
from pathlib import Path

from fdg_plugins.data.folders import image_names, refuse_outside, resolved
from fdg_plugins.data.specs import IMAGE_SUFFIXES, AttributeSample, AttributeSpec
from fdg_plugins.errors import DataError, shorten

HAS, HAS_NOT = "1", "-1"

_NUMBER = re.compile(r"\d{1,9}")
_PLAIN_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*", re.ASCII)


def list_attributed(data_root: Path, spec: AttributeSpec, domain: str) -> tuple[Path, tuple[AttributeSample, ...]]:
    """Return the resolved data root, and the images of a domain, sorted by file, which is the path below the folder.

    Raises DataError for lists that are missing, no text, or have a line of another form, an image that only one of them
    names or that is not in the folder, names that are not plain names of image files, links that leave the data root,
    and a class without images.
    """
    root = resolved(data_root)
    attributes = _attributes(root, spec)
    parts = {}
    for name, (number, words) in _entries(root, spec, spec.part_list, 1)[1].items():
        if len(words) != 1 or not _NUMBER.fullmatch(words[0]):
            raise _odd(spec.part_list, number, "the name of an image and a part's number", " ".join(words))
        parts[name] = words[0]
    if odd := sorted(attributes.keys() ^ parts.keys()):
        raise DataError(f"image {odd[0]} is in only one of {spec.attribute_list} and {spec.part_list}.")
    chosen = sorted(name for name, part in parts.items() if part == spec.parts[domain])
    folder = root / spec.folder / spec.image_folder
    present = set(image_names(root, folder))
    if absent := [name for name in chosen if name not in present]:
        problem = f"of the {len(chosen):,} images listed for a part of {spec.title}, {len(absent):,} are missing"
        raise DataError(f"{problem} in {folder}, such as {absent[0]}.", public=f"{problem}.")
    samples = tuple(AttributeSample(f"{spec.image_folder}/{name}", *attributes[name]) for name in chosen)
    if {sample.label for sample in samples} != {*range(len(spec.classes))}:
        raise DataError(f"part {domain!r} of {spec.title} lacks images of a class.", public=True)
    return root, samples


def _entries(
    root: Path, spec: AttributeSpec, name: str, start: int
) -> tuple[list[str], dict[str, tuple[int, list[str]]]]:
    """Return the lines of a list before line ``start``, and of the others number and words by the name of an image.

    A name is a plain one of an image file, and no path that leaves the folder.
    """
    path = root / spec.folder / name
    refuse_outside(root, path)
    try:
        lines = path.read_text(encoding="utf-8-sig").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"list {path} cannot be read as text ({type(error).__name__}).") from error
    found: dict[str, tuple[int, list[str]]] = {}
    for number, line in enumerate(lines[start - 1 :], start):
        if not line.strip():
            continue
        image, *words = line.split()
        if not _PLAIN_NAME.fullmatch(image) or not image.lower().endswith(IMAGE_SUFFIXES) or image in found:
            raise _odd(name, number, "the name of an image file without any folder, each once", line)
        found[image] = number, words
    return lines[: start - 1], found


def _odd(name: str, number: int, expected: str, line: str) -> DataError:
    """Return the error for a line that is not as expected."""
    return DataError(f"list {name}, line {number}: it is {shorten(line)}; expected {expected}.")


def _attributes(root: Path, spec: AttributeSpec) -> dict[str, tuple[int, int]]:
    name = spec.attribute_list
    head, entries = _entries(root, spec, name, 3)
    count, header = ([*head, "", ""])[:2]
    names = header.split()
    if names.count(spec.target) != 1 or names.count(spec.attribute) != 1:
        raise _odd(name, 2, f"the names of the attributes, {spec.target} and {spec.attribute} once among them", header)
    target, attribute = names.index(spec.target), names.index(spec.attribute)
    result: dict[str, tuple[int, int]] = {}
    for image, (number, values) in entries.items():
        if len(values) != len(names) or not {HAS, HAS_NOT}.issuperset(values):
            raise _odd(name, number, f"{len(names)} values, {HAS} or {HAS_NOT} for each attribute", " ".join(values))
        result[image] = (int(values[target] == HAS_NOT), int(values[attribute] == HAS))
    if not _NUMBER.fullmatch(count.strip()) or len(result) != int(count):
        raise _odd(name, 1, f"the number of images, and {len(result):,} lines follow", count)
    return result
