# SPDX-License-Identifier: Apache-2.0
"""Images and masks in files, as a preset transforms them: datasets for training, reports and evaluation.

The results of a preset's fixed part stay in memory as far as that suffices, for all rounds of a session; forked worker
processes share them. The random part of a sample is drawn from a seed of its own, so that neither
the number of processes and threads nor the size of the memory changes a bit.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch

from fdg_plugins.data.decoding import MOST_PIXELS
from fdg_plugins.data.pair_reading import FORMATS, PairForm
from fdg_plugins.data.presets import IMAGE, MASK, Pair, Preset
from fdg_plugins.data.sources import Epochs, ImageDataset, ImageSource, Kept
from fdg_plugins.data.specs import PairSample, Sample, SegmentationSpec
from fdg_plugins.randomness import derive_seed

EVALUATED_PIXELS = 2**20
"""Pixels of the images that an evaluation takes at once; a network for segmentation needs about 1 kB for each."""

MASK_BYTES, VALUE_BYTES = 2, 4


class PairFiles(ImageSource):
    """Images and masks below ``folder``, transformed as ``preset`` says; ``memory`` bytes for transformed ones.

    Datasets have images float32 ``[C, *S]`` with masks int64 ``[*S]``, S being equal within a batch.
    """

    formats: ClassVar[tuple[str, ...]] = (*FORMATS, "NIfTI")

    def __init__(
        self, folder: Path, spec: SegmentationSpec, preset: Preset, memory: int = 0, max_pixels: int = MOST_PIXELS
    ) -> None:
        self.folder = folder
        self.location = str(folder)
        self.preset = preset
        self.reports_differ = not preset.whole  # training takes crops
        self.form = PairForm.of(spec, oriented=not preset.whole, max_pixels=max_pixels, in_bytes=preset.of_photographs)
        self._kept: Kept[tuple[Sample, int], Pair] = Kept(memory)

    def training(self, samples: Sequence[Sample], image_size: int, epochs: Epochs) -> ImageDataset:
        """Return pairs whose sides are ``image_size``; new draws in each epoch."""
        drawn = Drawn(self.preset.drawn(self.form.dims, image_size), "augmentation", epochs)
        return self._dataset(samples, image_size, drawn)

    def evaluation(self, samples: Sequence[Sample], image_size: int) -> ImageDataset:
        """Return whole images; unless the preset scales them, they are of any size, and come one by one."""
        return self._dataset(samples, image_size, None, self._at_once(image_size) if self.preset.whole else 1)

    def reported(self, samples: Sequence[Sample], image_size: int, epochs: Epochs) -> ImageDataset:
        """Return whole images if the preset scales them, else one crop of each, of the size of training."""
        if self.preset.whole:
            return self.evaluation(samples, image_size)
        drawn = Drawn(self.preset.drawn(self.form.dims, image_size, only_crop=True), "report", epochs)
        return self._dataset(samples, image_size, drawn, self._at_once(image_size))

    def check(self, sample: Sample) -> None:
        """Read the image and its mask."""
        self._read(sample)

    def spacing(self, sample: Sample, image_size: int) -> tuple[float, ...] | None:
        """Return the distance of neighbouring pixels in millimetres along each axis, as evaluated; None if unknown."""
        known = self.form.spacing_of(self.folder / sample.file) is not None
        return self.pixel_sides(sample, image_size) if known else None

    def pixel_sides(self, sample: Sample, image_size: int) -> tuple[float, ...]:
        """Return the sides of a pixel along each axis, as evaluated, in mm, or in pixels of the file if unknown."""
        path = self.folder / sample.file
        sides = self.form.spacing_of(path) or (1.0,) * self.form.dims
        if not self.preset.whole:
            return sides
        return tuple(step * count / image_size for step, count in zip(sides, self.form.size_of(path), strict=True))

    def _dataset(
        self, samples: Sequence[Sample], image_size: int, drawn: "Drawn | None", largest_batch: int | None = None
    ) -> ImageDataset:
        # The fixed part of a preset that takes crops does not depend on the size.
        size = image_size if self.preset.whole else 0
        make = partial(self._prepared, image_size)
        self._kept.fill(((sample, size) for sample in samples), self._bytes_of, make)
        times = 1 if drawn is None else len(drawn.epochs)
        return ImageDataset(samples, partial(self._load, size, make, drawn), times, largest_batch)

    def _load(
        self, size: int, make: "Make", drawn: "Drawn | None", sample: Sample, number: int, position: int
    ) -> tuple[torch.Tensor, torch.Tensor]:
        pair = self._kept.get((sample, size), make)
        if drawn is not None:
            pair = drawn(pair, number, position)
        return pair[IMAGE], pair[MASK][0].to(torch.int64)

    def _prepared(self, image_size: int, key: tuple[Sample, int]) -> Pair:
        pixels, classes = self._read(key[0])
        return self.preset.fixed({IMAGE: torch.from_numpy(pixels), MASK: torch.from_numpy(classes)}, image_size)

    def _read(self, sample: Sample) -> tuple[np.ndarray, np.ndarray]:
        assert isinstance(sample, PairSample)
        return self.form.read(self.folder / sample.file, self.folder / sample.mask)

    def _bytes_of(self, key: tuple[Sample, int]) -> int:
        sample, size = key
        sides = (size,) * 2 if size else self.form.size_of(self.folder / sample.file)
        return int(np.prod(sides)) * (VALUE_BYTES * self.form.channels + MASK_BYTES)

    def _at_once(self, image_size: int) -> int:
        return max(1, EVALUATED_PIXELS // image_size**self.form.dims)


Make = Callable[[tuple[Sample, int]], Pair]


@dataclass(frozen=True)
class Drawn:
    """The random part of a preset, MONAI's Compose, and the purpose and epochs for which it is drawn."""

    transform: Any
    purpose: str
    epochs: Epochs

    def __call__(self, pair: Pair, number: int, position: int) -> Pair:
        """Return the pair at ``position`` as drawn for epoch ``number``; the argument is left as it is."""
        scope = (*self.epochs.scope_of(number), self.purpose, position)
        self.transform.set_random_state(seed=derive_seed(self.epochs.seed, *scope))
        made = self.transform(pair)
        drawn: Pair = made[0] if isinstance(made, list) else made  # a list of one crop
        return drawn
