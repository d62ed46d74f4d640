# SPDX-License-Identifier: Apache-2.0
"""Read an image and its mask, whatever the format: Pillow for photographs, nibabel for NIfTI, and nothing else.

The number of pixels is checked before any is decoded, and no format can make its reader execute anything. Of nibabel,
which is imported when it is needed, other formats, and memory mapping, in which a file that is cut short would end the
process, are not used.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from fdg_plugins.data.decoding import (
    DECODE_ERRORS,
    MOST_PIXELS,
    UPRIGHT,
    DamagedError,
    check_pixels,
    decoding,
    has_deep_channels,
    ignored_orientation,
    open_image,
    to_rgb,
)
from fdg_plugins.data.pairs import is_nifti
from fdg_plugins.data.specs import SegmentationSpec
from fdg_plugins.errors import load_extra
from fdg_plugins.plugins.own_dataset import LARGEST_MASK_VALUE

FORMATS = ("JPEG", "PNG", "TIFF")
SHOWN_VALUES = 5
MOST_CUT_OFF = 0.01
"""The largest fraction of an image's values that a preset for photographs may cut off."""


@dataclass(frozen=True)
class PairForm:
    """What a data set expects of its files.

    ``oriented``: whether volumes are turned to the orientation RAS. ``max_pixels``: of an image or volume.
    ``in_bytes``: whether values are to be in [0, 255], as a preset for photographs takes them; NIfTI may have others.
    """

    spec: SegmentationSpec
    oriented: bool = False
    max_pixels: int = MOST_PIXELS
    in_bytes: bool = False

    def read(self, image: Path, mask: Path) -> tuple[np.ndarray, np.ndarray]:
        """Return the image, float32 ``[C, *S]``, and its mask of class numbers, int16 ``[1, *S]``.

        S is (H, W) of a photograph, and the order of the axes in a NIfTI file, or RAS. A grey image is repeated for all
        channels. Raises :class:`DamagedError` for a file that cannot be read, an image whose values or EXIF orientation
        do not fit, and such a mask.
        """
        pixels, classes = self.image(image), self.mask(mask)[np.newaxis]
        if classes.shape[1:] != pixels.shape[1:]:
            found, expected = (" x ".join(map(str, values.shape[1:])) for values in (classes, pixels))
            raise DamagedError(mask, f"has {found} pixels, expected those of its image, {expected}")
        if is_nifti(image.name):
            axes = {
                load_extra("nibabel", "a NIfTI file").aff2axcodes(self._open(path).affine) for path in (image, mask)
            }
            if len(axes) > 1:
                raise DamagedError(mask, "has another orientation than its image")
        return pixels, classes

    def image(self, path: Path) -> np.ndarray:
        """Return an image, float32 ``[C, *S]``; raises as :meth:`read` does."""
        values = self._volume(path) if is_nifti(path.name) else self._photograph(path)
        shaped = values[..., np.newaxis] if values.ndim == self.spec.dims else values
        if shaped.ndim != self.spec.dims + 1 or shaped.shape[-1] not in (1, self.spec.channels):
            expected = f"{self.spec.dims} axes and {self.spec.channels} channels"
            raise DamagedError(path, f"has the shape {values.shape}, expected {expected}")
        pixels = np.ascontiguousarray(np.moveaxis(shaped, -1, 0), dtype=np.float32)
        if not np.isfinite(pixels).all():
            raise DamagedError(path, "has values that are not finite, expected numbers")
        if self.in_bytes and is_nifti(path.name):  # a preset for photographs would leave them white, or next to black
            low, high = float(pixels.min()), float(pixels.max())
            if low < high <= 1 or np.mean((pixels < 0) | (pixels > 255)) > MOST_CUT_OFF:
                expected = "0 to 255 for a preset of photographs; mri_patches and ct_patches take others"
                raise DamagedError(path, f"has values from {low:g} to {high:g}, expected {expected}")
        return pixels if len(pixels) == self.spec.channels else np.repeat(pixels, self.spec.channels, axis=0)

    def mask(self, path: Path) -> np.ndarray:
        """Return the class numbers of a mask, int16 ``[*S]``; raises as :meth:`read` does."""
        values = self._volume(path) if is_nifti(path.name) else self._label_map(path)
        if values.ndim != self.spec.dims:
            raise DamagedError(path, f"has the shape {values.shape}, expected {self.spec.dims} axes")
        table = np.full(LARGEST_MASK_VALUE + 2, -1, dtype=np.int16)  # the last is that of all other values
        for value, number in self.spec.class_of_value.items():
            table[value] = number
        known = (values >= 0) & (values <= LARGEST_MASK_VALUE) & (values == np.floor(values))
        places = np.full(values.shape, LARGEST_MASK_VALUE + 1)
        places[known] = values[known]
        classes: np.ndarray = table[places]
        if (unknown := np.unique(values[classes < 0])).size:
            # In full, as 0.99999998 is not the 1 that is expected beside it; of a mask of one bit, 1 and not True.
            shown = ", ".join(str(value).removesuffix(".0") for value in unknown[:SHOWN_VALUES] + 0)
            expected = ", ".join(map(str, sorted(self.spec.class_of_value)))
            raise DamagedError(path, f"has the values {shown}, expected only {expected}")
        return classes

    def size_of(self, image: Path) -> tuple[int, ...]:
        """Return the spatial size of an image, from its header; raises as :meth:`read` does."""
        if is_nifti(image.name):
            return tuple(self._open(image).shape[: self.spec.dims])
        with open_image(image, self.max_pixels, formats=FORMATS) as opened:
            return opened.height, opened.width

    @contextmanager
    def _picture(self, path: Path) -> Iterator[Image.Image]:
        """Yield a photograph or a mask with its header read; refuse several pages, and those that viewers turn.

        Whoever drew the mask saw the turned image, which decoding does not turn.
        """
        with open_image(path, self.max_pixels, formats=FORMATS) as image, decoding(path):
            if image.format == "TIFF" and (pages := getattr(image, "n_frames", 1)) > 1:
                raise DamagedError(path, f"has {pages:,} pages, expected one")
            yield image
            # After decoding: Pillow tells of a damaged PNG only once, and not here.
            if (found := ignored_orientation(image)) != UPRIGHT:
                raise DamagedError(path, f"has the EXIF orientation {found}, expected {UPRIGHT}: pixels turned already")

    def _photograph(self, path: Path) -> np.ndarray:
        """Return the pixels in 8 bits, ``[H, W]`` or ``[H, W, 3]``."""
        with self._picture(path) as image:
            pixels = to_rgb(image, path)
        return np.asarray(pixels.convert("L") if self.spec.channels == 1 else pixels)

    def _label_map(self, path: Path) -> np.ndarray:
        """Return the values as they are in the file; channels must be equal, and transparency is ignored."""
        with self._picture(path) as image:
            if has_deep_channels(image):
                raise DamagedError(path, "has several channels of 16 bits, expected one, or channels of 8 bits")
            image.load()
            values, is_clear = np.asarray(image), image.mode in ("LA", "PA", "RGBA")
        if values.ndim == 2:
            return values
        colours = values[..., :-1] if is_clear else values
        if (colours != colours[..., :1]).any():
            raise DamagedError(path, "has colours, expected one value per pixel")
        return colours[..., 0]

    def _volume(self, path: Path) -> np.ndarray:
        """Return the values, ``[*S]`` or ``[*S, C]``, without further axes of length 1."""
        opened = self._open(path)
        with decoding(path):
            if self.oriented and self.spec.dims == 3:
                opened = load_extra("nibabel", "a NIfTI file").as_closest_canonical(opened)
            values = np.asarray(opened.dataobj)
        while values.ndim > self.spec.dims and values.shape[-1] == 1:
            values = values[..., 0]
        return values

    def _open(self, path: Path) -> Any:
        """Return nibabel's image with a checked header, whose values are not read yet.

        Raises :class:`DamagedError` if it is not NIfTI with real values and axes that can be told apart, and if it has
        too many voxels.
        """
        nibabel = load_extra("nibabel", "a NIfTI file")
        own = (nibabel.filebasedimages.ImageFileError, nibabel.spatialimages.HeaderDataError, StopIteration)
        try:
            kinds = (kind for kind in (nibabel.Nifti1Image, nibabel.Nifti2Image) if kind.path_maybe_image(path)[0])
            opened = next(kinds).from_filename(path, mmap=False)
            voxels = int(np.prod([int(side) for side in opened.shape], dtype=object))
            usable = voxels >= 1 and opened.get_data_dtype().kind in "iuf"
        except (*DECODE_ERRORS, *own) as error:
            raise DamagedError(path, f"cannot be read ({type(error).__name__})") from error
        check_pixels(path, voxels, self.max_pixels)
        if not usable or np.linalg.matrix_rank(np.nan_to_num(opened.affine)[:3, :3]) < 3:
            raise DamagedError(path, "is no NIfTI with real values and axes that can be told apart")
        return opened
