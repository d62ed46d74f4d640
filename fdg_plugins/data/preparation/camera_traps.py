# SPDX-License-Identifier: Apache-2.0
"""The Caltech camera traps, as published: images in one folder, and annotations that label them.

Reference: Gulrajani, Lopez-Paz, "In Search of Lost Domain Generalization" (DomainBed), ICLR 2021, which selected these
places and species: an image goes into the folder of its place and of each species in its annotations.

Differences: DomainBed copies images one by one and stops at a missing one; here, missing images are counted and
omitted.
"""

from collections.abc import Iterator
from pathlib import PurePosixPath
from typing import Any

from fdg_plugins.data.catalogue import ImageFolderSpec
from fdg_plugins.data.folders import IMAGE_SUFFIXES
from fdg_plugins.data.preparation.sources import Source
from fdg_plugins.errors import DataError
from fdg_plugins.storage import parse_json

_LISTS = ("images", "annotations", "categories")


def annotated_files(spec: ImageFolderSpec, source: Source) -> tuple[dict[str, str], tuple[str, ...]]:
    """Return a map from ``<domain>/<class>/<image>`` to the path in ``source``, and remarks.

    Reads all annotations in COCO format (``*.json``; other files are ignored). Raises DataError, naming the file, if
    annotations do not conform to the format, or if two different images have the same name.
    """
    places = {domain.removeprefix("location_"): domain for domain in spec.domains}
    images = _by_name(source)
    found: dict[str, str] = {}
    missing: set[str] = set()
    for domain, class_name, name in _all_chosen(source, places, spec.classes):
        if name not in images:
            missing.add(name)
        elif len(images[name]) > 1:
            raise DataError(
                f"source {source.name} has {len(images[name])} images named {name}, {images[name][0]} and "
                f"{images[name][1]} among them; expected one."
            )
        else:
            found[f"{domain}/{class_name}/{name}"] = images[name][0]
    return found, (f"{len(missing):,} annotated images are not in the source",) if missing else ()


def _all_chosen(source: Source, places: dict[str, str], classes: tuple[str, ...]) -> Iterator[tuple[str, str, str]]:
    """Yield domain, class and name of every image that the annotations in ``source`` choose."""
    for file in source.files:
        if not file.lower().endswith(".json") or (content := _annotations(source, file)) is None:
            continue
        try:
            chosen = list(_chosen(content, places, classes))
        except (AttributeError, KeyError, TypeError) as error:
            raise DataError(
                f"annotations {file} in {source.name} lack or misplace {error}; expected images with id, file_name and "
                "location, annotations with image_id and category_id, categories with id and name."
            ) from error
        yield from chosen


def _by_name(source: Source) -> dict[str, list[str]]:
    result: dict[str, list[str]] = {}
    for file in source.files:
        if file.lower().endswith(IMAGE_SUFFIXES):
            result.setdefault(PurePosixPath(file).name, []).append(file)
    return result


def _annotations(source: Source, file: str) -> dict[str, Any] | None:
    """Return the content of an annotation file, None if it is another kind of JSON."""
    content = parse_json(source.read_one(file), f"file of annotations {file} in {source.name}")
    is_coco = isinstance(content, dict) and all(isinstance(content.get(name), list) for name in _LISTS)
    return content if is_coco else None


def _chosen(
    content: dict[str, Any], places: dict[str, str], classes: tuple[str, ...]
) -> Iterator[tuple[str, str, str]]:
    """Yield domain, class and file name of every annotation of a selected species at a selected place."""
    names = {category["id"]: category["name"] for category in content["categories"]}
    images = {
        image["id"]: (places[str(image["location"])], PurePosixPath(image["file_name"]).name)
        for image in content["images"]
        if str(image["location"]) in places
    }
    for annotation in content["annotations"]:
        if annotation["image_id"] in images and (class_name := names[annotation["category_id"]]) in classes:
            domain, name = images[annotation["image_id"]]
            yield domain, class_name, name
