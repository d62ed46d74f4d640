# SPDX-License-Identifier: Apache-2.0
"""Presets: what happens to an image and its mask between file and network, by name, as MONAI's dictionary transforms.

Each has a fixed part, whose result a site may keep in memory, and a random part for training, which moves image and
mask together. MONAI is imported when a part is built. A job can name a preset, but not a transform.

The fixed parts consist of operations whose bits do not depend on the number of threads; hence the standardisation of
MR images is NumPy's, because torch's mean is summed by threads.
"""

import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.nn.functional import interpolate

from fdg_plugins.data.pair_reading import PairForm
from fdg_plugins.data.specs import DatasetSpec, SegmentationSpec
from fdg_plugins.data.transforms import checked_size
from fdg_plugins.errors import DataError, SettingsError
from fdg_plugins.extras import load_extra

IMAGE, MASK = "image", "mask"
BOTH = (IMAGE, MASK)

SOFT_TISSUE = (-175.0, 250.0)
"""The window of ``ct_patches``, in Hounsfield units, which becomes [0, 1]; values outside become 0 or 1."""

Transforms = list[Any]


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

    def fixed(self, image_size: int) -> Any:
        """Return MONAI's Compose of the fixed part, for images float32 ``[C, *S]`` and masks int16 ``[1, *S]``."""
        transforms = _monai(f"preset {self.name!r}")
        steps: Transforms = []
        if self.whole:
            sides = (checked_size(image_size),) * 2
            steps.append(transforms.Lambdad(IMAGE, partial(scaled, sides=sides), track_meta=False))
            steps.append(transforms.Lambdad(MASK, partial(nearest, sides=sides), track_meta=False))
        if self.intensity is None:
            steps.append(transforms.Lambdad(IMAGE, standardised, track_meta=False))
        else:
            lowest, highest = self.intensity
            steps.append(transforms.ScaleIntensityRanged(IMAGE, lowest, highest, b_min=0.0, b_max=1.0, clip=True))
        return _composed(transforms, steps)

    def augmentation(self, dims: int, image_size: int) -> Any:
        """Return MONAI's Compose of the random part: crops, unless images are used as a whole, flips and turns."""
        transforms = _monai(f"preset {self.name!r}")
        steps = [] if self.whole else _crops(transforms, dims, image_size)
        steps += [transforms.RandFlipd(BOTH, prob=0.5, spatial_axis=axis) for axis in range(dims)]
        if self.turns:
            steps.append(transforms.RandRotate90d(BOTH, prob=0.75, max_k=3, spatial_axes=(0, 1)))
        return _composed(transforms, steps)

    def crop(self, dims: int, image_size: int) -> Any:
        """Return MONAI's Compose that draws one crop, as in training, without flips and turns."""
        transforms = _monai(f"preset {self.name!r}")
        return _composed(transforms, _crops(transforms, dims, image_size))


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
    possible = ", ".join(preset.name for preset in PRESETS.values() if spec.dims in preset.dims)
    if named not in PRESETS:
        raise SettingsError(f"preset (FDG_PRESET) is {named!r}, expected one of: {possible}.", public=True)
    if spec.dims not in PRESETS[named].dims:
        raise SettingsError(
            f"preset (FDG_PRESET) is {named!r}, but the images of {spec.name} have {spec.dims} axes; expected one of: "
            f"{possible}.",
            public=True,
        )
    return PRESETS[named]


def check_preset(name: str, spec: DatasetSpec) -> None:
    """Raise SettingsError if a protocol names a preset that the data set cannot have; MONAI is not imported."""
    if isinstance(spec, SegmentationSpec):
        preset_of(name, spec)
    elif name:
        raise SettingsError(
            f"preset (FDG_PRESET) is {name!r}, but {spec.name} is not a data set for segmentation; expected none.",
            public=True,
        )


def scaled(image: torch.Tensor, sides: tuple[int, ...]) -> torch.Tensor:
    """Return an image float32 ``[C, H, W]`` resized to ``sides``, bilinear and antialiased."""
    return interpolate(image.unsqueeze(0), sides, mode="bilinear", antialias=True)[0]


def nearest(mask: torch.Tensor, sides: tuple[int, ...]) -> torch.Tensor:
    """Return a mask int16 ``[1, H, W]`` resized to ``sides``: the value at the nearest pixel."""
    return interpolate(mask.unsqueeze(0).float(), sides, mode="nearest-exact")[0].to(mask.dtype)


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


def plain(tensor: torch.Tensor) -> torch.Tensor:
    """Return the values without MONAI's metadata."""
    as_tensor: Callable[[], torch.Tensor] | None = getattr(tensor, "as_tensor", None)
    return (tensor if as_tensor is None else as_tensor()).contiguous()


def _composed(transforms: Any, steps: Transforms) -> Any:
    return transforms.Compose([*steps, transforms.Lambdad(BOTH, plain, track_meta=False)])


def _crops(transforms: Any, dims: int, image_size: int) -> Transforms:
    """Return the transforms that crop to the training size, centred on foreground or background with equal chance.

    Smaller images are padded with 0 first. A mask of a single class has crops anywhere.
    """
    warnings.filterwarnings("ignore", "Num foregrounds", UserWarning)  # MONAI's about such a mask, at every draw
    sides = (checked_size(image_size),) * dims
    return [
        transforms.SpatialPadd(BOTH, sides),
        transforms.RandCropByPosNegLabeld(BOTH, label_key=MASK, spatial_size=sides, pos=1, neg=1, num_samples=1),
    ]


def _monai(whose: str) -> Any:
    return load_extra("monai.transforms", whose)


def loading(form: PairForm) -> Callable[[Mapping[str, str]], dict[str, torch.Tensor]]:
    """Return the transform from the paths of image and mask to tensors float32 ``[C, *S]``, int16 ``[1, *S]``.

    In place of MONAI's LoadImaged, which offers a file that its reader refuses to all of MONAI's readers in turn: only
    Pillow and nibabel, with a limit on pixels, ever open one.
    """

    def load(paths: Mapping[str, str]) -> dict[str, torch.Tensor]:
        pixels, classes = form.read(Path(paths[IMAGE]), Path(paths[MASK]))
        return {IMAGE: torch.from_numpy(pixels), MASK: torch.from_numpy(classes)}

    return load


@contextmanager
def errors_of_reading() -> Iterator[None]:
    """Raise the DataError that MONAI has wrapped, in place of MONAI's error."""
    try:
        yield
    except RuntimeError as error:
        cause: BaseException | None = error
        while cause is not None and not isinstance(cause, DataError):
            cause = cause.__cause__
        if cause is None:
            raise
        raise cause from None
