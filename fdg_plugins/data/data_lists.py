# SPDX-License-Identifier: Apache-2.0
"""Data lists in the form of the Medical Segmentation Decathlon, which MONAI and FLARE's prostate example use.

A list is a JSON object: ``training``, and optionally ``validation`` and ``test`` (or ``testing``), each a list of
``{"image": path, "label": path}``. All other keys are ignored, and so are images for testing without a label. A path is
relative to the folder of the list, to that of the data set, or to the data root; the first that exists counts.
"""

import os
from collections.abc import Mapping
from pathlib import Path, PurePosixPath
from typing import Any

from fdg_plugins.data.folders import check_names, is_file, refuse_outside
from fdg_plugins.data.pair_names import PAIR_SUFFIXES, refuse_mixed
from fdg_plugins.data.specs import PairSample, SegmentationSpec
from fdg_plugins.errors import DataError
from fdg_plugins.storage import read_json
from fdg_plugins.values import shorten

LARGEST_LIST = 2**26  # bytes

PairPart = tuple[PairSample, ...]


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


def read_data_list(root: Path, path: Path, spec: SegmentationSpec, domain: str) -> tuple[PairPart, PairPart, PairPart]:
    """Return the pairs that the list at ``path`` names for training, validation and test, each sorted by image.

    The last two may be empty. Raises DataError, naming list and entry, if the list cannot be read or has another form,
    if a file is missing, named twice or outside the data root.
    """
    reader = _Reader(root, path, spec, domain)
    lists = reader.lists()
    training, validation = (reader.part(lists, key) for key in ("training", "validation"))
    tests = [key for key in ("test", "testing") if lists.get(key)]
    if len(tests) > 1:
        raise reader.error("it has both 'test' and 'testing', expected one")
    test = reader.part(lists, tests[0]) if tests else ()
    if not training:
        raise reader.error("it names no training image, expected a list 'training' of images with labels")
    return training, validation, test


class _Reader:
    """Reads one data list; errors name list and file in the site's own log, but not in public."""

    def __init__(self, root: Path, path: Path, spec: SegmentationSpec, domain: str) -> None:
        self.root = root
        self.path = path
        self.folder = root / spec.folder
        self.public = f"its data list of domain {domain!r}"
        self._named: dict[str, str] = {}  # where each image was named

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

    def part(self, lists: Mapping[str, Any], key: str) -> PairPart:
        """Return the labelled images of one of the lists; images for testing may come without a label."""
        entries = lists.get(key, [])
        if not isinstance(entries, list):
            raise self.error(f"{key!r} is not a list, expected one of images with labels")
        unlabelled = key in ("test", "testing")
        pairs = [
            self._pair(entry, f"{key}, entry {number}")
            for number, entry in enumerate(entries, start=1)
            if not (unlabelled and _has_no_label(entry))
        ]
        return tuple(sorted(pairs, key=lambda pair: pair.file))

    def _pair(self, entry: Any, place: str) -> PairSample:
        if not isinstance(entry, dict) or not all(isinstance(entry.get(key), str) for key in ("image", "label")):
            expected = 'expected {"image": "<path>", "label": "<path>"}'
            raise self.error(f"{place}: it has another form, {expected}", f"got {shorten(entry)}")
        image, mask = (self._file(entry[key], f"{place}: its {key}") for key in ("image", "label"))
        refuse_mixed(image, mask, f"data list {self.path}", self.public)
        if image in self._named:
            detail = f"{image}, {self._named[image]}"
            raise self.error(f"{place}: its image is named before, expected each once", detail)
        self._named[image] = place
        return PairSample(image, 0, mask)

    def _file(self, named: str, place: str) -> str:
        """Return the path of a file, relative to the data set's folder."""
        path = self._path(named, place)
        for base in (self.path.parent, self.folder, self.root):
            if is_file(base / path):
                refuse_outside(self.root, base / path)
                return PurePosixPath(os.path.relpath(base / path, self.folder)).as_posix()
        raise self.error(f"{place} does not exist", shorten(named))

    def _path(self, named: str, place: str) -> PurePosixPath:
        """Return a path as the list names it, if it is a name that folders may have too."""
        check_names(self.path, self.public, [named])
        path = PurePosixPath(named)
        if path.is_absolute() or any(part.startswith(".") for part in path.parts):
            raise self.error(f"{place} is absolute, hidden or above the list, expected a relative path", shorten(named))
        if not path.name.lower().endswith(PAIR_SUFFIXES):
            raise self.error(f"{place} has another suffix, expected one of {', '.join(PAIR_SUFFIXES)}", shorten(named))
        return path


def _has_no_label(entry: Any) -> bool:
    return isinstance(entry, str) or (isinstance(entry, dict) and "label" not in entry)
