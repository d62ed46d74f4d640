# SPDX-License-Identifier: Apache-2.0
"""A drawn stand-in for the retinal vessels, for users who have none of the four data sets.

Bright branching vessels on a disc, with the mask from which they were drawn, in the styles of four cameras. The
pictures are drawn on first use into the user's cache, within seconds, and are identical on every machine. Results on
them show that the software works; they say nothing about retinas.
"""

from pathlib import Path

from PIL import Image

from fdg_plugins.data.catalogue import VESSELS
from fdg_plugins.data.stand_in_files import cache_folder, write_drawings, write_markers
from fdg_plugins.data.stand_in_retina import CAMERAS, draw_retina
from fdg_plugins.errors import DataError
from fdg_plugins.randomness import numpy_generator
from fdg_plugins.values import shorten

VERSION: int = 1
"""Incremented whenever a picture changes, so that an old cache is never mistaken for the new data."""

DATASET: str = VESSELS.name
IMAGES_PER_DOMAIN: int = 32
MOST_PER_DOMAIN: int = 10_000
_NOTE = "These pictures are drawings made by fdg_plugins, not retinas; no result on them is a result on retinas."


def vessels_root(cache: Path | None = None, *, images: int = IMAGES_PER_DOMAIN) -> Path:
    """Return the folder of the drawings, existing or not, below ``cache`` (default: this user's cache of the package).

    A non-default number of images per domain has its own folder.
    """
    suffix = "" if images == IMAGES_PER_DOMAIN else f"-{images}-per-domain"
    return cache_folder(cache) / f"stand-in-vessels-v{VERSION}{suffix}"


def ensure_vessels(cache: Path | None = None, *, images: int = IMAGES_PER_DOMAIN) -> Path:
    """Return the data root, the folder that holds ``vessels/``, after drawing it if it does not exist."""
    return write_vessels(vessels_root(cache, images=images), images=images)


def write_vessels(root: Path, *, images: int = IMAGES_PER_DOMAIN) -> Path:
    """Return ``root`` after drawing ``images`` pairs per domain into it, unless it exists already.

    Raises DataError for fewer than two, for more than ``MOST_PER_DOMAIN``, and as ``write_drawings`` does.
    """
    if not 2 <= images <= MOST_PER_DOMAIN:
        raise DataError(
            f"images per domain is {shorten(images)}; the stand-in for vessels needs at least two, one for training "
            f"and one for validation, and at most {MOST_PER_DOMAIN:,}."
        )
    return write_drawings(root, lambda folder: _build(folder, images))


def draw_pair(domain: str, index: int) -> tuple[Image.Image, Image.Image]:
    """Return picture ``index`` of a domain and its mask, 128 x 128 in RGB and in 0 and 255.

    Equal arguments give equal pixels. Raises DataError for an unknown domain.
    """
    if domain not in CAMERAS:
        raise DataError(f"domain {domain!r} is not drawn; the stand-in for vessels has {', '.join(CAMERAS)}.")
    return draw_retina(CAMERAS[domain], numpy_generator(0, "stand-in", DATASET, VERSION, domain, index))


def _build(folder: Path, images: int) -> None:
    """Draw the whole data set into ``folder``, the markers last."""
    for domain in CAMERAS:
        places = [folder / VESSELS.folder / domain / part for part in ("images", "masks")]
        for place in places:
            place.mkdir(parents=True)
        for index in range(images):
            for place, picture in zip(places, draw_pair(domain, index), strict=True):
                picture.save(place / f"{index:03d}.png")
    write_markers(folder, VESSELS.folder, {"version": VERSION, "images_per_domain": images, "note": _NOTE})
