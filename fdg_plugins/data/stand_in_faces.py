# SPDX-License-Identifier: Apache-2.0
"""A drawn stand-in for CelebA, for users who do not have it: its files and lists, but drawings of faces.

Fair hair is the class, a beard with broad shoulders the attribute. As in CelebA, few bearded faces are fair, and of
those that train almost none, while the tone of the hair alone does not always tell the class; so a network that judges
by the beard as well is right on most faces and wrong on the bearded fair ones. The pictures are drawn on first use into
the user's cache, within seconds, and are identical on every machine. Results on them show that the software works; they
say nothing about CelebA.
"""

from collections.abc import Iterator, Mapping
from itertools import product
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

import numpy as np
from PIL import Image, ImageDraw

from fdg_plugins.data.attribute_lists import HAS, HAS_NOT
from fdg_plugins.data.catalogue import CELEBA
from fdg_plugins.data.stand_in_files import cache_folder, write_drawings, write_markers
from fdg_plugins.data.stand_in_paint import Colour, mix, vary
from fdg_plugins.randomness import numpy_generator

VERSION: int = 1
"""Incremented whenever a picture changes, so that an old cache is never mistaken for the new data."""

DATASET: str = CELEBA.name

FACES: Mapping[str, tuple[int, int, int, int]] = MappingProxyType(
    {"0": (600, 580, 240, 60), "1": (20, 20, 10, 10), "2": (120, 120, 80, 80)}
)
"""By part of the list: how many faces are dark, dark with a beard, fair, and fair with a beard."""

_OTHER = "Smiling"  # an attribute in the lists that nothing reads
_NOTE = "These pictures are drawings made by fdg_plugins, not CelebA; no result on them is a result on CelebA."
_WIDTH, _HEIGHT, _SCALE = 48, 58, 3  # of a picture, and how much larger it is drawn; the proportions are CelebA's
_DARK, _FAIR = (92, 64, 44), (206, 172, 104)
_SPREAD = 34.0  # deviation of the tone of hair, more than a quarter of the distance of the two
_PAPERS = ((168, 190, 205), (186, 176, 160), (150, 165, 150), (120, 126, 140))


class Face(NamedTuple):
    """What is drawn: the class, the attribute, and an attribute that nothing reads."""

    fair: bool
    beard: bool
    smiling: bool


def ensure_faces(cache: Path | None) -> Path:
    """Return the data root, the folder that holds ``celeba/``, after drawing it if it does not exist.

    It is below ``cache`` (None: this user's cache of the package).
    """
    return write_faces(cache_folder(cache) / f"stand-in-faces-v{VERSION}")


def write_faces(root: Path) -> Path:
    """Return ``root`` after drawing the stand-in into it, unless it exists already; raises as ``write_drawings``."""
    return write_drawings(root, _build)


def draw_face(face: Face, part: str, index: int) -> Image.Image:
    """Return picture ``index`` of a face in a part, 48 x 58 pixels in RGB; equal arguments give equal pixels."""
    generator = numpy_generator(0, "stand-in", DATASET, VERSION, part, *map(int, face), index)
    paper = vary(_PAPERS[int(generator.integers(len(_PAPERS)))], 12.0, generator)
    image = Image.new("RGB", (_WIDTH * _SCALE, _HEIGHT * _SCALE), paper)
    _paint(ImageDraw.Draw(image), face, generator)
    noisy = np.asarray(image.reduce(_SCALE), dtype=np.float64) + generator.normal(0.0, 6.0, (_HEIGHT, _WIDTH, 3))
    return Image.fromarray(np.clip(np.rint(noisy), 0, 255).astype(np.uint8))


def _paint(draw: ImageDraw.ImageDraw, face: Face, generator: np.random.Generator) -> None:
    """Draw shoulders, hair, face and beard from back to front, where ``generator`` puts them."""
    x, y = _WIDTH * _SCALE / 2 + generator.uniform(-5, 5), _HEIGHT * _SCALE * 0.46 + generator.uniform(-5, 5)
    wide, high = generator.uniform(27, 33), generator.uniform(37, 43)
    hair = vary(_FAIR if face.fair else _DARK, _SPREAD, generator)
    skin = vary((214, 172, 144), 16.0, generator)
    cloth = vary((70, 84, 120) if face.beard else (150, 80, 96), 20.0, generator)
    shoulders = 64 if face.beard else 46
    draw.ellipse((x - shoulders, y + high, x + shoulders, y + high + 110), fill=cloth)
    length = 8 if face.beard else generator.uniform(26, 44)  # of the hair below the middle of the face
    draw.ellipse((x - wide - 9, y - high - 12, x + wide + 9, y + 14), fill=hair)
    draw.rectangle((x - wide - 9, y - 20, x + wide + 9, y + length), fill=hair)
    draw.rectangle((x - 10, y + high - 12, x + 10, y + high + 12), fill=mix(skin, (0, 0, 0), 0.12))
    draw.ellipse((x - wide, y - high + 6, x + wide, y + high), fill=skin)
    if face.beard:
        _beard(draw, (x, y, wide, high), vary((70, 52, 42), 10.0, generator))
    _features(draw, (x, y), face)


def _beard(draw: ImageDraw.ImageDraw, place: tuple[float, float, float, float], colour: Colour) -> None:
    x, y, wide, high = place
    draw.chord((x - wide + 2, y - 8, x + wide - 2, y + high + 2), start=10, end=170, fill=colour)


def _features(draw: ImageDraw.ImageDraw, centre: tuple[float, float], face: Face) -> None:
    x, y = centre
    for side in (-12, 12):
        draw.ellipse((x + side - 4, y - 6, x + side + 4, y + 1), fill=(44, 40, 48))
    top = y + (10 if face.smiling else 17)
    draw.arc((x - 10, top, x + 10, top + 10), start=15, end=165, fill=(150, 50, 60), width=4)


def _planned() -> Iterator[tuple[str, Face, int]]:
    """Yield part, face and number within its part and group of every picture, in an order that tells nothing."""
    entries = [
        (part, Face(fair, beard, smiling=index % 2 == 0), index)
        for part, counts in FACES.items()
        for (fair, beard), count in zip(product((False, True), repeat=2), counts, strict=True)
        for index in range(count)
    ]
    order = numpy_generator(0, "stand-in", DATASET, VERSION, "order").permutation(len(entries))
    yield from (entries[place] for place in order.tolist())


def _build(folder: Path) -> None:
    """Draw the whole data set into ``folder``, the markers last."""
    images = folder / CELEBA.folder / CELEBA.image_folder
    images.mkdir(parents=True)
    header = (CELEBA.target, CELEBA.attribute, _OTHER)
    attributes, parts = [], []
    for number, (part, face, index) in enumerate(_planned(), 1):
        name = f"{number:06d}.png"
        draw_face(face, part, index).save(images / name)
        attributes.append(" ".join((name, *(HAS if value else HAS_NOT for value in face))))
        parts.append(f"{name} {part}")
    lists = {CELEBA.attribute_list: [f"{len(parts)}", " ".join(header), *attributes], CELEBA.part_list: parts}
    for name, lines in lists.items():
        (folder / CELEBA.folder / name).write_text("\n".join(lines) + "\n", encoding="ascii")
    write_markers(folder, CELEBA.folder, {"version": VERSION, "note": _NOTE})
