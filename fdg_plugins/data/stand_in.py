# SPDX-License-Identifier: Apache-2.0
"""A drawn stand-in for PACS, for users who do not have PACS: the same folders, domains and classes, but drawings.

The pictures are drawn on first use into the user's cache, within seconds, and are identical on every machine. Results
on them show that the software works; they say nothing about PACS.
"""

from pathlib import Path

from PIL import Image

from fdg_plugins.data.catalogue import PACS
from fdg_plugins.data.stand_in_files import cache_folder, write_drawings, write_markers
from fdg_plugins.data.stand_in_paint import CANVAS
from fdg_plugins.data.stand_in_shapes import SHAPES, pose
from fdg_plugins.data.stand_in_styles import EXAGGERATION, STYLES
from fdg_plugins.errors import DataError
from fdg_plugins.randomness import numpy_generator
from fdg_plugins.values import shorten

STAND_IN_VERSION: int = 1
"""Incremented whenever a picture changes, so that an old cache is never mistaken for the new data."""

DATASET: str = PACS.name
"""The data set that is drawn."""

IMAGES_PER_CLASS: int = 30
MOST_PER_CLASS: int = 10_000

_NOTE = "These pictures are drawings made by fdg_plugins, not the PACS data set; no result on them is a result on PACS."


def stand_in_root(cache: Path | None = None, *, images_per_class: int = IMAGES_PER_CLASS) -> Path:
    """Return the folder of the drawings, existing or not, below ``cache`` (default: this user's cache of the package).

    A non-default number of images has its own folder.
    """
    suffix = "" if images_per_class == IMAGES_PER_CLASS else f"-{images_per_class}-per-class"
    return cache_folder(cache) / f"stand-in-v{STAND_IN_VERSION}{suffix}"


def ensure_stand_in(cache: Path | None = None, *, images_per_class: int = IMAGES_PER_CLASS) -> Path:
    """Return the data root, the folder that holds ``pacs/``, after drawing it if it does not exist.

    Any number of processes may call this at once: each draws into its own temporary folder and renames it. A process
    that finishes later discards its folder and uses the first one. The final name never shows an incomplete folder.
    """
    return write_stand_in(stand_in_root(cache, images_per_class=images_per_class), images_per_class=images_per_class)


def write_stand_in(root: Path, *, images_per_class: int = IMAGES_PER_CLASS) -> Path:
    """Return ``root`` after drawing the stand-in into it, unless it exists already; safe for concurrent processes.

    Raises DataError for fewer than one image per class, for more than ``MOST_PER_CLASS``, for a folder that cannot be
    written, and for one that holds anything else: real images and drawings never share a data root.
    """
    if not 1 <= images_per_class <= MOST_PER_CLASS:
        raise DataError(
            f"images_per_class is {shorten(images_per_class)}; the stand-in needs at least one per class, and at most "
            f"{MOST_PER_CLASS:,}."
        )
    return write_drawings(root, lambda folder: _build(folder, images_per_class))


def draw(domain: str, class_name: str, index: int) -> Image.Image:
    """Return picture ``index`` of a class in a domain, 64 x 64 RGB: equal arguments give equal pixels."""
    if domain not in STYLES:
        raise DataError(f"domain {domain!r} is not drawn; the stand-in has {', '.join(STYLES)}.")
    if class_name not in SHAPES:
        raise DataError(f"class {class_name!r} is not drawn; the stand-in has {', '.join(SHAPES)}.")
    generator = numpy_generator(0, "stand-in", STAND_IN_VERSION, domain, class_name, index)
    parts = pose(class_name, CANVAS, generator.uniform(*EXAGGERATION[domain]), generator)
    return STYLES[domain](parts, class_name, generator).reduce(2)


def _build(folder: Path, images_per_class: int) -> None:
    """Draw the whole data set into ``folder``, the marker last."""
    for domain in STYLES:
        for class_name in SHAPES:
            target = folder / PACS.folder / domain / class_name
            target.mkdir(parents=True)
            for index in range(images_per_class):
                draw(domain, class_name, index).save(target / f"{index:03d}.png")
    facts = {"version": STAND_IN_VERSION, "images_per_class": images_per_class, "note": _NOTE}
    write_markers(folder, PACS.folder, facts)
