# SPDX-License-Identifier: Apache-2.0
"""The random draw of one augmented view, as torchvision draws it.

A crop; a horizontal flip with probability 1/2; brightness, contrast and saturation changed by up to 40 % and hue by up
to 0.4 turns, in random order; grey with probability 1/10. In torchvision: ``RandomResizedCrop``,
``RandomHorizontalFlip``, ``ColorJitter(0.4, 0.4, 0.4, 0.4)`` and ``RandomGrayscale(0.1)``. The crop has 80 to 100 % of
the area, unless :class:`AugmentationRanges` says otherwise: it has 70 to 100 % in the released code of FedDG-GA and
FedOMG, and in FedIIR's, whose ``ColorJitter`` has 0.3.
"""

import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

import numpy as np

Change = Literal["brightness", "contrast", "saturation", "hue"]

RATIO = (3 / 4, 4 / 3)
TRIES = 10
GREY = 0.1
ORDERS: tuple[tuple[Change, ...], ...] = tuple(itertools.permutations(("brightness", "contrast", "saturation", "hue")))
DRAWS = 2 * TRIES + 9
"""The number of uniform random numbers reserved for one view, even if it needs fewer."""


@dataclass(frozen=True)
class AugmentationRanges:
    """How far views may differ from their images.

    ``crop_scale``: the smallest fraction of the area that a crop has, above 0, at most 1. ``color_jitter``: the largest
    change of brightness, contrast and saturation, as a fraction, and of the hue, in turns; 0 to 0.5, 0 being none.
    """

    crop_scale: float = 0.8
    color_jitter: float = 0.4


USUAL = AugmentationRanges()


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


def augmentation_from(draws: np.ndarray, height: int, width: int, ranges: AugmentationRanges = USUAL) -> Augmentation:
    """Return the draw for an image of ``height`` x ``width`` pixels, from ``[DRAWS]`` uniform numbers in [0, 1)."""
    numbers = iter(draws.tolist())
    flipped, grey, order = next(numbers) < 0.5, next(numbers) < GREY, next(numbers)
    largest = ranges.color_jitter
    factors = {name: _between(next(numbers), 1 - largest, 1 + largest) for name in ORDERS[0][:3]}
    factors["hue"] = _between(next(numbers), -largest, largest)
    changes = tuple((name, factors[name]) for name in ORDERS[int(order * len(ORDERS))]) if largest else ()
    return Augmentation(_draw_crop(numbers, height, width, ranges.crop_scale), flipped, changes, grey)


def _draw_crop(numbers: Iterator[float], height: int, width: int, smallest: float) -> Crop:
    """Return the first try that fits into the image, at a random position, or the middle of the image if none fits."""
    down, right = next(numbers), next(numbers)
    low, high = math.log(RATIO[0]), math.log(RATIO[1])
    for _ in range(TRIES):
        area = height * width * _between(next(numbers), smallest, 1.0)
        ratio = math.exp(_between(next(numbers), low, high))
        w, h = round(math.sqrt(area * ratio)), round(math.sqrt(area / ratio))
        if 0 < w <= width and 0 < h <= height:
            return Crop(int(down * (height - h + 1)), int(right * (width - w + 1)), h, w)
    w, h = min(width, round(height * RATIO[1])), min(height, round(width / RATIO[0]))
    return Crop((height - h) // 2, (width - w) // 2, h, w)


def _between(number: float, low: float, high: float) -> float:
    """Map ``number`` in [0, 1) linearly to [low, high)."""
    return low + (high - low) * number
