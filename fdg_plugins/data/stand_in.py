# SPDX-License-Identifier: Apache-2.0
"""A drawn stand-in for PACS, CelebA or the retinal vessels, for users who have none of them.

The folders, lists, domains and classes are those of the data set; the pictures are plain drawings, made on first use in
the user's cache within seconds, with equal pixels on every machine. Results on them show that the software works; they
do not stand for the data set.
"""

import tempfile
from collections.abc import Callable, Iterator, Mapping
from itertools import product
from pathlib import Path

import numpy as np
import platformdirs
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFilter

from fdg_plugins.data.catalogue import CELEBA, PACS, VESSELS
from fdg_plugins.data.folders import is_file
from fdg_plugins.errors import DataError
from fdg_plugins.randomness import numpy_generator
from fdg_plugins.storage import write_json

VERSION = 2  # incremented whenever a picture changes, so that an old cache is never mistaken for the new data
MARKER = "STAND-IN.json"  # marks a folder, and every run on it: in the data root, and in the data set's folder

# By CelebA's part: how many portraits are dark, dark with the attribute, fair, and fair with the attribute.
PORTRAITS = {"0": (600, 580, 240, 60), "1": (20, 20, 10, 10), "2": (120, 120, 80, 80)}
CANVAS = 128  # pictures are drawn at twice or more of their size, and reduced, which smooths edges
_TURN = np.linspace(0, 2 * np.pi, 40, endpoint=False)

Points = NDArray[np.float64]
Colour = tuple[int, int, int]
Style = Callable[[Points, np.random.Generator], Image.Image]


_ANGLES = np.arange(10) * 2 * np.pi / 10 - np.pi / 2
_STAR = np.resize((1.0, 0.4), 10)
_ARM = 0.36
# The outline of each class of PACS, within [-1, 1]; "house" is an arrow that points up.
GLYPHS: dict[str, Points] = {
    "dog": np.stack([np.cos(_TURN), np.sin(_TURN)], axis=1),  # a disc
    "elephant": np.array([(-1.0, -0.85), (1.0, -0.85), (1.0, 0.85), (-1.0, 0.85)]),  # a box
    "giraffe": np.array([(0.0, -1.0), (0.8, 1.0), (-0.8, 1.0)]),  # a triangle
    "guitar": np.array([(-0.9, -1.0), (0.9, -1.0), (-0.9, 1.0), (0.9, 1.0)]),  # an hourglass
    "horse": np.stack([_STAR * np.cos(_ANGLES), _STAR * np.sin(_ANGLES)], axis=1),  # a star
    "house": np.array([(0.0, -1.0), (1.0, -0.1), (0.5, -0.1), (0.5, 1.0), (-0.5, 1.0), (-0.5, -0.1), (-1.0, -0.1)]),
    "person": np.array(  # a cross
        [
            *[(-_ARM, -1.0), (_ARM, -1.0), (_ARM, -_ARM), (1.0, -_ARM), (1.0, _ARM), (_ARM, _ARM)],
            *[(_ARM, 1.0), (-_ARM, 1.0), (-_ARM, _ARM), (-1.0, _ARM), (-1.0, -_ARM), (-_ARM, -_ARM)],
        ]
    ),
}


def draw(domain: str, class_name: str, index: int) -> Image.Image:
    """Return picture ``index`` of a class of PACS in a domain, 64 x 64 RGB."""
    generator = numpy_generator(0, "stand-in", "pacs", domain, class_name, index)
    angle = generator.uniform(-0.3, 0.3)
    turn = np.array([[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]])
    sides = CANVAS * generator.uniform(0.2, 0.31) * generator.uniform(0.85, 1.15, size=2)
    placed: Points = (GLYPHS[class_name] * sides) @ turn.T + CANVAS / 2 + generator.uniform(-6, 6, size=2)
    return STYLES[domain](placed, generator).reduce(2)


def _corners(points: Points) -> list[tuple[float, float]]:
    return [(float(x), float(y)) for x, y in points]


def _colour(generator: np.random.Generator, low: float, high: float) -> Colour:
    red, green, blue = (int(value) for value in generator.uniform(low, high, size=3))
    return red, green, blue


def _clouds(cells: int, generator: np.random.Generator) -> NDArray[np.float64]:
    """Return smooth noise ``[CANVAS, CANVAS, 3]`` around 0, with about ``cells`` blots along each side."""
    noise = generator.uniform(0, 255, size=(cells, cells, 3)).astype(np.uint8)
    return np.asarray(Image.fromarray(noise).resize((CANVAS, CANVAS), Image.Resampling.BICUBIC)) - 127.5


def _to_image(pixels: NDArray[np.float64]) -> Image.Image:
    return Image.fromarray(np.clip(np.rint(pixels), 0, 255).astype(np.uint8))


def _photo(points: Points, generator: np.random.Generator) -> Image.Image:
    image = _to_image(np.array(_colour(generator, 60, 200)) + 0.5 * _clouds(6, generator))
    ImageDraw.Draw(image).polygon(_corners(points), fill=_colour(generator, 20, 120))
    light = np.linspace(-1, 1, CANVAS)[None, :, None] * generator.uniform(-30, 30)
    pixels = np.asarray(image, dtype=np.float64) + light + 8 * generator.standard_normal((CANVAS, CANVAS, 3))
    return _to_image(pixels).filter(ImageFilter.GaussianBlur(1.2))


def _art_painting(points: Points, generator: np.random.Generator) -> Image.Image:
    image = _to_image(np.array(_colour(generator, 120, 230)) + 0.3 * _clouds(4, generator))
    ImageDraw.Draw(image).polygon(_corners(points), fill=_colour(generator, 0, 130))
    below, draw_on = np.asarray(image), ImageDraw.Draw(image)
    angle = generator.uniform(0, np.pi)
    for x, y in generator.uniform(0, CANVAS, size=(400, 2)):
        across, down = 6 * np.cos(turn := angle + generator.normal(0, 0.4)), 6 * np.sin(turn)
        red, green, blue = (int(value) for value in below[int(y), int(x)] + generator.normal(0, 14, size=3))
        draw_on.line((x - across, y - down, x + across, y + down), fill=(red, green, blue), width=4)
    return _to_image(np.asarray(image, dtype=np.float64) * (1.04, 0.97, 0.82))


def _cartoon(points: Points, generator: np.random.Generator) -> Image.Image:
    image = Image.new("RGB", (CANVAS, CANVAS), _colour(generator, 190, 255))
    hue = int(generator.integers(256))
    fill = Image.new("HSV", (1, 1), (hue, 230, 235)).convert("RGB").getpixel((0, 0))
    assert isinstance(fill, tuple)
    corners = _corners(points)
    ImageDraw.Draw(image).polygon(corners, fill=fill)
    ImageDraw.Draw(image).line([*corners, *corners[:2]], fill=(24, 18, 30), width=6, joint="curve")
    return image


def _sketch(points: Points, generator: np.random.Generator) -> Image.Image:
    image = Image.new("RGB", (CANVAS, CANVAS), (255, 255, 255))
    grey = int(generator.integers(10, 80))
    for _ in range(2):
        corners = _corners(points + generator.normal(0, 1.2, size=points.shape))
        ImageDraw.Draw(image).line([*corners, *corners[:1]], fill=(grey, grey, grey), width=3)
    return image


STYLES: dict[str, Style] = {"art_painting": _art_painting, "cartoon": _cartoon, "photo": _photo, "sketch": _sketch}

# By domain of the vessels: the ground, the vessels' brightness above it, their width and the noise.
CAMERAS: dict[str, tuple[Colour, float, int, float]] = {
    "chase_db1": ((150, 70, 40), 55.0, 10, 3.0),
    "drive": ((190, 110, 60), 45.0, 7, 5.0),
    "hrf": ((110, 40, 25), 60.0, 6, 2.0),
    "stare": ((160, 130, 50), 50.0, 8, 14.0),
}


def draw_pair(domain: str, index: int) -> tuple[Image.Image, Image.Image]:
    """Return picture ``index`` of a domain of the vessels, 128 x 128 RGB, and its mask in 0 and 255.

    Bright curves on a disc, from one point to its rim.
    """
    ground, brightness, width, noise = CAMERAS[domain]
    generator = numpy_generator(0, "stand-in", "vessels", domain, index)
    large = Image.new("L", (2 * CANVAS, 2 * CANVAS), 0)
    lines = ImageDraw.Draw(large)
    start = CANVAS + generator.uniform(-50, 50, size=2)
    steps = np.linspace(0, 1, 20)[:, None]
    for angle in np.arange(7) * 2 * np.pi / 7 + generator.normal(0, 0.2, size=7):
        end = CANVAS + 116 * np.array([np.cos(angle), np.sin(angle)])
        bend = (start + end) / 2 + generator.normal(0, 22, size=2)
        curve = (1 - steps) ** 2 * start + 2 * steps * (1 - steps) * bend + steps**2 * end
        wide = max(3, round(width * generator.uniform(0.6, 1.2)))
        lines.line(_corners(curve), fill=255, width=wide, joint="curve")
    cover = np.asarray(large.reduce(2), dtype=np.float64) / 255
    middle = np.arange(CANVAS) - (CANVAS - 1) / 2
    inside = np.hypot(middle[:, None], middle) < 0.47 * CANVAS
    pixels = np.array(ground) + 0.12 * _clouds(5, generator) + (brightness * cover)[..., None]
    pixels += noise * generator.standard_normal((CANVAS, CANVAS, 3))
    mask = Image.fromarray(np.where((cover > 0.5) & inside, 255, 0).astype(np.uint8))
    return _to_image(pixels * inside[..., None]), mask


def draw_portrait(part: str, *, fair: bool, has_attribute: bool, index: int) -> Image.Image:
    """Return a picture for CelebA, 48 x 58 RGB: a disc whose tone is the class, and a shape which is the attribute.

    Few of the fair ones that train have the attribute: a network that goes by the shape is wrong on those.
    """
    generator = numpy_generator(0, "stand-in", "celeba", part, int(fair), int(has_attribute), index)
    image = Image.new("RGB", (96, 116), _colour(generator, 120, 200))
    paint = ImageDraw.Draw(image)
    x, y = 48 + generator.uniform(-5, 5), 44 + generator.uniform(-5, 5)
    cloth = _colour(generator, 40, 160)
    if has_attribute:
        paint.rectangle((x - 40, y + 30, x + 40, 116), fill=cloth)
    else:
        paint.polygon([(x, y + 10), (x - 34, 116), (x + 34, 116)], fill=cloth)
    skin = np.array((206, 172, 104) if fair else (92, 64, 44))
    tone = skin + generator.normal(0, 26) + generator.normal(0, 6, size=3)
    red, green, blue = (int(value) for value in np.clip(tone, 0, 255))
    paint.ellipse((x - 30, y - 34, x + 30, y + 30), fill=(red, green, blue))
    paint.ellipse((x - 18, y - 14, x + 18, y + 26), fill=(214, 172, 144))
    noisy = np.asarray(image.reduce(2), dtype=np.float64) + generator.normal(0, 6, size=(58, 48, 3))
    return _to_image(noisy)


# --- folders ---

Drawn = Iterator[tuple[str, Image.Image | str]]
"""The files of a data set by their paths in its folder: pictures, and lists as text."""


def _pacs(count: int) -> Drawn:
    for domain, class_name, index in product(PACS.domains, PACS.classes, range(count)):
        yield f"{domain}/{class_name}/{index:03d}.png", draw(domain, class_name, index)


def _vessels(count: int) -> Drawn:
    for domain, index in product(VESSELS.domains, range(count)):
        for part, picture in zip(("images", "masks"), draw_pair(domain, index), strict=True):
            yield f"{domain}/{part}/{index:03d}.png", picture


def _celeba(_: int) -> Drawn:
    planned = [
        (part, fair, has_attribute, index)
        for part, counts in PORTRAITS.items()
        for (fair, has_attribute), count in zip(product((False, True), repeat=2), counts, strict=True)
        for index in range(count)
    ]
    attributes, parts = [f"{len(planned)}", f"{CELEBA.target} {CELEBA.attribute}"], []
    order = numpy_generator(0, "stand-in", CELEBA.name, VERSION).permutation(len(planned)).tolist()
    for number, (part, fair, has_attribute, index) in enumerate((planned[place] for place in order), 1):
        name = f"{number:06d}.png"
        picture = draw_portrait(part, fair=fair, has_attribute=has_attribute, index=index)
        yield f"{CELEBA.image_folder}/{name}", picture
        attributes.append(f"{name} {1 if fair else -1} {1 if has_attribute else -1}")
        parts.append(f"{name} {part}")
    yield CELEBA.attribute_list, "\n".join([*attributes, ""])
    yield CELEBA.part_list, "\n".join([*parts, ""])


# The data sets that are drawn, by name: their folder, and the usual number of drawings per class (vessels: domain).
STAND_INS: Mapping[str, tuple[str, Callable[[int], Drawn], int]] = {
    PACS.name: (PACS.folder, _pacs, 30),
    VESSELS.name: (VESSELS.folder, _vessels, 32),
    CELEBA.name: (CELEBA.folder, _celeba, 0),
}


def cache_folder(cache: Path | None) -> Path:
    """Return the folder for drawings: ``cache``, or this user's cache of the package."""
    return platformdirs.user_cache_path("fdg_plugins") if cache is None else Path(cache)


def is_stand_in(data_root: Path, folder: str = "") -> bool:
    """Return whether ``data_root``, or ``folder`` in it, holds drawings of this package rather than the user's data."""
    return any(is_file(place / MARKER) for place in (Path(data_root), Path(data_root) / folder))


def write_stand_in(root: Path, dataset: str = PACS.name, *, images_per_class: int | None = None) -> Path:
    """Return ``root`` after drawing a stand-in into it, unless it holds one already; safe for concurrent processes.

    ``images_per_class`` drawings per class (vessels: per domain; CelebA's number is fixed), by default the usual.
    Raises DataError for a folder that cannot be written, and for one that holds anything else: real images and drawings
    never share a data root.
    """
    folder, draw_all, usual = STAND_INS[dataset]
    number = usual if images_per_class is None else images_per_class
    try:
        root.parent.mkdir(parents=True, exist_ok=True)
        if is_stand_in(root):
            return root
        with tempfile.TemporaryDirectory(dir=root.parent, prefix=f".{root.name}.", ignore_cleanup_errors=True) as name:
            temporary = Path(name)
            for file, content in draw_all(number):
                (place := temporary / folder / file).parent.mkdir(parents=True, exist_ok=True)
                content.save(place) if isinstance(content, Image.Image) else place.write_text(content, encoding="ascii")
            note = f"Drawings made by fdg_plugins, not the data set {dataset}; no result on them is a result on it."
            facts = {"stand_in": True, "version": VERSION, "images_per_class": number, "note": note}
            write_json(temporary / folder / MARKER, facts)  # stays with the folder if that is moved
            write_json(temporary / MARKER, facts)
            temporary.chmod(0o755)  # it was readable by its owner only
            temporary.rename(root)
    except OSError as error:
        if not is_stand_in(root):  # of a process that was faster
            public = "it has no data root, and the STAND-IN cannot be written to its cache."
            expected = f"a new or an empty folder ({error.strerror})"
            raise DataError(field="folder of the STAND-IN", value=root, expected=expected, public=public) from error
    return root
