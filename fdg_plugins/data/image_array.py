# SPDX-License-Identifier: Apache-2.0
"""Images held in memory as one array; they are not augmented, and batched by indexing."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch.nn.functional import interpolate

from fdg_plugins.data.sources import Epochs, ImageDataset, ImageSource
from fdg_plugins.data.specs import Sample
from fdg_plugins.data.transforms import checked_size

COLOUR_DIMS = 4  # of an array [N, 3, S, S]


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
    """Samples in memory as ``(image float32 [C, S, S] in [0, 1], label)``, resized only if their size differs.

    The whole sequence of samples is repeated ``times`` times.
    """

    in_memory: ClassVar[bool] = True

    def __init__(self, array: "ImageArray", samples: Sequence[Sample], image_size: int, times: int = 1) -> None:
        self.pixels = array.pixels
        self.rows = torch.tensor([array.rows[sample.file] for sample in samples], dtype=torch.int64)
        self.labels = torch.tensor([sample.label for sample in samples], dtype=torch.int64)
        self.image_size = checked_size(image_size)
        self.times = times

    def __len__(self) -> int:
        return len(self.rows) * self.times

    def __getitem__(self, index: int) -> tuple[torch.Tensor, torch.Tensor]:
        images, labels = self.__getitems__([index])
        return images[0], labels[0]

    def __getitems__(self, indices: list[int]) -> tuple[torch.Tensor, torch.Tensor]:
        """Return a whole batch, images ``[B, C, S, S]`` and labels ``[B]``, which needs no collating."""
        chosen = torch.tensor(indices, dtype=torch.int64) % max(len(self.rows), 1)
        images = self.pixels[self.rows[chosen]]
        images = (images if images.dim() == COLOUR_DIMS else images.unsqueeze(1)).float().div_(255.0)
        if images.shape[-1] != self.image_size:
            images = interpolate(images, [self.image_size] * 2, mode="bilinear", antialias=True)
        return images, self.labels[chosen]
