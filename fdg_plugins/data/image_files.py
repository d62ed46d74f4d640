# SPDX-License-Identifier: Apache-2.0
"""Images in files, decoded when they are needed or kept in memory, and images that are one array.

Of images that are used whole, what stays in memory is the image as resized. Nothing decoded is written to disk.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import ClassVar

import numpy as np
import torch
from torch.nn.functional import interpolate

from fdg_plugins.data.decoding import FORMATS, MOST_PIXELS, check_image, open_image, read_image
from fdg_plugins.data.sources import Epochs, ImageDataset, ImageSource, Kept
from fdg_plugins.data.specs import AttributeSample, Sample
from fdg_plugins.data.transforms import EpochViews, whole_view

CHANNELS = 3


@dataclass(frozen=True)
class ImageFiles(ImageSource):
    """Images below ``folder``, of at most ``max_pixels``; keeps decoded or resized ones, up to ``memory`` bytes.

    Datasets have images uint8 ``[3, S, S]`` and labels.
    """

    formats: ClassVar[tuple[str, ...]] = FORMATS

    folder: Path
    memory: int = field(default=0, compare=False)
    max_pixels: int = field(default=MOST_PIXELS, compare=False)
    _kept: Kept[tuple[str, int], np.ndarray] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_kept", Kept(self.memory))

    @property
    def location(self) -> str:  # type: ignore[override]
        """The folder."""
        return str(self.folder)

    def training(self, samples: Sequence[Sample], image_size: int, epochs: Epochs) -> ImageDataset:
        """Return the augmented views of each epoch."""
        self._kept.fill(((sample.file, 0) for sample in samples), self._bytes_of, self._read)
        views = EpochViews(image_size, len(samples), epochs)
        return ImageDataset(samples, partial(self._augmented, views), len(epochs))

    def evaluation(self, samples: Sequence[Sample], image_size: int) -> ImageDataset:
        """Return the whole images, resized only."""
        return self.whole(samples, image_size)

    def whole(self, samples: Sequence[Sample], image_size: int, times: int = 1, *, told: bool = False) -> ImageDataset:
        """Return the whole images, resized only, ``times`` times; ``told``: with label and attribute as target."""
        size = CHANNELS * image_size**2
        self._kept.fill(((sample.file, image_size) for sample in samples), lambda _: size, self._read)
        return ImageDataset(samples, partial(self._whole, image_size, told), times)

    def check(self, sample: Sample) -> None:
        """Decode the image."""
        check_image(self.folder / sample.file, self.max_pixels)

    def read(self, file: str, size: int = 0) -> np.ndarray:
        """Return an image, uint8 ``[H, W, 3]`` in RGB, or resized to ``size`` pixels, uint8 ``[3, size, size]``.

        The caller must not write to it. Raises DataError naming the file if it cannot be decoded or has too many
        pixels.
        """
        return self._kept.get((file, size), self._read)

    def _read(self, key: tuple[str, int]) -> np.ndarray:
        file, size = key
        pixels = np.asarray(read_image(self.folder / file, self.max_pixels))
        return whole_view(pixels, size) if size else pixels

    def _bytes_of(self, key: tuple[str, int]) -> int:
        with open_image(self.folder / key[0], self.max_pixels) as image:
            return image.height * image.width * CHANNELS

    def _augmented(
        self, views: EpochViews, sample: Sample, number: int, position: int
    ) -> tuple[torch.Tensor, torch.Tensor]:
        view = np.ascontiguousarray(views(self.read(sample.file), number, position))
        return torch.from_numpy(view), torch.tensor(sample.label)

    def _whole(
        self, size: int, told: bool, sample: Sample, number: int, position: int
    ) -> tuple[torch.Tensor, torch.Tensor]:
        image = torch.from_numpy(np.ascontiguousarray(self.read(sample.file, size)))
        if not told:
            return image, torch.tensor(sample.label)
        assert isinstance(sample, AttributeSample)
        return image, torch.tensor((sample.label, sample.attribute))


@dataclass(frozen=True)
class AttributeFiles(ImageFiles):
    """Images with attributes below ``folder``, used whole: resized only, as they are in the papers' code.

    Targets are labels ``[B]`` in training and in what methods report, labels and attributes ``[B, 2]`` in evaluations.
    """

    reports_differ = True

    def training(self, samples: Sequence[Sample], image_size: int, epochs: Epochs) -> ImageDataset:
        """Return the whole images with their labels, once per epoch."""
        return self.whole(samples, image_size, len(epochs))

    def evaluation(self, samples: Sequence[Sample], image_size: int) -> ImageDataset:
        """Return the whole images with labels and attributes."""
        return self.whole(samples, image_size, told=True)

    def reported(self, samples: Sequence[Sample], image_size: int, epochs: Epochs) -> ImageDataset:
        """Return the whole images with their labels."""
        return self.whole(samples, image_size)


@dataclass(frozen=True, eq=False)
class ImageArray(ImageSource):
    """Images in memory, ``pixels: uint8 [N, S, S]`` if grey, ``[N, 3, S, S]`` in colour.

    ``rows`` maps the ``file`` of a sample to its row.
    """

    pixels: torch.Tensor
    rows: Mapping[str, int]

    def training(self, samples: Sequence[Sample], image_size: int, epochs: Epochs) -> "ArrayImages":
        """Return the images as they are, once per epoch."""
        return ArrayImages(self, samples, image_size, times=len(epochs))

    def evaluation(self, samples: Sequence[Sample], image_size: int) -> "ArrayImages":
        """Return the images as they are."""
        return ArrayImages(self, samples, image_size)

    def check(self, sample: Sample) -> None:
        """Do nothing: the images were read as a whole when the domain was opened."""


class ArrayImages(ImageDataset):
    """Samples in memory as ``(image float32 [C, S, S] in [0, 1], label)``, resized only if their size differs."""

    in_memory: ClassVar[bool] = True

    def __init__(self, array: ImageArray, samples: Sequence[Sample], image_size: int, times: int = 1) -> None:
        super().__init__(samples, self._load, times)
        self.pixels = array.pixels
        self.rows = torch.tensor([array.rows[sample.file] for sample in samples], dtype=torch.int64)
        self.labels = torch.tensor([sample.label for sample in samples], dtype=torch.int64)
        self.image_size = image_size

    def _load(self, sample: Sample, number: int, position: int) -> tuple[torch.Tensor, torch.Tensor]:
        images, labels = self.__getitems__([position])
        return images[0], labels[0]

    def __getitems__(self, indices: list[int]) -> tuple[torch.Tensor, torch.Tensor]:
        """Return a whole batch, images ``[B, C, S, S]`` and labels ``[B]``, which needs no collating."""
        chosen = torch.tensor(indices, dtype=torch.int64) % max(len(self.rows), 1)
        images = self.pixels[self.rows[chosen]]
        images = (images if images.dim() == 4 else images.unsqueeze(1)).float().div_(255.0)
        if images.shape[-1] != self.image_size:
            images = interpolate(images, [self.image_size] * 2, mode="bilinear", antialias=True)
        return images, self.labels[chosen]
