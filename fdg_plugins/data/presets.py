# SPDX-License-Identifier: Apache-2.0
"""Presets: what happens to an image and its mask between file and network, by name.

Each has a fixed part, whose result a site may keep in memory, and a random part for training, of MONAI's dictionary
transforms, which move image and mask together. A job can name a preset, but not a transform.

The bits of the fixed part do not depend on the number of threads; hence the standardisation of MR images is NumPy's,
because torch's mean is summed by threads.
"""

import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch.nn.functional import interpolate

from fdg_plugins.data.specs import DatasetSpec, SegmentationSpec
from fdg_plugins.errors import SettingsError, load_extra

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
        turns: whether training turns images by multiples of 90 degrees, in addition to flips.
    """

    name: str
    dims: tuple[int, ...]
    intensity: tuple[float, float] | None
    whole: bool = False
    turns: bool = False

    @property
    def of_photographs(self) -> bool:
        """Whether it takes intensities from 0 to 255."""
        return self.intensity == BYTES

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
        return transforms.Compose([*steps, transforms.Lambdad(BOTH, _plain, track_meta=False)])


PRESETS = {
    preset.name: preset
    for preset in (
        Preset("photo", (2,), BYTES, whole=True, turns=True),
        Preset("photo_patches", (2,), BYTES),
        Preset("mri_patches", (2, 3), None),
        Preset("ct_patches", (2, 3), SOFT_TISSUE),
    )
}


def preset_of(name: str, spec: SegmentationSpec) -> Preset:
    """Return the preset called ``name``, or the data set's own if ``name`` is empty.

    Raises SettingsError, listing the presets, for an unknown one, and for one that cannot take the data set's images.
    """
    named = name or spec.preset
    possible = [preset.name for preset in PRESETS.values() if spec.dims in preset.dims]
    if named not in possible:
        raise _impossible(named, f"one for images of {spec.dims} axes: {', '.join(possible)}")
    return PRESETS[named]


def check_preset(name: str, spec: DatasetSpec) -> None:
    """Raise SettingsError if a protocol names a preset that the data set cannot have; MONAI is not imported."""
    if isinstance(spec, SegmentationSpec):
        preset_of(name, spec)
    elif name:
        raise _impossible(name, f"none, as {spec.name} is not a data set for segmentation")


def _impossible(name: str, expected: str) -> SettingsError:
    return SettingsError(field="preset (FDG_PRESET)", value=name, expected=expected, public=True)


def standardised(image: torch.Tensor) -> torch.Tensor:
    """Return an image float32 ``[C, *S]`` whose channels have mean 0 and deviation 1 over their values other than 0.

    As MONAI's NormalizeIntensity(nonzero=True, channel_wise=True), but with the same bits for any number of threads.
    """
    values = image.numpy().copy()
    for channel in values:
        marked = channel != 0
        if (count := int(marked.sum())) == 0:
            continue
        foreground = channel[marked].astype(np.float64)
        deviation = float(foreground.std()) if count > 1 else 0.0
        channel[marked] = (foreground - foreground.mean()) / (deviation or 1.0)
    return torch.from_numpy(values)


def _plain(tensor: torch.Tensor) -> torch.Tensor:
    """Return the values without MONAI's metadata."""
    return (tensor.as_tensor() if hasattr(tensor, "as_tensor") else tensor).contiguous()
