# SPDX-License-Identifier: Apache-2.0
"""From pixels to the input of a network: one augmented view for training, or the whole image, resized.

Pixels are uint8 ``[H, W, 3]`` and views uint8 ``[3, S, S]``: a quarter of the bytes of floats to transfer between
processes and to a GPU, where whole batches are normalised. Resizing is bilinear and antialiased, on 8-bit values as
in Pillow; colours are changed in float32 and rounded once.
"""

import functools
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from torch.nn.functional import interpolate

from fdg_plugins.data.augmentation import (
    CHANGES,
    DRAWS,
    USUAL,
    Augmentation,
    AugmentationRanges,
    Crop,
    augmentation_from,
    grey_of,
)
from fdg_plugins.data.sources import Epochs
from fdg_plugins.errors import SettingsError
from fdg_plugins.randomness import numpy_generator

View = Callable[[np.ndarray, int], np.ndarray]

# Mean and deviation of ImageNet's training images, per channel, for values in [0, 1].
IMAGENET_MEAN = (0.485, 0.456, 0.406)
IMAGENET_DEVIATION = (0.229, 0.224, 0.225)

# The same for values in [0, 255], as one factor and one summand.
_FACTOR = (1 / (255 * np.array(IMAGENET_DEVIATION))).astype(np.float32).reshape(3, 1, 1)
_SUMMAND = (-np.array(IMAGENET_MEAN) / np.array(IMAGENET_DEVIATION)).astype(np.float32).reshape(3, 1, 1)


class TrainingView:
    """The augmented views of ``count`` samples.

    The draws for a sample depend only on ``seed``, ``scope`` and the sample's index. Choose a scope that names the
    occasion, e.g. ``(site, round, epoch)``. ``ranges``: how far views differ from the images.
    """

    def __init__(
        self,
        image_size: int,
        count: int,
        *,
        seed: int,
        scope: tuple[str | int, ...],
        ranges: AugmentationRanges = USUAL,
    ) -> None:
        self.image_size = checked_size(image_size)
        self.ranges = ranges
        # One generator for all samples: creating one takes more than a tenth of the time of a view.
        self.draws = numpy_generator(seed, *scope, "augmentation").random((count, DRAWS))

    def __call__(self, pixels: np.ndarray, index: int) -> np.ndarray:
        """Return the view, uint8 ``[3, S, S]``, of ``pixels``, uint8 ``[H, W, 3]``, the sample at ``index``."""
        height, width, _ = pixels.shape
        return augmented(pixels, augmentation_from(self.draws[index], height, width, self.ranges), self.image_size)


class EpochViews:
    """The augmented views of consecutive epochs, each made on demand because its table of draws takes memory."""

    def __init__(self, image_size: int, num_samples: int, epochs: Epochs) -> None:
        self.image_size = checked_size(image_size)
        self.num_samples = num_samples
        self.epochs = epochs
        self._last: tuple[int, View] | None = None

    def __len__(self) -> int:
        return len(self.epochs)

    def __getitem__(self, number: int) -> View:
        if self._last is None or self._last[0] != number:
            scope, ranges = self.epochs.scope_of(number), self.epochs.ranges
            view = TrainingView(self.image_size, self.num_samples, seed=self.epochs.seed, scope=scope, ranges=ranges)
            self._last = (number, view)
        return self._last[1]


@dataclass(frozen=True)
class WholeView:
    """The view for evaluation: the whole image resized to the square, without cropping or randomness."""

    image_size: int

    def __post_init__(self) -> None:
        checked_size(self.image_size)

    def __call__(self, pixels: np.ndarray, index: int) -> np.ndarray:
        """Return the view, uint8 ``[3, S, S]``, of ``pixels``, uint8 ``[H, W, 3]``, whatever the index."""
        height, width, _ = pixels.shape
        return _resized(pixels, Crop(0, 0, height, width), self.image_size)


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


def checked_size(image_size: int) -> int:
    """Return ``image_size`` in pixels; raise SettingsError if it is below 1."""
    if image_size < 1:
        raise SettingsError(f"image_size is {image_size}; expected at least 1 pixel.", public=True)
    return image_size


def _resized(pixels: np.ndarray, crop: Crop, size: int) -> np.ndarray:
    """Return the crop, resized, as uint8 ``[3, size, size]``; its memory layout may differ."""
    part = pixels[crop.top : crop.top + crop.height, crop.left : crop.left + crop.width].transpose(2, 0, 1)
    if part.shape[1:] == (size, size):
        return part
    # torch resizes 8-bit values fastest with channels last; the copy makes the array writable, as torch requires
    image = torch.from_numpy(np.array(part, order="K")).unsqueeze(0)
    resized: np.ndarray = interpolate(image, size=(size, size), mode="bilinear", antialias=True)[0].numpy()
    return resized
