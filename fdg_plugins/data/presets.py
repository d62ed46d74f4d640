# SPDX-License-Identifier: Apache-2.0
"""Presets: what happens to an image and its mask between file and network, by name; and files that are read so.

Each has a fixed part, whose result a site may keep in memory, and a random part for training, of MONAI's dictionary
transforms, which move image and mask together. A job can name a preset, but not a transform. Neither the number of
processes and threads nor the size of the memory changes a bit: every sample has a separate seed, and MR
images are standardised by NumPy, as torch's mean is summed by threads.
"""

import warnings
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.nn.functional import interpolate

from fdg_plugins.data.augmentation import Epochs
from fdg_plugins.data.decoding import PairForm
from fdg_plugins.data.image_files import Example, FileSource, Purpose, SizedSample, View
from fdg_plugins.data.specs import DatasetSpec, Sample, SegmentationSpec
from fdg_plugins.errors import SettingsError, load_extra
from fdg_plugins.randomness import derive_seed

IMAGE, MASK = "image", "mask"
BOTH = (IMAGE, MASK)
Pair = dict[str, torch.Tensor]

SOFT_TISSUE = (-175.0, 250.0)
"""The window of ``ct_patches``, in Hounsfield units, which becomes [0, 1]; values outside become 0 or 1."""

BYTES = (0.0, 255.0)


@dataclass(frozen=True)
class Preset:
    """One preset.

    Args:
        name: as a protocol names it.
        dims: the numbers of axes of the images that it can take.
        intensity: the range that becomes [0, 1]; None: each channel is standardised over its values other than 0.
        whole: whether an image is scaled to a square and used as a whole; else training takes crops, and evaluation
            takes whole images at the resolution of their files.
        turns: whether training also turns images by multiples of 90 degrees.
    """

    name: str
    dims: tuple[int, ...]
    intensity: tuple[float, float] | None
    whole: bool = False
    turns: bool = False

    def fixed(self, pair: Pair, image_size: int) -> Pair:
        """Return the fixed part of an image float32 ``[C, *S]`` and its mask int16 ``[1, *S]``."""
        image, mask = pair[IMAGE], pair[MASK]
        if self.whole:
            sides = (image_size,) * 2
            image = interpolate(image.unsqueeze(0), sides, mode="bilinear", antialias=True)[0]
            mask = interpolate(mask.unsqueeze(0).float(), sides, mode="nearest-exact")[0].to(mask.dtype)
        if self.intensity is None:
            image = standardised(image)
        else:
            lowest, highest = self.intensity
            image = ((image - lowest) / (highest - lowest)).clip(0.0, 1.0)
        return {IMAGE: image, MASK: mask}

    def drawn(self, dims: int, image_size: int, *, only_crop: bool = False) -> Any:
        """Return MONAI's Compose of the random part: crops, unless images are used as a whole, flips and turns.

        Crops are centred on foreground or background with equal chance; smaller images are padded with 0 first. A mask
        of a single class has crops anywhere. ``only_crop``: without flips and turns.
        """
        transforms = load_extra("monai.transforms", f"preset {self.name!r}")
        warnings.filterwarnings("ignore", "Num foregrounds", UserWarning)  # MONAI's of one class, at every draw
        sides = (image_size,) * dims
        around = {"label_key": MASK, "spatial_size": sides, "pos": 1, "neg": 1, "num_samples": 1}
        steps: list[Any] = []
        if not self.whole:
            steps += [transforms.SpatialPadd(BOTH, sides), transforms.RandCropByPosNegLabeld(BOTH, **around)]
        if not only_crop:
            steps += [transforms.RandFlipd(BOTH, prob=0.5, spatial_axis=axis) for axis in range(dims)]
        if self.turns and not only_crop:
            steps.append(transforms.RandRotate90d(BOTH, prob=0.75, max_k=3, spatial_axes=(0, 1)))
        return transforms.Compose([*steps, transforms.EnsureTyped(BOTH, track_meta=False)])


PRESETS = {
    preset.name: preset
    for preset in (
        Preset("photo", (2,), BYTES, whole=True, turns=True),
        Preset("photo_patches", (2,), BYTES),
        Preset("mri_patches", (2, 3), None),
        Preset("ct_patches", (2, 3), SOFT_TISSUE),
    )
}


def preset_of(name: str, spec: DatasetSpec) -> Preset:
    """Return the preset called ``name``, or the data set's own if ``name`` is empty; only one with masks has any."""
    has_masks = isinstance(spec, SegmentationSpec)
    possible = {preset.name: preset for preset in PRESETS.values() if has_masks and spec.dims in preset.dims}
    if (named := name or getattr(spec, "preset", "")) not in possible:
        expected = f"one for masks and images of {spec.dims} axes: {', '.join(possible) or 'none'}"
        raise SettingsError(field="preset (FDG_PRESET)", value=named, expected=expected, public=True)
    return possible[named]


def check_preset(name: str, spec: DatasetSpec) -> None:
    """Raise SettingsError if a protocol names a preset that the data set cannot have; MONAI is not imported."""
    if name or isinstance(spec, SegmentationSpec):
        preset_of(name, spec)


def standardised(image: torch.Tensor) -> torch.Tensor:
    """Return an image float32 ``[C, *S]`` whose channels have mean 0 and deviation 1 over their values other than 0.

    As MONAI's NormalizeIntensity(nonzero=True, channel_wise=True), but bit-identical for any number of threads.
    """
    values = image.numpy().copy()
    for channel in values:
        foreground = channel[marked := channel != 0].astype(np.float64)
        if foreground.size:
            channel[marked] = (foreground - foreground.mean()) / (float(foreground.std()) or 1.0)
    return torch.from_numpy(values)


# --- files ---

EVALUATED_PIXELS = 2**20
"""Pixels of the images that an evaluation takes at once; a network for segmentation needs about 1 kB for each."""


class PairFiles(FileSource[Pair]):
    """Images and masks below ``folder``, transformed as ``preset`` says; ``memory`` bytes for transformed ones.

    Datasets have images float32 ``[C, *S]`` with masks int64 ``[*S]``, S being equal within a batch.
    """

    def __init__(self, folder: Path, memory: int, max_pixels: int, spec: SegmentationSpec, preset: Preset) -> None:
        super().__init__(folder, memory, max_pixels)
        self.preset = preset
        self.form = PairForm(spec, not preset.whole, max_pixels, in_bytes=preset.intensity == BYTES)

    def view(self, image_size: int, purpose: Purpose, epochs: Epochs, count: int) -> View[Pair]:
        """Return pairs whose sides are ``image_size``, new draws in each epoch; but whole images for an evaluation.

        For a report too, if the preset scales them; else it has one crop of each, of the size of training.
        """
        size = image_size if self.preset.whole else 0  # crops are taken of images in the size of their files
        at_once = max(1, EVALUATED_PIXELS // image_size**self.form.spec.dims)
        if purpose == "evaluation" or (purpose == "report" and self.preset.whole):
            return size, _example, at_once if self.preset.whole else 1
        transform = self.preset.drawn(self.form.spec.dims, image_size, only_crop=purpose == "report")
        drawn_for = "augmentation" if purpose == "training" else purpose
        return size, partial(_drawn, transform, drawn_for, epochs), at_once

    def check(self, sample: Sample) -> None:
        self._pixels(sample)

    def read(self, key: SizedSample) -> Pair:
        sample, size = key
        pixels, classes = self._pixels(sample)
        return self.preset.fixed({IMAGE: torch.from_numpy(pixels), MASK: torch.from_numpy(classes)}, size)

    def _pixels(self, sample: Sample) -> tuple[np.ndarray, np.ndarray]:
        return self.form.read(self.folder / sample.file, self.folder / sample.mask)


def _example(pair: Pair, *_: object) -> Example:
    return pair[IMAGE], pair[MASK][0].to(torch.int64)


def _drawn(
    transform: Any, purpose: str, epochs: Epochs, pair: Pair, sample: Sample, number: int, position: int
) -> Example:
    """Return the pair at ``position`` as MONAI's Compose draws it for epoch ``number``."""
    scope = (*epochs.scope_of(number), purpose, position)
    transform.set_random_state(seed=derive_seed(epochs.seed, *scope))
    made = transform(pair)
    return _example(made[0] if isinstance(made, list) else made)  # a list of one crop
