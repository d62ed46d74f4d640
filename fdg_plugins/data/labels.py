# SPDX-License-Identifier: Apache-2.0
"""Images of which each has any number of classes, in a list ``<domain>/labels.csv``.

Its first line names columns: ``image``, the path of an image below the domain's folder, and one for each class, with 1
for an image that has it and 0 for any other. Further columns are ignored, but for that of the images' group.
"""

import csv
from pathlib import Path, PurePosixPath

from fdg_plugins.data.folders import check_names, existing_root, is_file, list_domain, read_lines, refuse_outside
from fdg_plugins.data.groups import with_groups
from fdg_plugins.data.own_files import LABELS_FILE, NO_RULES, DatasetFile
from fdg_plugins.data.specs import ImageFolderSpec, LabelsSample, Listing, Sample
from fdg_plugins.errors import DataError

IMAGE = "image"
VALUES = {"0": 0, "0.0": 0, "1": 1, "1.0": 1}


def list_images(data_root: Path, spec: ImageFolderSpec, domain: str, rules: DatasetFile = NO_RULES) -> Listing:
    """Return what a domain of labelled images holds, by its folders or, for the task ``multilabel``, by its list."""
    return (list_labels if spec.task == "multilabel" else list_domain)(data_root, spec, domain, rules)


def list_labels(data_root: Path, spec: ImageFolderSpec, domain: str, rules: DatasetFile = NO_RULES) -> Listing:
    """Return the listed images of a domain, without those that ``rules`` exclude."""
    root = existing_root(data_root, spec, domain)
    base, path = root / spec.folder, root / spec.folder / domain / LABELS_FILE
    (_, head), *rows = read_lines(root, path) or [(1, "")]
    columns = next(csv.reader([head]), [])
    needed = (IMAGE, *spec.classes, *filter(None, (rules.group_column,)))
    if not {*needed} <= {*columns}:
        expected = f"the columns {', '.join(needed)}"
        raise DataError(site=f"list {path}", field="line 1", value=head, expected=expected)
    found: dict[str, Sample] = {}
    groups: dict[str, str] = {}
    for number, text in rows:
        row = {name: value.strip() for name, value in zip(columns, next(csv.reader([text])), strict=False)}
        present = tuple(VALUES.get(row.get(name, ""), -1) for name in spec.classes)
        name = PurePosixPath(row.get(IMAGE, ""))
        image = base / domain / name
        is_there = not name.is_absolute() and ".." not in name.parts and is_file(image)
        group = row.get(rules.group_column or IMAGE)
        if -1 in present or not is_there or not group or (file := f"{domain}/{name}") in found:
            expected = "an image in the domain's folder, named once, 0 or 1 for each class, and its group, if any"
            raise DataError(site=f"list {path}", field=f"line {number}", value=text, expected=expected)
        refuse_outside(root, image)
        found[file], groups[file] = LabelsSample(file, 0, present), group
    check_names(base / domain, found)
    skipped = tuple(sorted(file for file in found if rules.excludes(file)))
    images = tuple(found[file] for file in sorted(found.keys() - {*skipped}))
    if not images:
        raise DataError(f"list {path} names no usable image of domain {domain!r}.")
    return with_groups(Listing(images, skipped), rules, groups)
