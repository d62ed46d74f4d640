# SPDX-License-Identifier: Apache-2.0
"""Drawn retinas: bright branching vessels on a disc, as in an angiogram, in the styles of four cameras.

The styles differ in colour cast, contrast, width of the vessels, illumination, sharpness and noise.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFilter

from fdg_plugins.data.stand_in_paint import Colour, soft_noise
from fdg_plugins.data.stand_in_trees import Line, Point, grow, optic_disc

SIDE = 128  # pixels
_FINE = 4  # pixels of the drawing in a pixel of the image, per side
_RADIUS = 61.0  # pixels
_VESSEL = 0.45  # the mask has the pixels of which vessels cover at least this fraction


@dataclass(frozen=True, kw_only=True)
class Camera:
    """A style. ``width`` scales the vessels; ``contrast`` is the range of their opacity.

    ``shade`` is how much darker the dark side is, ``rim`` how much darker the rim is than the centre, both as
    fractions; ``blur`` is a radius in pixels, ``noise`` a deviation in grey levels, ``spots`` the largest number of
    bright spots, which are not vessels.
    """

    ground: Colour
    vessel: Colour
    width: float
    contrast: tuple[float, float]
    shade: float
    rim: float
    blur: float
    noise: float
    spots: int


CAMERAS: Mapping[str, Camera] = {
    "chase_db1": Camera(
        ground=(150, 56, 32),
        vessel=(250, 166, 104),
        width=1.35,
        contrast=(0.45, 0.65),
        shade=0.5,
        rim=0.35,
        blur=0.7,
        noise=5.0,
        spots=2,
    ),
    "drive": Camera(
        ground=(168, 92, 44),
        vessel=(250, 214, 150),
        width=1.05,
        contrast=(0.5, 0.75),
        shade=0.25,
        rim=0.3,
        blur=0.5,
        noise=7.0,
        spots=2,
    ),
    "hrf": Camera(
        ground=(150, 50, 52),
        vessel=(255, 196, 180),
        width=0.75,
        contrast=(0.7, 0.95),
        shade=0.2,
        rim=0.2,
        blur=0.3,
        noise=3.0,
        spots=1,
    ),
    "stare": Camera(
        ground=(122, 138, 78),
        vessel=(240, 244, 170),
        width=1.1,
        contrast=(0.4, 0.6),
        shade=0.4,
        rim=0.6,
        blur=0.6,
        noise=13.0,
        spots=9,
    ),
}
"""The style of each domain."""


def draw_retina(camera: Camera, generator: np.random.Generator) -> tuple[Image.Image, Image.Image]:
    """Return an image in RGB and its mask of 0 and 255, both ``SIDE`` pixels square."""
    disc = optic_disc(generator)
    cover = _cover(grow(disc, generator), camera.width)
    across, down, field = _field_of_view()
    light = _light(camera, across, down, generator)
    pixels = np.array(camera.ground) * (1.0 + 0.07 * soft_noise(9, generator, SIDE)[..., None])
    pixels = _mixed(pixels, camera.vessel, 0.6 * _spot(across, down, disc, 0.16))
    for _ in range(generator.integers(camera.spots + 1)):
        place, size = generator.uniform(-0.75, 0.75, size=2), generator.uniform(0.03, 0.09)
        pixels = _mixed(pixels, camera.vessel, 0.55 * _spot(across, down, (place[0], place[1]), size))
    faded = generator.uniform(*camera.contrast) * (1.0 + 0.12 * soft_noise(5, generator, SIDE))
    pixels = _mixed(pixels, camera.vessel, cover * np.clip(faded, 0.0, 1.0)) * light[..., None]
    blurred = _picture(pixels).filter(ImageFilter.GaussianBlur(camera.blur))
    noise = camera.noise * generator.standard_normal((SIDE, SIDE, 3))
    image = _picture((np.asarray(blurred, dtype=np.float64) + noise) * field[..., None])
    mask = Image.fromarray(np.where((cover >= _VESSEL) & (field > 0.5), 255, 0).astype(np.uint8))
    return image, mask


def _cover(lines: list[Line], width: float) -> NDArray[np.float64]:
    """Return the fraction of each pixel that the vessels cover, ``[SIDE, SIDE]``."""
    fine = Image.new("L", (SIDE * _FINE, SIDE * _FINE), 0)
    draw = ImageDraw.Draw(fine)
    scale, centre = _RADIUS * _FINE, SIDE * _FINE / 2.0
    for line in lines:
        points = [(centre + scale * x, centre + scale * y) for x, y in line.points]
        for first, second, wide in zip(points, points[1:], line.widths[1:], strict=False):
            across = max(1.1 * _FINE, wide * width * scale)
            draw.line([first, second], fill=255, width=round(across))
            half = across / 2.0 - 0.5
            draw.ellipse((second[0] - half, second[1] - half, second[0] + half, second[1] + half), fill=255)
    return np.asarray(fine.reduce(_FINE), dtype=np.float64) / 255.0


def _field_of_view() -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
    """Return the coordinates of the pixels in radii, and the fraction of each that is in the field of view."""
    line = (np.arange(SIDE) + 0.5 - SIDE / 2.0) / _RADIUS
    across, down = np.meshgrid(line, line)
    return across, down, np.clip((1.0 - np.hypot(across, down)) * _RADIUS + 0.5, 0.0, 1.0)


def _light(
    camera: Camera, across: NDArray[np.float64], down: NDArray[np.float64], generator: np.random.Generator
) -> NDArray[np.float64]:
    """Return the illumination: brightest on one side, darker towards the rim."""
    angle = generator.uniform(0.0, 2.0 * np.pi)
    along = (across * np.cos(angle) + down * np.sin(angle) + 1.0) / 2.0
    brightness = generator.uniform(0.85, 1.15)
    return brightness * (1.0 - camera.shade * along) * (1.0 - camera.rim * (across**2 + down**2))


def _spot(across: NDArray[np.float64], down: NDArray[np.float64], place: Point, size: float) -> NDArray[np.float64]:
    return 1.0 / (1.0 + np.exp((np.hypot(across - place[0], down - place[1]) - size) / 0.02))


def _mixed(pixels: NDArray[np.float64], colour: Colour, share: NDArray[np.float64]) -> NDArray[np.float64]:
    return pixels + share[..., None] * (np.array(colour) - pixels)


def _picture(pixels: NDArray[np.float64]) -> Image.Image:
    return Image.fromarray(np.clip(np.rint(pixels), 0, 255).astype(np.uint8))
