# SPDX-License-Identifier: Apache-2.0
"""In-place colour changes of one image, as torchvision's functions of the same names define them, but faster.

An image is float32 ``[3, H, W]`` with values in [0, 255]. One image of 224 pixels fits into a core's cache; a batch
would not. For arrays of that size, numpy starts an operation in a third of the time that torch needs, and
its bits do not depend on the number of threads.

The hue needs no case distinction by sextant of the colour circle. With ``C = max - min`` of a pixel's values and the
hue ``h`` in (-1/2, 1/2], in turns from red and positive towards green,

    |h| = 1/6 + (g + b - r - min) / 6C,        with the sign of g - b,
    channel = min + 6C clamp(1/3 - distance, 0, 1/6),

where ``distance`` is that of h from the channel's position on the circle: red 0, green 1/3, blue -1/3.
"""

import numpy as np
import torch

# Luma of red, green and blue (ITU-R BT.601), as in Pillow and torchvision.
_LUMA = (0.2989, 0.587, 0.114)
_PLACES = np.array([0, 1 / 3, -1 / 3], dtype=np.float32).reshape(3, 1, 1)  # of red, green and blue on the circle
_SIGN = np.int32(-(2**31))  # the sign bit of a float32
_LARGEST = 255
_ONE_THREAD = 1 << 15  # torch's own threshold
_GREY_BELOW = np.float32(1e-9)  # a smaller chroma has no hue; avoids division by zero


def adjust_brightness(image: np.ndarray, factor: float) -> None:
    """Multiply by ``factor >= 0``."""
    image *= factor
    _clamp(image, factor)


def adjust_contrast(image: np.ndarray, factor: float) -> None:
    """Blend with the mean of the image in grey: 0 leaves only the mean, 1 the image."""
    sums = [luma * float(channel.sum()) for luma, channel in zip(_LUMA, image, strict=True)]
    mean = sum(sums) / image[0].size
    image *= factor
    image += (1 - factor) * mean
    _clamp(image, factor)


def adjust_saturation(image: np.ndarray, factor: float) -> None:
    """Blend with the image in grey: 0 leaves only the grey image, 1 the image."""
    grey = grey_of(image)
    grey *= 1 - factor
    image *= factor
    image += grey
    _clamp(image, factor)


def adjust_hue(image: np.ndarray, turns: float) -> None:
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
    _copy_sign(green, hue)
    hue += turns
    hue -= np.rint(hue)  # in [-1/2, 1/2] again
    np.subtract(hue, _PLACES, out=image)  # in [-5/6, 5/6]; above 1/2, the other way around is shorter
    np.abs(image, out=image)
    image -= 1 / 2
    np.abs(image, out=image)
    image -= 1 / 6  # the distance from the channel's place is now 1/3 - image
    _clamp_to(image, 1 / 6)
    image *= chroma
    image += smallest


def remove_colour(image: np.ndarray) -> None:
    """Replace all three channels by the image in grey."""
    image[...] = grey_of(image)


def grey_of(image: np.ndarray) -> np.ndarray:
    """Return the luma of each pixel, float32 ``[H, W]``."""
    red, green, blue = image
    grey: np.ndarray = red * _LUMA[0]
    grey += green * _LUMA[1]
    grey += blue * _LUMA[2]
    return grey


def _clamp(image: np.ndarray, factor: float) -> None:
    """Clamp values that were multiplied by ``factor`` or blended; for factors up to 1, all are within the range."""
    if factor > 1:
        _clamp_to(image, _LARGEST)


def _copy_sign(source: np.ndarray, target: np.ndarray) -> None:
    """Give ``target``, which has no negative value, the signs of ``source``, whose values are overwritten."""
    bits = source.view(np.int32)  # four times faster than numpy.copysign
    bits &= _SIGN
    target_bits = target.view(np.int32)
    target_bits |= bits


def _clamp_to(image: np.ndarray, largest: float) -> None:
    # torch is three times faster here. It processes parts of this size in one thread: waking others would make it
    # wait for cores that other sites on this machine need.
    for part in torch.from_numpy(image).view(-1).split(_ONE_THREAD):
        part.clamp_(0, largest)
