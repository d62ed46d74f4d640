# SPDX-License-Identifier: Apache-2.0
"""The pictures of the stand-ins: glyphs whose shape is the class, in a style for each domain. Equal arguments give
equal pixels on every machine.
"""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFilter

from fdg_plugins.errors import DataError
from fdg_plugins.randomness import numpy_generator

CANVAS = 128  # pictures are drawn at twice or more of their size, and reduced, which smooths edges
_TURN = np.linspace(0, 2 * np.pi, 40, endpoint=False)

Points = NDArray[np.float64]
Colour = tuple[int, int, int]
Style = Callable[[Points, np.random.Generator], Image.Image]


def _star(*radii: float, corners: int) -> Points:
    """Return a closed outline ``[corners, 2]`` whose distance from the centre goes through ``radii`` in turn."""
    angles = np.arange(corners) * 2 * np.pi / corners - np.pi / 2
    distance = np.resize(radii, corners)
    return np.stack([distance * np.cos(angles), distance * np.sin(angles)], axis=1)


_ARM = 0.36
_CROSS = [
    *[(-_ARM, -1.0), (_ARM, -1.0), (_ARM, -_ARM), (1.0, -_ARM), (1.0, _ARM), (_ARM, _ARM)],
    *[(_ARM, 1.0), (-_ARM, 1.0), (-_ARM, _ARM), (-1.0, _ARM), (-1.0, -_ARM), (-_ARM, -_ARM)],
]
GLYPHS: dict[str, Points] = {
    "dog": np.stack([np.cos(_TURN), np.sin(_TURN)], axis=1),  # a disc
    "elephant": np.array([(-1.0, -0.85), (1.0, -0.85), (1.0, 0.85), (-1.0, 0.85)]),  # a box
    "giraffe": np.array([(0.0, -1.0), (0.8, 1.0), (-0.8, 1.0)]),  # a triangle
    "guitar": np.array([(-0.9, -1.0), (0.9, -1.0), (-0.9, 1.0), (0.9, 1.0)]),  # an hourglass
    "horse": _star(1.0, 0.4, corners=10),  # a star
    "house": np.array([(0.0, -1.0), (1.0, -0.1), (0.5, -0.1), (0.5, 1.0), (-0.5, 1.0), (-0.5, -0.1), (-1.0, -0.1)]),
    "person": np.array(_CROSS),
}
"""The outline of each class of PACS, within [-1, 1]; ``house`` is an arrow that points up."""


def draw(domain: str, class_name: str, index: int) -> Image.Image:
    """Return picture ``index`` of a class of PACS in a domain, 64 x 64 RGB; raise DataError for other names."""
    if domain not in STYLES or class_name not in GLYPHS:
        raise DataError(f"{class_name!r} in domain {domain!r} is not drawn; the stand-in has the names of PACS.")
    generator = numpy_generator(0, "stand-in", "pacs", domain, class_name, index)
    return STYLES[domain](_posed(GLYPHS[class_name], generator), generator).reduce(2)


def _posed(outline: Points, generator: np.random.Generator) -> Points:
    angle = generator.uniform(-0.3, 0.3)
    turn = np.array([[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]])
    sides = CANVAS * generator.uniform(0.2, 0.31) * generator.uniform(0.85, 1.15, size=2)
    placed: Points = (outline * sides) @ turn.T + CANVAS / 2 + generator.uniform(-6, 6, size=2)
    return placed


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
    light = np.linspace(-1, 1, CANVAS) * generator.uniform(-30, 30)
    pixels = (
        np.asarray(image, dtype=np.float64) + light[None, :, None] + 8 * generator.standard_normal((CANVAS, CANVAS, 3))
    )
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


STYLES: dict[str, Style] = {
    "art_painting": _art_painting,
    "cartoon": _cartoon,
    "photo": _photo,
    "sketch": _sketch,
}

# By domain of the vessels: the ground, the vessels' brightness above it, their width and the noise.
CAMERAS: dict[str, tuple[Colour, float, int, float]] = {
    "chase_db1": ((150, 70, 40), 55.0, 10, 3.0),
    "drive": ((190, 110, 60), 45.0, 7, 5.0),
    "hrf": ((110, 40, 25), 60.0, 6, 2.0),
    "stare": ((160, 130, 50), 50.0, 8, 14.0),
}


def draw_pair(domain: str, index: int) -> tuple[Image.Image, Image.Image]:
    """Return picture ``index`` of a domain of the vessels, 128 x 128 RGB, and its mask in 0 and 255.

    Bright curves on a disc, from one point to its rim. Raises DataError for an unknown domain.
    """
    if domain not in CAMERAS:
        raise DataError(f"domain {domain!r} is not drawn; the stand-in for vessels has {', '.join(CAMERAS)}.")
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
    """Return a picture for CelebA, 48 x 58 RGB: a disc whose tone is the class, on shoulders whose shape is the
    attribute.

    The tones of both classes overlap a little. As few of the fair ones that train have the attribute, a network that
    goes by the shoulders as well is right on most, and wrong on the fair ones that have it.
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
    tone = (
        np.array((206, 172, 104) if fair else (92, 64, 44)) + generator.normal(0, 26) + generator.normal(0, 6, size=3)
    )
    red, green, blue = (int(value) for value in np.clip(tone, 0, 255))
    paint.ellipse((x - 30, y - 34, x + 30, y + 30), fill=(red, green, blue))
    paint.ellipse((x - 18, y - 14, x + 18, y + 26), fill=(214, 172, 144))
    noisy = np.asarray(image.reduce(2), dtype=np.float64) + generator.normal(0, 6, size=(58, 48, 3))
    return _to_image(noisy)
