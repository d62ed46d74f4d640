# SPDX-License-Identifier: Apache-2.0
"""Images in one folder with a list of their attributes and a list of their parts: the files of CelebA.

``list_attr_celeba.txt`` has the number of images in its first line, the names of the attributes in the second, and then
a line per image: its file name, and 1 or -1 for each attribute. ``list_eval_partition.txt`` has a file name and the
number of a part in each line.
"""

from pathlib import Path

from fdg_plugins.data.folders import image_names, read_lines
from fdg_plugins.data.specs import AttributeSample, AttributeSpec, Listing
from fdg_plugins.errors import DataError

HAS, HAS_NOT = "1", "-1"


def list_attributed(root: Path, spec: AttributeSpec, domain: str) -> Listing:
    """Return the images of a domain below a resolved data root."""
    (_, _), (_, header), *_ = [*read_lines(root, root / spec.folder / spec.attribute_list), (0, ""), (0, "")]
    names = header.split()
    if not {spec.target, spec.attribute} <= {*names}:
        expected = f"names of attributes, {spec.target} and {spec.attribute} among them"
        raise DataError(site=spec.attribute_list, field="line 2", value=header, expected=expected)
    target, attribute = names.index(spec.target), names.index(spec.attribute)
    rows = _rows(root, spec, spec.attribute_list, 2, len(names))
    attributes = {name: (int(row[target] == HAS_NOT), int(row[attribute] == HAS)) for name, row in rows.items()}
    parts = {name: part for name, (part,) in _rows(root, spec, spec.part_list, 0, 1).items()}
    if odd := sorted(attributes.keys() ^ parts.keys()):
        raise DataError(f"image {odd[0]} is in only one of {spec.attribute_list} and {spec.part_list}.")
    chosen = sorted(name for name, part in parts.items() if part == spec.parts[domain])
    folder = root / spec.folder / spec.image_folder
    if absent := sorted({*chosen} - {*image_names(root, folder)}):  # a name with a folder is none of these either
        problem = f"of the {len(chosen):,} images listed for a part of {spec.title}, {len(absent):,} are missing"
        raise DataError(f"{problem} in {folder}, such as {absent[0]!r}.", public=f"{problem}.")
    samples = tuple(AttributeSample(f"{spec.image_folder}/{name}", *attributes[name]) for name in chosen)
    if {sample.label for sample in samples} != {*range(len(spec.classes))}:
        raise DataError(f"part {domain!r} of {spec.title} lacks images of a class.", public=True)
    return Listing(samples)


def _rows(root: Path, spec: AttributeSpec, name: str, start: int, columns: int) -> dict[str, list[str]]:
    found = {}
    for number, line in read_lines(root, root / spec.folder / name)[start:]:
        image, *values = line.split()
        if len(values) != columns or not all(value.lstrip("-").isdecimal() for value in values) or image in found:
            expected = f"the name of an image, each once, and {columns} numbers"
            raise DataError(site=f"list {name}", field=f"line {number}", value=line, expected=expected)
        found[image] = values
    return found
