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

from fdg_plugins.data.specs import IMAGE_SUFFIXES, ImageFolderSpec
from fdg_plugins.errors import DataError
from fdg_plugins.lab.preparation.sources import Source
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
        if name in images:
            found[f"{domain}/{class_name}/{name}"] = _only_one(images[name], name, source)
        else:
            missing.add(name)
    return found, (f"{len(missing):,} annotated images are not in the source",) if missing else ()


def _all_chosen(source: Source, places: dict[str, str], classes: tuple[str, ...]) -> Iterator[tuple[str, str, str]]:
    """Yield domain, class and name of every image that the annotations in ``source`` choose."""
    for file in source.files:
        if file.lower().endswith(".json"):
            yield from _chosen_by(file, source, places, classes)


def _chosen_by(
    file: str, source: Source, places: dict[str, str], classes: tuple[str, ...]
) -> list[tuple[str, str, str]]:
    """Return what one file of annotations chooses, nothing for another kind of JSON; raise DataError if malformed."""
    content = _annotations(source, file)
    if content is None:
        return []
    try:
        return list(_chosen(content, places, classes))
    except (AttributeError, KeyError, TypeError) as error:
        raise DataError(
            f"annotations {file} in {source.name} lack or misplace {error}; expected images with id, file_name and "
            "location, annotations with image_id and category_id, categories with id and name."
        ) from error


def _only_one(files: list[str], name: str, source: Source) -> str:
    if len(files) > 1:
        raise DataError(
            f"source {source.name} has {len(files)} images named {name}, {files[0]} and {files[1]} among them; "
            "expected one."
        )
    return files[0]


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
    images = _images_at(places, content)
    for annotation in content["annotations"]:
        if annotation["image_id"] in images and (class_name := names[annotation["category_id"]]) in classes:
            domain, name = images[annotation["image_id"]]
            yield domain, class_name, name


def _images_at(places: dict[str, str], content: dict[str, Any]) -> dict[Any, tuple[str, str]]:
    """Return domain and file name of every image taken at one of the places, by the image's id."""
    return {
        image["id"]: (places[str(image["location"])], PurePosixPath(image["file_name"]).name)
        for image in content["images"]
        if str(image["location"]) in places
    }
