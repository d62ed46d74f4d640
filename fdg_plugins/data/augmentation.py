# SPDX-License-Identifier: Apache-2.0
"""The random draw of one augmented view: that of FedDG-GA's and FedOMG's code but for the crop, as torchvision draws.

A crop of 80 to 100 % of the area; a horizontal flip with probability 1/2; brightness, contrast and saturation changed
by up to 40 % and hue by up to 0.4 turns, in random order; grey with probability 1/10. In torchvision:
``RandomResizedCrop`` (scale 0.8 to 1), ``RandomHorizontalFlip``, ``ColorJitter(0.4, 0.4, 0.4, 0.4)`` and
``RandomGrayscale(0.1)``. The released code of both crops 70 to 100 % of the area, as does FedIIR's, whose
``ColorJitter`` has 0.3.
"""

import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

import numpy as np

Change = Literal["brightness", "contrast", "saturation", "hue"]

AREA = (0.8, 1.0)
RATIO = (3 / 4, 4 / 3)
TRIES = 10
STRENGTH = 0.4
GREY = 0.1
ORDERS: tuple[tuple[Change, ...], ...] = tuple(itertools.permutations(("brightness", "contrast", "saturation", "hue")))
DRAWS = 2 * TRIES + 9
"""The number of uniform random numbers reserved for one view, even if it needs fewer."""


@dataclass(frozen=True)
class Crop:
    """A rectangle within an image, in pixels."""

    top: int
    left: int
    height: int
    width: int


@dataclass(frozen=True)
class Augmentation:
    """One draw. ``changes``: the colour changes in their order, each with its factor (for the hue: turns)."""

    crop: Crop
    flipped: bool
    changes: tuple[tuple[Change, float], ...]
    grey: bool


def augmentation_from(draws: np.ndarray, height: int, width: int) -> Augmentation:
    """Return the draw for an image of ``height`` x ``width`` pixels, from ``[DRAWS]`` uniform numbers in [0, 1)."""
    numbers = iter(draws.tolist())
    flipped, grey, order = next(numbers) < 0.5, next(numbers) < GREY, next(numbers)
    factors = {name: _between(next(numbers), 1 - STRENGTH, 1 + STRENGTH) for name in ORDERS[0][:3]}
    factors["hue"] = _between(next(numbers), -STRENGTH, STRENGTH)
    changes = tuple((name, factors[name]) for name in ORDERS[int(order * len(ORDERS))])
    return Augmentation(_draw_crop(numbers, height, width), flipped, changes, grey)


def _draw_crop(numbers: Iterator[float], height: int, width: int) -> Crop:
    """Return the first try that fits into the image, at a random position, or the middle of the image if none fits."""
    down, right = next(numbers), next(numbers)
    low, high = math.log(RATIO[0]), math.log(RATIO[1])
    for _ in range(TRIES):
        area = height * width * _between(next(numbers), *AREA)
        ratio = math.exp(_between(next(numbers), low, high))
        w, h = round(math.sqrt(area * ratio)), round(math.sqrt(area / ratio))
        if 0 < w <= width and 0 < h <= height:
            return Crop(int(down * (height - h + 1)), int(right * (width - w + 1)), h, w)
    w, h = min(width, round(height * RATIO[1])), min(height, round(width / RATIO[0]))
    return Crop((height - h) // 2, (width - w) // 2, h, w)


def _between(number: float, low: float, high: float) -> float:
    """Map ``number`` in [0, 1) linearly to [low, high)."""
    return low + (high - low) * number
