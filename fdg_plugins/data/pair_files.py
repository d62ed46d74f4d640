# SPDX-License-Identifier: Apache-2.0
"""Images and masks in files, as a preset transforms them: datasets for training, reports and evaluation.

MONAI's CacheDataset keeps the result of a preset's fixed part in memory as far as that suffices, for all rounds of a
session; forked worker processes share it. The random part of a sample is drawn from a seed of its own, so that neither
the number of processes and threads nor the size of the memory changes a bit.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch

from fdg_plugins.data.decoding import MOST_PIXELS
from fdg_plugins.data.pair_reading import FORMATS, PairForm
from fdg_plugins.data.presets import IMAGE, MASK, Preset, errors_of_reading, loading
from fdg_plugins.data.sources import Epochs, ImageDataset, ImageSource
from fdg_plugins.data.specs import PairSample, Sample, SegmentationSpec
from fdg_plugins.errors import DataError
from fdg_plugins.extras import load_extra
from fdg_plugins.randomness import derive_seed

EVALUATED_PIXELS = 2**20
"""Pixels of the images that an evaluation takes at once; a network for segmentation needs about 1 kB for each."""

MASK_BYTES, VALUE_BYTES = 2, 4


class PairFiles(ImageSource):
    """Images and masks below ``folder``, transformed as ``preset`` says; ``memory`` bytes for transformed ones."""

    formats: ClassVar[tuple[str, ...]] = (*FORMATS, "NIfTI")

    def __init__(
        self,
        folder: Path,
        spec: SegmentationSpec,
        preset: Preset,
        memory: int = 0,
        max_pixels: int = MOST_PIXELS,
    ) -> None:
        self.folder = folder
        self.preset = preset
        self.memory = memory
        self.form = PairForm.of(spec, oriented=not preset.whole, max_pixels=max_pixels, in_bytes=preset.of_photographs)
        self._prepared: dict[int, _Prepared] = {}

    @property
    def location(self) -> str:
        """The folder."""
        return str(self.folder)

    @property
    def reports_differ(self) -> bool:  # type: ignore[override]
        """Whether training takes crops."""
        return not self.preset.whole

    def training(self, samples: Sequence[Sample], image_size: int, epochs: Epochs) -> "PairImages":
        """Return images ``[C, *S]`` with masks int64 ``[*S]``, each side ``image_size``; new draws in each epoch."""
        drawn = Drawn(self.preset.augmentation(self.form.dims, image_size), "augmentation", epochs)
        return self._images(samples, image_size, drawn)

    def evaluation(self, samples: Sequence[Sample], image_size: int) -> "PairImages":
        """Return whole images; unless the preset scales them, they are of any size, and come one by one."""
        images = self._images(samples, image_size, None)
        images.largest_batch = self._at_once(image_size) if self.preset.whole else 1
        return images

    def reported(self, samples: Sequence[Sample], image_size: int, epochs: Epochs) -> "PairImages":
        """Return whole images if the preset scales them, else one crop of each, of the size of training."""
        if self.preset.whole:
            return self.evaluation(samples, image_size)
        drawn = Drawn(self.preset.crop(self.form.dims, image_size), "report", epochs)
        images = self._images(samples, image_size, drawn)
        images.largest_batch = self._at_once(image_size)
        return images

    def check(self, sample: Sample) -> None:
        """Read the image and its mask."""
        self.form.read(*map(Path, self.paths(sample).values()))

    def spacing(self, sample: Sample, image_size: int) -> tuple[float, ...] | None:
        """Return the distance of neighbouring pixels in millimetres along each axis, as evaluated; None if unknown."""
        path = self.folder / sample.file
        found = self.form.spacing_of(path)
        return None if found is None else self._as_evaluated(found, path, image_size)

    def pixel_sides(self, sample: Sample, image_size: int) -> tuple[float, ...]:
        """Return the sides of a pixel along each axis, as evaluated, in mm, or in pixels of the file if unknown."""
        path = self.folder / sample.file
        return self._as_evaluated(self.form.spacing_of(path) or (1.0,) * self.form.dims, path, image_size)

    def _as_evaluated(self, sides: tuple[float, ...], path: Path, image_size: int) -> tuple[float, ...]:
        if not self.preset.whole:
            return sides
        return tuple(step * count / image_size for step, count in zip(sides, self.form.size_of(path), strict=True))

    def paths(self, sample: Sample) -> dict[str, str]:
        """Return the paths of image and mask, as MONAI's transforms take them."""
        assert isinstance(sample, PairSample)
        return {IMAGE: str(self.folder / sample.file), MASK: str(self.folder / sample.mask)}

    def bytes_of(self, sample: Sample, image_size: int) -> int:
        """Return the memory that the transformed image and mask take; raises as reading does."""
        sides = (image_size,) * 2 if self.preset.whole else self.form.size_of(self.folder / sample.file)
        return int(np.prod(sides)) * (VALUE_BYTES * self.form.channels + MASK_BYTES)

    @property
    def kept_bytes(self) -> int:
        """The memory that transformed images take at present."""
        return sum(prepared.kept_bytes for prepared in self._prepared.values())

    def _images(self, samples: Sequence[Sample], image_size: int, drawn: "Drawn | None") -> "PairImages":
        size = image_size if self.preset.whole else 0  # the fixed part of the others does not depend on it
        prepared = self._prepared.setdefault(size, _Prepared(self, image_size))
        prepared.reserve(samples)
        return PairImages(prepared, samples, drawn)

    def _at_once(self, image_size: int) -> int:
        return max(1, EVALUATED_PIXELS // image_size**self.form.dims)


@dataclass(frozen=True)
class Drawn:
    """The random part of a preset, MONAI's Compose, and the purpose and epochs for which it is drawn."""

    transform: Any
    purpose: str
    epochs: Epochs

    def __call__(self, pair: dict[str, torch.Tensor], number: int, position: int) -> dict[str, torch.Tensor]:
        """Return the pair at ``position`` as drawn for epoch ``number``; the argument is left as it is."""
        scope = (*self.epochs.scope_of(number), self.purpose, position)
        self.transform.set_random_state(seed=derive_seed(self.epochs.seed, *scope))
        made = self.transform(pair)
        drawn: dict[str, torch.Tensor] = made[0] if isinstance(made, list) else made  # a list of one crop
        return drawn


class PairImages(ImageDataset):
    """Samples as ``(image float32 [C, *S], mask int64 [*S])``, S being equal within a batch."""

    def __init__(self, prepared: "_Prepared", samples: Sequence[Sample], drawn: Drawn | None) -> None:
        self.prepared = prepared
        self.samples = tuple(samples)
        self.drawn = drawn

    def __len__(self) -> int:
        return len(self.samples) * (1 if self.drawn is None else len(self.drawn.epochs))

    def __getitem__(self, index: int) -> tuple[torch.Tensor, torch.Tensor]:
        number, position = divmod(index, len(self.samples))
        pair = self.prepared[self.samples[position]]
        if self.drawn is not None:
            pair = self.drawn(pair, number, position)
        return pair[IMAGE], pair[MASK][0].to(torch.int64)

    def __getitems__(self, indices: list[int]) -> tuple[torch.Tensor, torch.Tensor] | DataError:
        """Return a whole batch, images ``[B, C, *S]`` and masks ``[B, *S]``, or the error as a value."""
        try:
            images, masks = zip(*(self[index] for index in indices), strict=True)
        except DataError as error:
            return DataError(str(error), public=error.public)
        return torch.stack(images), torch.stack(masks)


class _Prepared:
    """Pairs after a preset's fixed part, by sample; each call of ``reserve`` adds a CacheDataset of new samples."""

    def __init__(self, files: PairFiles, image_size: int) -> None:
        self.files = files
        self.image_size = image_size
        self.kept_bytes = 0
        self._places: dict[Sample, tuple[Any, int]] = {}

    def reserve(self, samples: Iterable[Sample]) -> None:
        """Transform the ``samples`` that are new, and keep the first of them as far as the memory suffices.

        A file whose header cannot be read, and those after it, are not kept; it raises only when it is read.
        """
        if not (new := [sample for sample in dict.fromkeys(samples) if sample not in self._places]):
            return
        data = load_extra("monai.data", f"preset {self.files.preset.name!r}")
        with errors_of_reading():
            kept = data.CacheDataset(
                [self.files.paths(sample) for sample in new],
                [loading(self.files.form), *self.files.preset.fixed(self.image_size).transforms],
                cache_num=self._affordable(new),
                num_workers=torch.get_num_threads(),
                progress=False,
                copy_cache=False,
            )
        self._places.update({sample: (kept, index) for index, sample in enumerate(new)})

    def __getitem__(self, sample: Sample) -> dict[str, torch.Tensor]:
        """Return image and mask, not to be changed in place."""
        kept, index = self._places[sample]
        with errors_of_reading():
            pair: dict[str, torch.Tensor] = kept[index]
        return pair

    def _affordable(self, samples: Sequence[Sample]) -> int:
        """Return how many of the first ``samples`` fit into the memory that is left, and count them as kept."""
        free = self.files.memory - self.files.kept_bytes
        for number, sample in enumerate(samples):
            try:
                needed = self.files.bytes_of(sample, self.image_size)
            except DataError:
                return number
            if needed > free:
                return number
            free -= needed
            self.kept_bytes += needed
        return len(samples)
