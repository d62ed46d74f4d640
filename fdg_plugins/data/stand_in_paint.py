# SPDX-License-Identifier: Apache-2.0
"""Helpers shared by the styles of the stand-in data set: the canvas, colours, filled parts and smooth noise."""

import colorsys

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw

from fdg_plugins.data.stand_in_shapes import Part, Tone

CANVAS = 128  # pixels, twice the side of the final image

Colour = tuple[int, int, int]


def fill(
    image: Image.Image,
    parts: list[Part],
    colours: dict[Tone, Colour],
    outline: Colour | None = None,
    width: int = 0,
) -> None:
    """Draw the parts from back to front in the colours of their tones, optionally outlined."""
    draw = ImageDraw.Draw(image)
    for part in parts:
        points = corners(part)
        draw.polygon(points, fill=colours[part.tone])
        if outline is not None:
            narrow = float(np.ptp(part.outline, axis=0).min())
            thickness = min(width, max(1, int(narrow / 4.0)))  # small parts keep their colour
            draw.line([*points, *points[:2]], fill=outline, width=thickness, joint="curve")


def corners(part: Part) -> list[tuple[float, float]]:
    """Return the outline of the part in the form that PIL expects."""
    return [(float(x), float(y)) for x, y in part.outline]


def tones(main: Colour, second: Colour, dark: Colour, light: Colour) -> dict[Tone, Colour]:
    """Return the colour of every tone; the shade is a darker main colour."""
    return {"main": main, "shade": mix(main, (0, 0, 0), 0.25), "second": second, "dark": dark, "light": light}


def vary(colour: Colour, spread: float, generator: np.random.Generator) -> Colour:
    """Return the colour after a random shift: common with deviation ``spread``, per channel with a quarter of it."""
    shift = generator.normal(0.0, spread) + generator.normal(0.0, spread / 4.0, size=3)
    red, green, blue = (int(value) for value in np.clip(np.add(colour, shift), 0, 255))
    return red, green, blue


def mix(first: Colour, second: Colour, share: float) -> Colour:
    """Return the mixture of a fraction ``share`` of ``second`` with the remainder of ``first``."""
    red, green, blue = (round(a * (1.0 - share) + b * share) for a, b in zip(first, second, strict=True))
    return red, green, blue


def hsv(hue: float, saturation: float, value: float) -> Colour:
    """Return the colour of a hue in turns (any real number) and a saturation and value in [0, 1]."""
    red, green, blue = (round(255 * channel) for channel in colorsys.hsv_to_rgb(hue % 1.0, saturation, value))
    return red, green, blue


def soft_noise(cells: int, generator: np.random.Generator, side: int = CANVAS) -> NDArray[np.float64]:
    """Return smooth noise ``[side, side]`` of about unit deviation, with ``cells`` humps per side."""
    coarse = Image.fromarray(generator.standard_normal((cells, cells)).astype(np.float32))
    return np.asarray(coarse.resize((side, side), Image.Resampling.BICUBIC), dtype=np.float64)


def to_image(pixels: NDArray[np.float64]) -> Image.Image:
    """Return the values ``[CANVAS, CANVAS, 3]``, or what broadcasts to that, rounded and clipped to a picture."""
    wide = np.broadcast_to(pixels, (CANVAS, CANVAS, 3))
    return Image.fromarray(np.clip(np.rint(wide), 0, 255).astype(np.uint8))
