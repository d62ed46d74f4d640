# SPDX-License-Identifier: Apache-2.0
"""From pixels to the input of a network: one augmented view for training, or the whole image, resized.

Pixels are uint8 ``[H, W, 3]`` and views uint8 ``[3, S, S]``: a quarter of the bytes of floats to transfer between
processes and to a GPU, where whole batches are normalised. Resizing is bilinear and antialiased, on 8-bit values as
in Pillow; colours are changed in float32 and rounded once.
"""

import functools

import numpy as np
import torch
from torch.nn.functional import interpolate

from fdg_plugins.data.augmentation import (
    CHANGES,
    DRAWS,
    Augmentation,
    Crop,
    augmentation_from,
    grey_of,
)
from fdg_plugins.data.sources import Epochs
from fdg_plugins.randomness import numpy_generator

# Mean and deviation of ImageNet's training images, per channel, for values in [0, 1].
IMAGENET_MEAN = (0.485, 0.456, 0.406)
IMAGENET_DEVIATION = (0.229, 0.224, 0.225)

# The same for values in [0, 255], as one factor and one summand.
_FACTOR = (1 / (255 * np.array(IMAGENET_DEVIATION))).astype(np.float32).reshape(3, 1, 1)
_SUMMAND = (-np.array(IMAGENET_MEAN) / np.array(IMAGENET_DEVIATION)).astype(np.float32).reshape(3, 1, 1)


class EpochViews:
    """The augmented views of ``count`` samples in consecutive epochs.

    The draws for a sample depend only on the epochs' seed and scope and on the sample's position. Those of an epoch are
    made when its first sample is asked for, because a table of draws takes memory.
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
        view[...] = grey_of(view)
    return np.rint(view, out=view).astype(np.uint8)


def normalised(images: torch.Tensor) -> torch.Tensor:
    """Return views uint8 ``[B, 3, S, S]`` as float32 on their device, standardised by ImageNet's mean and deviation."""
    if images.device.type != "cpu":
        factor, summand = _constants(images.device)
        return images.float().mul_(factor).add_(summand)
    # torch's threads would compete for cores with the loader's processes
    values: np.ndarray = np.multiply(images.numpy(), _FACTOR, dtype=np.float32)
    values += _SUMMAND
    return torch.from_numpy(values)


@functools.cache
def _constants(device: torch.device) -> tuple[torch.Tensor, torch.Tensor]:
    """Return factor and summand on an accelerator; copied there once, since each such copy waits for queued work."""
    with torch.inference_mode(False):
        return torch.from_numpy(_FACTOR).to(device), torch.from_numpy(_SUMMAND).to(device)


def _resized(pixels: np.ndarray, crop: Crop, size: int) -> np.ndarray:
    """Return the crop, resized, as uint8 ``[3, size, size]``; its memory layout may differ."""
    part = pixels[crop.top : crop.top + crop.height, crop.left : crop.left + crop.width].transpose(2, 0, 1)
    if part.shape[1:] == (size, size):
        return part
    # torch resizes 8-bit values fastest with channels last; the copy makes the array writable, as torch requires
    image = torch.from_numpy(np.array(part, order="K")).unsqueeze(0)
    resized: np.ndarray = interpolate(image, size=(size, size), mode="bilinear", antialias=True)[0].numpy()
    return resized
