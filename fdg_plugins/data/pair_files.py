# SPDX-License-Identifier: Apache-2.0
"""Images and masks in files, as a preset transforms them: datasets for training, reports and evaluation.

The results of a preset's fixed part stay in memory as far as that suffices, for all rounds of a session; forked worker
processes share them. The random part of a sample is drawn from a seed of its own, so that neither
the number of processes and threads nor the size of the memory changes a bit.
"""

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from fdg_plugins.data.augmentation import Epochs
from fdg_plugins.data.decoding import MOST_PIXELS
from fdg_plugins.data.image_files import Example, FileSource, ImageDataset, SizedSample
from fdg_plugins.data.pair_reading import PairForm
from fdg_plugins.data.presets import IMAGE, MASK, Pair, Preset
from fdg_plugins.data.specs import PairSample, Sample, SegmentationSpec
from fdg_plugins.randomness import derive_seed

EVALUATED_PIXELS = 2**20
"""Pixels of the images that an evaluation takes at once; a network for segmentation needs about 1 kB for each."""

MASK_BYTES, VALUE_BYTES = 2, 4


class PairFiles(FileSource[Pair]):
    """Images and masks below ``folder``, transformed as ``preset`` says; ``memory`` bytes for transformed ones.

    Datasets have images float32 ``[C, *S]`` with masks int64 ``[*S]``, S being equal within a batch.
    """

    def __init__(
        self, folder: Path, spec: SegmentationSpec, preset: Preset, memory: int = 0, max_pixels: int = MOST_PIXELS
    ) -> None:
        super().__init__(folder, memory, max_pixels)
        self.preset = preset
        self.form = PairForm(spec, not preset.whole, max_pixels, in_bytes=preset.of_photographs)

    def training(self, samples: Sequence[Sample], image_size: int, epochs: Epochs) -> ImageDataset:
        """Return pairs whose sides are ``image_size``; new draws in each epoch."""
        transform = self.preset.drawn(self.form.spec.dims, image_size)
        finish = partial(_drawn, transform, "augmentation", epochs)
        return self.dataset(samples, self._size(image_size), finish, len(epochs))

    def evaluation(self, samples: Sequence[Sample], image_size: int) -> ImageDataset:
        """Return whole images; unless the preset scales them, they are of any size, and come one by one."""
        at_once = self._at_once(image_size) if self.preset.whole else 1
        return self.dataset(samples, self._size(image_size), _example, largest=at_once)

    def reported(self, samples: Sequence[Sample], image_size: int, epochs: Epochs) -> ImageDataset:
        """Return whole images if the preset scales them, else one crop of each, of the size of training."""
        if self.preset.whole:
            return self.evaluation(samples, image_size)
        transform = self.preset.drawn(self.form.spec.dims, image_size, only_crop=True)
        finish = partial(_drawn, transform, "report", epochs)
        return self.dataset(samples, 0, finish, len(epochs), self._at_once(image_size))

    def check(self, sample: Sample) -> None:
        """Read the image and its mask."""
        self._pixels(sample)

    def read(self, key: SizedSample) -> Pair:
        """Return image and mask after the fixed part of the preset."""
        sample, size = key
        pixels, classes = self._pixels(sample)
        return self.preset.fixed({IMAGE: torch.from_numpy(pixels), MASK: torch.from_numpy(classes)}, size)

    def bytes_of(self, key: SizedSample) -> int:
        """Return the bytes of both, from the header of the image."""
        sample, size = key
        sides = (size,) * 2 if size else self.form.size_of(self.folder / sample.file)
        return int(np.prod(sides)) * (VALUE_BYTES * self.form.spec.channels + MASK_BYTES)

    def _pixels(self, sample: Sample) -> tuple[np.ndarray, np.ndarray]:
        assert isinstance(sample, PairSample)
        return self.form.read(self.folder / sample.file, self.folder / sample.mask)

    def _size(self, image_size: int) -> int:
        return image_size if self.preset.whole else 0  # crops are taken of images in the size of their files

    def _at_once(self, image_size: int) -> int:
        return max(1, EVALUATED_PIXELS // image_size**self.form.spec.dims)


def _example(pair: Pair, sample: Sample, number: int, position: int) -> Example:
    return pair[IMAGE], pair[MASK][0].to(torch.int64)


def _drawn(
    transform: Any, purpose: str, epochs: Epochs, pair: Pair, sample: Sample, number: int, position: int
) -> Example:
    """Return the pair at ``position`` as MONAI's Compose draws it for epoch ``number``; ``pair`` stays as it is."""
    scope = (*epochs.scope_of(number), purpose, position)
    transform.set_random_state(seed=derive_seed(epochs.seed, *scope))
    made = transform(pair)
    return _example(made[0] if isinstance(made, list) else made, sample, number, position)  # a list of one crop
