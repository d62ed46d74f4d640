# SPDX-License-Identifier: Apache-2.0
"""From pixels to the input of a network: one augmented view for training, or the whole image, resized.

A view is drawn as torchvision's ``RandomResizedCrop``, of 80 to 100 % of the area, ``RandomHorizontalFlip``,
``ColorJitter(0.4, 0.4, 0.4, 0.4)`` and ``RandomGrayscale(0.1)`` draw it. :class:`AugmentationRanges` has other ranges:
crops of 70 to 100 % in the released code of FedDG-GA and FedOMG, and in FedIIR's, whose ``ColorJitter`` has 0.3.

Pixels are uint8 ``[H, W, 3]`` and views uint8 ``[3, S, S]``: a quarter of the bytes of floats to transfer between
processes and to a GPU, where whole batches are normalised. Resizing is bilinear and antialiased, on 8-bit values as in
Pillow. Colours are changed in place, in an image float32 ``[3, H, W]`` with values in [0, 255], and rounded once, by
numpy: it starts an operation in a third of torch's time, and its bits do not depend on the number of threads. The hue
needs no case distinction by sextant of the colour circle. With ``C = max - min`` of a pixel's values and the hue ``h``
in (-1/2, 1/2], in turns from red and positive towards green,

    |h| = 1/6 + (g + b - r - min) / 6C,        with the sign of g - b,
    channel = min + 6C clamp(1/3 - distance, 0, 1/6),

where ``distance`` is that of h from the channel's position on the circle: red 0, green 1/3, blue -1/3.
"""

import functools
import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np
import torch
from torch.nn.functional import interpolate

from fdg_plugins.randomness import numpy_generator

Scope = tuple[str | int, ...]
Change = Literal["brightness", "contrast", "saturation", "hue"]

RATIO = (3 / 4, 4 / 3)
TRIES = 10
GREY = 0.1
ORDERS: tuple[tuple[Change, ...], ...] = tuple(itertools.permutations(("brightness", "contrast", "saturation", "hue")))
DRAWS = 2 * TRIES + 9  # the number of uniform random numbers reserved for one view, even if it needs fewer
# Mean and deviation of ImageNet's training images, per channel, for values in [0, 1].
IMAGENET_MEAN = (0.485, 0.456, 0.406)
IMAGENET_DEVIATION = (0.229, 0.224, 0.225)

# Luma of red, green and blue (ITU-R BT.601), as in Pillow and torchvision.
_LUMA = (0.2989, 0.587, 0.114)
_PLACES = np.array([0, 1 / 3, -1 / 3], dtype=np.float32).reshape(3, 1, 1)  # of red, green and blue on the circle
_SIGN = np.int32(-(2**31))  # the sign bit of a float32
_ONE_THREAD = 1 << 15  # torch's own threshold
_GREY_BELOW = np.float32(1e-9)  # a smaller chroma has no hue; avoids division by zero


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
class Epochs:
    """The occasions on which all samples are augmented anew; their draws depend on ``seed`` and the scope only.

    ``count`` epochs, whose numbers end their scopes; None: a single one, whose scope is ``scope`` itself. ``ranges``:
    how far views of photographs differ from them.
    """

    seed: int
    scope: Scope
    count: int | None = None
    ranges: AugmentationRanges = USUAL

    def __len__(self) -> int:
        return 1 if self.count is None else self.count

    def scope_of(self, number: int) -> Scope:
        """Return the scope of epoch ``number``, counted from 0."""
        return self.scope if self.count is None else (*self.scope, number)


class Crop(NamedTuple):
    """A rectangle within an image, in pixels."""

    top: int
    left: int
    height: int
    width: int


class Augmentation(NamedTuple):
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
    return low + (high - low) * number


# --- views ---


class EpochViews:
    """The augmented views of ``count`` samples in consecutive epochs.

    The draws for a sample depend only on the epochs' seed and scope and on the sample's position.
    """

    def __init__(self, image_size: int, count: int, epochs: Epochs) -> None:
        self.image_size = image_size
        self.count = count
        self.epochs = epochs
        self._last: tuple[int, np.ndarray] | None = None

    def __call__(self, pixels: np.ndarray, number: int, position: int) -> np.ndarray:
        """Return the view, uint8 ``[3, S, S]``, of the sample at ``position``, uint8 ``[H, W, 3]``, in an epoch."""
        if self._last is None or self._last[0] != number:
            # One generator for all samples: creating one takes more than a tenth of the time of a view.
            generator = numpy_generator(self.epochs.seed, *self.epochs.scope_of(number), "augmentation")
            self._last = number, generator.random((self.count, DRAWS))
        height, width, _ = pixels.shape
        drawn = augmentation_from(self._last[1][position], height, width, self.epochs.ranges)
        return augmented(pixels, drawn, self.image_size)


def whole_view(pixels: np.ndarray, image_size: int) -> np.ndarray:
    """Return the whole image, uint8 ``[H, W, 3]``, resized to the square, uint8 ``[3, S, S]``, for evaluation."""
    height, width, _ = pixels.shape
    return _resized(pixels, Crop(0, 0, height, width), image_size)


def augmented(pixels: np.ndarray, drawn: Augmentation, image_size: int) -> np.ndarray:
    """Return the view, uint8 ``[3, S, S]``, of ``pixels``, uint8 ``[H, W, 3]``, for the given draw."""
    resized = _resized(pixels, drawn.crop, image_size)
    view = np.empty(resized.shape, dtype=np.float32)
    for channel, values in zip(view, resized[..., ::-1] if drawn.flipped else resized, strict=True):
        channel[...] = values  # one by one is faster than all at once
    for name, factor in drawn.changes:
        CHANGES[name](view, factor)
    if drawn.grey:
        view[...] = _grey_of(view)
    return np.rint(view, out=view).astype(np.uint8)


def _resized(pixels: np.ndarray, crop: Crop, size: int) -> np.ndarray:
    part = pixels[crop.top : crop.top + crop.height, crop.left : crop.left + crop.width].transpose(2, 0, 1)
    if part.shape[1:] == (size, size):
        return part
    # torch resizes 8-bit values fastest with channels last; the copy makes the array writable, as torch requires
    image = torch.from_numpy(np.array(part, order="K")).unsqueeze(0)
    resized: np.ndarray = interpolate(image, size=(size, size), mode="bilinear", antialias=True)[0].numpy()
    return resized


def normalised(images: torch.Tensor) -> torch.Tensor:
    """Return views uint8 ``[B, 3, S, S]`` as float32 on their device, standardised by ImageNet's mean and deviation."""
    factor, summand = _constants(images.device)
    return images.float().mul_(factor).add_(summand)


@functools.cache
def _constants(device: torch.device) -> tuple[torch.Tensor, torch.Tensor]:
    """Return factor and summand for values in [0, 255]; each copy to an accelerator waits for queued work."""
    mean, deviation = np.array(IMAGENET_MEAN), np.array(IMAGENET_DEVIATION)
    values = (1 / (255 * deviation), -mean / deviation)
    with torch.inference_mode(False):
        factor, summand = (torch.from_numpy(one.astype(np.float32)).view(3, 1, 1).to(device) for one in values)
    return factor, summand


# --- colours ---


def _brightness(image: np.ndarray, factor: float) -> None:
    image *= factor
    _clamp(image, factor)


def _contrast(image: np.ndarray, factor: float) -> None:
    """Blend with the mean of the image in grey: 0 leaves only the mean, 1 the image."""
    sums = [luma * float(channel.sum()) for luma, channel in zip(_LUMA, image, strict=True)]
    mean = sum(sums) / image[0].size
    image *= factor
    image += (1 - factor) * mean
    _clamp(image, factor)


def _saturation(image: np.ndarray, factor: float) -> None:
    """Blend with the image in grey: 0 leaves only the grey image, 1 the image."""
    grey = _grey_of(image)
    grey *= 1 - factor
    image *= factor
    image += grey
    _clamp(image, factor)


def _hue(image: np.ndarray, turns: float) -> None:
    """Turn each pixel's hue by ``turns`` of the colour circle; greys and each pixel's extreme values are preserved."""
    red, green, blue = image
    smallest = np.minimum(red, green)
    np.minimum(smallest, blue, out=smallest)
    chroma = np.maximum(red, green)
    np.maximum(chroma, blue, out=chroma)
    chroma -= smallest
    chroma *= 6
    hue = green + blue
    hue -= red
    hue -= smallest
    hue /= np.maximum(chroma, _GREY_BELOW)
    hue += 1 / 6
    green -= blue
    # Give the hue, which is not negative, the sign of green - blue: four times faster than numpy.copysign.
    signs, target = green.view(np.int32), hue.view(np.int32)
    signs &= _SIGN
    target |= signs
    hue += turns
    hue -= np.rint(hue)  # in [-1/2, 1/2] again
    np.subtract(hue, _PLACES, out=image)  # in [-5/6, 5/6]; above 1/2, the other way around is shorter
    np.abs(image, out=image)
    image -= 1 / 2
    np.abs(image, out=image)
    image -= 1 / 6  # the distance from the channel's place is now 1/3 - image
    _clamp(image, math.inf, 1 / 6)
    image *= chroma
    image += smallest


CHANGES = {"brightness": _brightness, "contrast": _contrast, "saturation": _saturation, "hue": _hue}


def _grey_of(image: np.ndarray) -> np.ndarray:
    """Return the luma of each pixel, float32 ``[H, W]``."""
    red, green, blue = image
    grey: np.ndarray = red * _LUMA[0]
    grey += green * _LUMA[1]
    grey += blue * _LUMA[2]
    return grey


def _clamp(image: np.ndarray, factor: float, largest: float = 255) -> None:
    """Clamp values that were multiplied by ``factor`` or blended; for factors up to 1, all are within the range."""
    if factor <= 1:
        return
    # torch is three times faster here. It processes parts of this size in one thread: waking others would make it
    # wait for cores that other sites on this machine need.
    for part in torch.from_numpy(image).view(-1).split(_ONE_THREAD):
        part.clamp_(0, largest)
