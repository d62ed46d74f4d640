# SPDX-License-Identifier: Apache-2.0
"""A drawn stand-in for PACS, CelebA or the retinal vessels, for users who have none of them.

The folders, lists, domains and classes are those of the data set; the pictures are the plain drawings of
``drawings``, drawn on first use into the user's cache within seconds, and identical on every machine. Results on them
show that the software works; they say nothing about the data set.
"""

import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from itertools import product
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

import platformdirs

from fdg_plugins.data.catalogue import CELEBA, PACS, VESSELS
from fdg_plugins.data.drawings import draw, draw_pair, draw_portrait
from fdg_plugins.data.folders import is_file
from fdg_plugins.errors import DataError
from fdg_plugins.randomness import numpy_generator
from fdg_plugins.storage import write_json
from fdg_plugins.values import shorten

VERSION = 2
"""Incremented whenever a picture changes, so that an old cache is never mistaken for the new data."""

MARKER = "STAND-IN.json"
"""The file that marks a folder as STAND-IN, and every run on it: in the data root, and in the data set's folder."""

MOST_DRAWINGS = 10_000

PORTRAITS: Mapping[str, tuple[int, int, int, int]] = MappingProxyType(
    {"0": (600, 580, 240, 60), "1": (20, 20, 10, 10), "2": (120, 120, 80, 80)}
)
"""By CelebA's part: how many portraits are dark, dark with the attribute, fair, and fair with the attribute."""

_NO_PLACE = "it has no data root, and the STAND-IN cannot be written to its cache."


def _draw_pacs(folder: Path, count: int) -> None:
    for domain, class_name in product(PACS.domains, PACS.classes):
        target = folder / PACS.folder / domain / class_name
        target.mkdir(parents=True)
        for index in range(count):
            draw(domain, class_name, index).save(target / f"{index:03d}.png")


def _draw_vessels(folder: Path, count: int) -> None:
    for domain in VESSELS.domains:
        places = [folder / VESSELS.folder / domain / part for part in ("images", "masks")]
        for place in places:
            place.mkdir(parents=True)
        for index in range(count):
            for place, picture in zip(places, draw_pair(domain, index), strict=True):
                picture.save(place / f"{index:03d}.png")


def _draw_celeba(folder: Path, _: int) -> None:
    planned = [
        (part, fair, has_attribute, index)
        for part, counts in PORTRAITS.items()
        for (fair, has_attribute), count in zip(product((False, True), repeat=2), counts, strict=True)
        for index in range(count)
    ]
    images = folder / CELEBA.folder / CELEBA.image_folder
    images.mkdir(parents=True)
    attributes, parts = [], []
    order = numpy_generator(0, "stand-in", CELEBA.name, VERSION).permutation(len(planned)).tolist()
    for number, (part, fair, has_attribute, index) in enumerate((planned[place] for place in order), 1):
        name = f"{number:06d}.png"
        draw_portrait(part, fair=fair, has_attribute=has_attribute, index=index).save(images / name)
        attributes.append(f"{name} {1 if fair else -1} {1 if has_attribute else -1}")
        parts.append(f"{name} {part}")
    head = [f"{len(parts)}", f"{CELEBA.target} {CELEBA.attribute}"]
    for name, lines in ((CELEBA.attribute_list, head + attributes), (CELEBA.part_list, parts)):
        (folder / CELEBA.folder / name).write_text("\n".join(lines) + "\n", encoding="ascii")


class _StandIn(NamedTuple):
    """How a stand-in is drawn: ``usual`` and ``fewest`` are numbers of drawings per class (vessels: per domain)."""

    folder: str
    draw: Callable[[Path, int], None]
    usual: int = 0
    fewest: int = 0


STAND_INS: Mapping[str, _StandIn] = {
    PACS.name: _StandIn(PACS.folder, _draw_pacs, usual=30, fewest=1),
    VESSELS.name: _StandIn(VESSELS.folder, _draw_vessels, usual=32, fewest=2),
    CELEBA.name: _StandIn(CELEBA.folder, _draw_celeba),
}
"""The data sets that are drawn, by name."""


def cache_folder(cache: Path | None) -> Path:
    """Return the folder for drawings: ``cache``, or this user's cache of the package."""
    return platformdirs.user_cache_path("fdg_plugins") if cache is None else Path(cache)


def is_stand_in(data_root: Path, folder: str = "") -> bool:
    """Return whether ``data_root``, or ``folder`` in it, holds drawings of this package rather than the user's data."""
    return any(is_file(place / MARKER) for place in (Path(data_root), Path(data_root) / folder))


def ensure_stand_in(
    cache: Path | None = None, dataset: str = PACS.name, *, images_per_class: int | None = None
) -> Path:
    """Return the data root of a data set's stand-in below ``cache``, after drawing it if it does not exist.

    ``images_per_class`` is as in :func:`write_stand_in`; a number other than the usual one has a folder of its own.
    """
    suffix = "" if images_per_class in (None, STAND_INS[dataset].usual) else f"-{images_per_class}"
    return write_stand_in(
        cache_folder(cache) / f"stand-in-{dataset}-v{VERSION}{suffix}", dataset, images_per_class=images_per_class
    )


def write_stand_in(root: Path, dataset: str = PACS.name, *, images_per_class: int | None = None) -> Path:
    """Return ``root`` after drawing a stand-in into it, unless it holds one already; safe for concurrent processes.

    ``images_per_class`` drawings per class (vessels: per domain; CelebA's number is fixed), by default the usual. Each
    process draws into a temporary folder and renames it; one that finishes later uses the first one's. Raises DataError
    for an impossible number, for a folder that cannot be written, and for one that holds anything else: real images
    and drawings never share a data root.
    """
    kind = STAND_INS[dataset]
    number = kind.usual if images_per_class is None else images_per_class
    if not kind.fewest <= number <= MOST_DRAWINGS:
        raise DataError(
            f"the number of drawings is {shorten(number)}; expected {kind.fewest} to {MOST_DRAWINGS:,} for {dataset}."
        )
    with _translated(f"folder {root.parent} cannot hold the stand-in data"):
        if is_stand_in(root):
            return root
        _refuse_occupied(root)
        root.parent.mkdir(parents=True, exist_ok=True)
        temporary = Path(tempfile.mkdtemp(dir=root.parent, prefix=f".{root.name}."))
    try:
        with _translated(f"folder {root} cannot be filled with the stand-in data"):
            kind.draw(temporary, number)
            note = f"Drawings made by fdg_plugins, not the data set {dataset}; no result on them is a result on it."
            facts = {"stand_in": True, "version": VERSION, "images_per_class": number, "note": note}
            write_json(temporary / kind.folder / MARKER, facts)  # stays with the folder if that is moved
            write_json(temporary / MARKER, facts)
            _publish(temporary, root)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
    return root


@contextmanager
def _translated(problem: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise DataError(f"{problem}: {error.strerror}.", public=_NO_PLACE) from error


def _refuse_occupied(root: Path) -> None:
    if root.exists() and (not root.is_dir() or any(root.iterdir())):
        raise DataError(
            f"{root} is in the way and is not the stand-in data; expected a new or an empty folder.", public=_NO_PLACE
        )


def _publish(temporary: Path, root: Path) -> None:
    """Rename the finished folder to its final name, unless another process has already published its own."""
    temporary.chmod(0o755)  # mkdtemp makes the folder readable by its owner only
    try:
        temporary.rename(root)
    except OSError:
        if not is_stand_in(root):
            raise
