# SPDX-License-Identifier: Apache-2.0
"""The four domains of the stand-in data set: each style draws any posed shape in its own way.

A style takes the parts in pixels, the class (for natural colours) and a generator, and returns a canvas of twice the
final size; halving it smooths the edges.
"""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFilter

from fdg_plugins.data.stand_in_paint import (
    CANVAS,
    Colour,
    corners,
    fill,
    hsv,
    mix,
    soft_noise,
    to_image,
    tones,
    vary,
)
from fdg_plugins.data.stand_in_shapes import Part

Style = Callable[[list[Part], str, np.random.Generator], Image.Image]

# Pairs of main and second colour in which the class occurs in nature.
_NATURAL: dict[str, list[tuple[Colour, Colour]]] = {
    "dog": [((150, 105, 65), (95, 62, 38)), ((205, 170, 120), (150, 112, 70)), ((70, 62, 58), (40, 36, 34))],
    "elephant": [((128, 124, 122), (150, 138, 134)), ((108, 106, 110), (130, 120, 118))],
    "giraffe": [((212, 172, 108), (130, 78, 38)), ((222, 190, 135), (112, 66, 36))],
    "guitar": [((190, 122, 60), (84, 52, 32)), ((150, 56, 36), (52, 36, 30)), ((214, 170, 100), (96, 62, 40))],
    "horse": [((120, 72, 44), (44, 32, 26)), ((84, 56, 42), (32, 26, 24)), ((196, 188, 176), (140, 130, 120))],
    "house": [((196, 180, 156), (140, 70, 54)), ((172, 104, 84), (84, 78, 80)), ((214, 212, 206), (100, 86, 74))],
    "person": [((70, 92, 140), (52, 56, 70)), ((160, 62, 60), (48, 60, 96)), ((92, 124, 88), (92, 76, 62))],
}
_SKIN: list[Colour] = [(222, 178, 148), (176, 124, 92), (112, 76, 58)]
# Far and near ground of natural backgrounds: sky over meadow, savanna, sea and beach, wood, room.
_SCENES: list[tuple[Colour, Colour]] = [
    ((168, 200, 226), (92, 128, 62)),
    ((200, 206, 206), (176, 152, 96)),
    ((140, 176, 204), (204, 190, 158)),
    ((64, 92, 58), (86, 84, 50)),
    ((192, 180, 164), (126, 96, 70)),
    ((150, 152, 156), (108, 108, 108)),
]
_PAINTS: list[Colour] = [
    (150, 60, 40),
    (196, 140, 52),
    (60, 76, 110),
    (88, 98, 58),
    (206, 178, 120),
    (92, 58, 44),
    (118, 62, 92),
    (60, 110, 116),
]

# The hue, in turns, around which the cartoons of a class are coloured: a cue that holds in this domain only.
_CARTOON_HUES: dict[str, float] = {
    "dog": 0.92,
    "elephant": 0.62,
    "giraffe": 0.1,
    "guitar": 0.78,
    "horse": 0.45,
    "house": 0.3,
    "person": 0.2,
}
EXAGGERATION: dict[str, tuple[float, float]] = {
    "photo": (1.0, 1.0),
    "art_painting": (0.95, 1.15),
    "cartoon": (1.5, 2.1),
    "sketch": (0.75, 0.95),
}
"""The range of exaggeration in which a domain draws its shapes; one keeps natural proportions."""


def photo(parts: list[Part], class_name: str, generator: np.random.Generator) -> Image.Image:
    """Draw a cluttered background, natural colours, light from one side, a cast shadow, slight blur and noise."""
    main, second = _NATURAL[class_name][generator.integers(len(_NATURAL[class_name]))]
    light = _SKIN[generator.integers(len(_SKIN))] if class_name == "person" else (214, 208, 196)
    colours = tones(vary(main, 14.0, generator), vary(second, 14.0, generator), (34, 30, 30), light)
    background = _scene(generator)
    _cast_shadow(background, parts)
    image, mask = background.copy(), Image.new("L", background.size, 0)
    fill(image, parts, colours)
    for part in parts:
        ImageDraw.Draw(mask).polygon(corners(part), fill=255)
    pixels = np.asarray(image, dtype=np.float64) * _lighting(mask, generator)[..., None]
    pixels += 9.0 * generator.standard_normal(pixels.shape)  # sensor noise, in colour and in brightness
    pixels += 5.0 * generator.standard_normal((CANVAS, CANVAS, 1))
    return to_image(pixels).filter(ImageFilter.GaussianBlur(generator.uniform(0.7, 1.5)))


def art_painting(parts: list[Part], class_name: str, generator: np.random.Generator) -> Image.Image:
    """Paint from a small palette in visible brush strokes over a toned canvas, under a warm varnish."""
    ground, far, main, second = (_PAINTS[k] for k in generator.choice(len(_PAINTS), size=4, replace=False))
    if generator.random() < 0.5:
        main, second = _NATURAL[class_name][generator.integers(len(_NATURAL[class_name]))]
    canvas = (226, 206, 164) if sum(main) < 340 else (56, 46, 42)  # light figures on dark grounds, and vice versa
    image = Image.new("RGB", (CANVAS, CANVAS), mix(far, canvas, 0.5))
    horizon = int(CANVAS * generator.uniform(0.5, 0.8))
    ImageDraw.Draw(image).rectangle((0, horizon, CANVAS, CANVAS), fill=mix(ground, canvas, 0.35))
    colours = tones(vary(main, 12.0, generator), vary(second, 12.0, generator), (44, 30, 28), (236, 214, 170))
    under = image.copy()
    fill(image, parts, colours)
    _brush(under, under.copy(), 170, 11.0, 24.0, generator)
    fill(under, parts, colours)
    _brush(under, image, 460, 3.6, 10.0, generator)
    weave = 5.0 * np.add.outer(np.sin(np.arange(CANVAS) * 1.6), np.sin(np.arange(CANVAS) * 1.6))
    return to_image((np.asarray(under, dtype=np.float64) + weave[..., None]) * (1.04, 0.97, 0.82))


def cartoon(parts: list[Part], class_name: str, generator: np.random.Generator) -> Image.Image:
    """Draw flat saturated fills within thick dark outlines on a plain bright background, in unnatural colours."""
    hue = _CARTOON_HUES[class_name] + generator.normal(0.0, 0.07)
    image = Image.new("RGB", (CANVAS, CANVAS), hsv(hue + generator.uniform(0.3, 0.7), generator.uniform(0.1, 0.8), 1.0))
    main = hsv(hue, generator.uniform(0.6, 0.95), generator.uniform(0.85, 1.0))
    second = hsv(hue + generator.uniform(0.08, 0.3), 0.85, 0.8)
    light = (255, 214, 180) if class_name == "person" else (255, 250, 235)
    colours, width = tones(main, second, (40, 28, 48), light), int(generator.integers(5, 8))
    fill(image, parts, colours, outline=(24, 18, 30), width=width)
    return image


def sketch(parts: list[Part], class_name: str, generator: np.random.Generator) -> Image.Image:
    """Draw thin, shaky pencil lines with gaps, twice each, on white paper, without fill or hidden lines."""
    image = Image.new("RGB", (CANVAS, CANVAS), (255, 255, 255))
    draw = ImageDraw.Draw(image)
    grey, width = int(generator.integers(10, 80)), int(generator.integers(1, 4))
    for part in parts:
        draw.polygon(corners(part), fill=(255, 255, 255))
        for _ in range(2):
            points = part.outline + generator.normal(0.0, 0.8, size=2)
            points = points + generator.normal(0.0, 0.4, size=points.shape)
            shaky = corners(replace(part, outline=points))
            for k in np.flatnonzero(generator.random(len(shaky)) < 0.85):
                draw.line([shaky[k - 1], shaky[k]], fill=(grey, grey, grey), width=width)
    return image


STYLES: dict[str, Style] = {"photo": photo, "art_painting": art_painting, "cartoon": cartoon, "sketch": sketch}


def _scene(generator: np.random.Generator) -> Image.Image:
    """Return far and near ground with a soft horizon, uneven light, and out-of-focus clutter."""
    far, near = _SCENES[generator.integers(len(_SCENES))]
    rows = np.arange(CANVAS) / CANVAS
    blend = 1.0 / (1.0 + np.exp(-(rows - generator.uniform(0.4, 0.75)) * generator.uniform(8.0, 60.0)))
    pixels = np.multiply.outer(1.0 - blend, vary(far, 16.0, generator)) + np.multiply.outer(
        blend, vary(near, 16.0, generator)
    )
    clouds = sum(soft_noise(cells, generator) * strength for cells, strength in ((4, 22.0), (12, 14.0), (40, 10.0)))
    image = to_image(pixels[:, None, :] + np.asarray(clouds)[..., None])
    draw = ImageDraw.Draw(image)
    for _ in range(int(generator.integers(3, 9))):
        x, y, width, height = generator.uniform((-10, -10, 8, 8), (CANVAS, CANVAS, 46, 46))
        paint = draw.ellipse if generator.random() < 0.6 else draw.rectangle
        paint((x, y, x + width, y + height), fill=vary(near if y > CANVAS / 2 else far, 34.0, generator))
    return image.filter(ImageFilter.GaussianBlur(generator.uniform(2.0, 4.0)))


def _cast_shadow(background: Image.Image, parts: list[Part]) -> None:
    """Darken the ground under the object."""
    points = np.concatenate([part.outline for part in parts])
    (left, _), (right, bottom) = points.min(axis=0), points.max(axis=0)
    shadow = Image.new("L", background.size, 0)
    ImageDraw.Draw(shadow).ellipse((left, bottom - 8, right, bottom + 8), fill=110)
    background.paste((28, 28, 32), mask=shadow.filter(ImageFilter.GaussianBlur(4)))


def _lighting(mask: Image.Image, generator: np.random.Generator) -> NDArray[np.float64]:
    """Return factors on the pixels ``[CANVAS, CANVAS]``: the object bulges like its blurred mask, lit from one side."""
    height = np.asarray(mask.filter(ImageFilter.GaussianBlur(5)), dtype=np.float64) / 255.0
    slope_y, slope_x = np.gradient(height)
    angle = generator.uniform(-0.75 * np.pi, -0.25 * np.pi)
    relief = -(np.cos(angle) * slope_x + np.sin(angle) * slope_y) * -6.0
    texture = 0.1 * soft_noise(36, generator)
    return np.where(np.asarray(mask) > 0, np.clip(1.0 + relief + texture, 0.45, 1.5), 1.0)


def _brush(
    canvas: Image.Image,
    source: Image.Image,
    count: int,
    width: float,
    length: float,
    generator: np.random.Generator,
) -> None:
    """Lay ``count`` strokes on ``canvas``, each in a slight variation of the colour of ``source`` at its centre."""
    draw, pixels = ImageDraw.Draw(canvas), np.asarray(source)
    centres = generator.uniform(0.0, CANVAS, size=(count, 2))
    angles = generator.uniform(0.0, np.pi) + generator.normal(0.0, 0.5, size=count)
    half = np.stack([np.cos(angles), np.sin(angles)], axis=1) * generator.uniform(0.3, 0.6, size=(count, 1)) * length
    taken = pixels[centres[:, 1].astype(int), centres[:, 0].astype(int)].astype(np.float64)
    shifts = generator.normal(0.0, 13.0, size=(count, 1)) + generator.normal(0.0, 6.0, size=(count, 3))
    colours = np.clip(taken + shifts, 0, 255).astype(int)
    widths = generator.uniform(0.6, 1.3, size=count) * width
    for start, end, colour, wide in zip(centres - half, centres + half, colours, widths, strict=True):
        red, green, blue = (int(value) for value in colour)
        draw.line([*map(float, start), *map(float, end)], fill=(red, green, blue), width=round(wide))
