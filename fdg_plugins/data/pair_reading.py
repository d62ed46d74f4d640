# SPDX-License-Identifier: Apache-2.0
"""Read an image and its mask, whatever the format: Pillow for photographs, nibabel for NIfTI, and nothing else.

The number of pixels is checked before any is decoded, and no format can make its reader execute anything. Of nibabel,
which is imported when it is needed, other formats, and memory mapping, in which a file that is cut short would end the
process, are not used.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from fdg_plugins.data.decoding import (
    DECODE_ERRORS,
    MOST_PIXELS,
    TOO_LARGE,
    UPRIGHT,
    DamagedError,
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
LARGEST_BYTE = 255
MOST_CUT_OFF = 0.01
"""The largest fraction of an image's values that a preset for photographs may cut off."""

_MILLIMETRES = {1: 1000.0, 3: 0.001}  # by NIfTI's code for metres and microns; any other means millimetres here


@dataclass(frozen=True)
class PairForm:
    """What a data set expects of its files.

    ``oriented``: whether volumes are turned to the orientation RAS. ``max_pixels``: of an image or volume.
    ``in_bytes``: whether values are to be in [0, 255], as a preset for photographs takes them; NIfTI may have others.
    """

    channels: int
    dims: int
    class_of_value: Mapping[int, int]
    oriented: bool = False
    max_pixels: int = MOST_PIXELS
    in_bytes: bool = False

    @classmethod
    def of(cls, spec: SegmentationSpec, *, oriented: bool, max_pixels: int, in_bytes: bool = False) -> "PairForm":
        """Return the form of a data set's files."""
        oriented = oriented and spec.dims == 3
        return cls(spec.channels, spec.dims, spec.class_of_value, oriented, max_pixels, in_bytes)

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
            axes = {_nibabel().aff2axcodes(open_nifti(path, self.max_pixels).affine) for path in (image, mask)}
            if len(axes) > 1:
                raise DamagedError(mask, "has another orientation than its image")
        return pixels, classes

    def image(self, path: Path) -> np.ndarray:
        """Return an image, float32 ``[C, *S]``; raises as :meth:`read` does."""
        values = self._volume(path) if is_nifti(path.name) else self._photograph(path)
        shaped = values[..., np.newaxis] if values.ndim == self.dims else values
        if shaped.ndim != self.dims + 1 or shaped.shape[-1] not in (1, self.channels):
            raise DamagedError(
                path, f"has the shape {values.shape}, expected {self.dims} axes and {self.channels} channels"
            )
        pixels = np.ascontiguousarray(np.moveaxis(shaped, -1, 0), dtype=np.float32)
        if not np.isfinite(pixels).all():
            raise DamagedError(path, "has values that are not finite, expected numbers")
        if self.in_bytes and is_nifti(path.name):
            _check_bytes(path, pixels)
        return pixels if len(pixels) == self.channels else np.repeat(pixels, self.channels, axis=0)

    def mask(self, path: Path) -> np.ndarray:
        """Return the class numbers of a mask, int16 ``[*S]``; raises as :meth:`read` does."""
        values = self._volume(path) if is_nifti(path.name) else self._label_map(path)
        if values.ndim != self.dims:
            raise DamagedError(path, f"has the shape {values.shape}, expected {self.dims} axes")
        return self._classes(values, path)

    def size_of(self, image: Path) -> tuple[int, ...]:
        """Return the spatial size of an image, from its header; raises as :meth:`read` does."""
        if is_nifti(image.name):
            return tuple(open_nifti(image, self.max_pixels).shape[: self.dims])
        with open_image(image, self.max_pixels, formats=FORMATS) as opened:
            return opened.height, opened.width

    def spacing_of(self, image: Path) -> tuple[float, ...] | None:
        """Return the distance of neighbouring pixels along each axis in millimetres; None without such information."""
        if not is_nifti(image.name):
            return None
        opened = open_nifti(image, self.max_pixels)
        zooms = np.asarray(opened.header.get_zooms()[: self.dims], dtype=np.float64)
        if len(zooms) < self.dims or not (np.isfinite(zooms) & (zooms > 0)).all():
            return None
        zooms *= _MILLIMETRES.get(int(opened.header["xyzt_units"]) % 8, 1.0)
        axes = _nibabel().io_orientation(opened.affine)[:, 0]
        return tuple((zooms[np.argsort(axes)] if self.oriented else zooms).tolist())

    def _photograph(self, path: Path) -> np.ndarray:
        """Return the pixels in 8 bits, ``[H, W]`` or ``[H, W, 3]``."""
        with open_image(path, self.max_pixels, formats=FORMATS) as image, decoding(path):
            _refuse_pages(image, path)
            pixels = to_rgb(image, path)
            _refuse_turned(image, path)
            return np.asarray(pixels.convert("L") if self.channels == 1 else pixels)

    def _label_map(self, path: Path) -> np.ndarray:
        """Return the values as they are in the file; channels must be equal, and transparency is ignored."""
        with open_image(path, self.max_pixels, formats=FORMATS) as image, decoding(path):
            _refuse_pages(image, path)
            if has_deep_channels(image):
                raise DamagedError(path, "has several channels of 16 bits, expected one, or channels of 8 bits")
            image.load()
            _refuse_turned(image, path)
            values, clear = np.asarray(image), image.mode in ("LA", "PA", "RGBA")
        if values.ndim == 2:
            return values
        colours = values[..., :-1] if clear else values
        if (colours != colours[..., :1]).any():
            raise DamagedError(path, "has colours, expected one value per pixel")
        return colours[..., 0]

    def _volume(self, path: Path) -> np.ndarray:
        """Return the values, ``[*S]`` or ``[*S, C]``, without further axes of length 1."""
        opened = open_nifti(path, self.max_pixels)
        try:
            values = np.asarray((_nibabel().as_closest_canonical(opened) if self.oriented else opened).dataobj)
        except (*DECODE_ERRORS, MemoryError) as error:
            raise DamagedError(path, f"cannot be read ({type(error).__name__})") from error
        while values.ndim > self.dims and values.shape[-1] == 1:
            values = values[..., 0]
        return values

    def _classes(self, values: np.ndarray, path: Path) -> np.ndarray:
        """Return the class numbers, int16, of the values in a mask; refuse values of no class."""
        table = np.full(LARGEST_MASK_VALUE + 2, -1, dtype=np.int16)  # the last is that of all other values
        for value, number in self.class_of_value.items():
            table[value] = number
        known = (values >= 0) & (values <= LARGEST_MASK_VALUE) & (values == np.floor(values))
        places = np.full(values.shape, LARGEST_MASK_VALUE + 1)
        places[known] = values[known]
        classes: np.ndarray = table[places]
        if (unknown := np.unique(values[classes < 0])).size:
            # In full, as 0.99999998 is not the 1 that is expected beside it; of a mask of one bit, 1 and not True.
            shown = ", ".join(str(value).removesuffix(".0") for value in unknown[:SHOWN_VALUES] + 0)
            expected = ", ".join(map(str, sorted(self.class_of_value)))
            raise DamagedError(path, f"has the values {shown}, expected only {expected}")
        return classes


def _check_bytes(path: Path, pixels: np.ndarray) -> None:
    """Refuse values of which a preset for photographs would leave white, or next to black."""
    low, high = float(pixels.min()), float(pixels.max())
    if low < high <= 1 or np.mean((pixels < 0) | (pixels > LARGEST_BYTE)) > MOST_CUT_OFF:
        raise DamagedError(
            path,
            f"has values from {low:g} to {high:g}, expected 0 to {LARGEST_BYTE} for a preset of photographs; "
            "mri_patches and ct_patches take others",
        )


def _refuse_pages(image: Image.Image, path: Path) -> None:
    if image.format == "TIFF" and (pages := getattr(image, "n_frames", 1)) > 1:
        raise DamagedError(path, f"has {pages:,} pages, expected one")


def _refuse_turned(image: Image.Image, path: Path) -> None:
    """Refuse an image that viewers turn and decoding does not: whoever drew the mask saw the turned image.

    Ask for it after decoding: Pillow tells of a damaged PNG only once, and not here.
    """
    if (found := ignored_orientation(image)) != UPRIGHT:
        raise DamagedError(
            path, f"has the EXIF orientation {found}, expected {UPRIGHT}: pixels that are turned already"
        )


def open_nifti(path: Path, max_pixels: int) -> Any:
    """Return nibabel's image with a checked header, whose values are not read yet.

    Raises :class:`DamagedError` if it is not NIfTI with real values and axes that can be told apart, and if it has more
    than ``max_pixels`` voxels.
    """
    nibabel = _nibabel()
    try:
        kinds = (kind for kind in (nibabel.Nifti1Image, nibabel.Nifti2Image) if kind.path_maybe_image(path)[0])
        opened = next(kinds).from_filename(path, mmap=False)
        voxels = int(np.prod([int(side) for side in opened.shape], dtype=object))
        usable = voxels >= 1 and opened.get_data_dtype().kind in "iuf"
    except (
        *(*DECODE_ERRORS, StopIteration),
        *(nibabel.filebasedimages.ImageFileError, nibabel.spatialimages.HeaderDataError),
    ) as error:
        raise DamagedError(path, f"cannot be read ({type(error).__name__})") from error
    if voxels > max_pixels:
        raise DamagedError(path, TOO_LARGE.format(voxels, max_pixels))
    if not usable or np.linalg.matrix_rank(np.nan_to_num(opened.affine)[:3, :3]) < 3:
        raise DamagedError(path, "is no NIfTI with real values and axes that can be told apart")
    return opened


def _nibabel() -> Any:
    return load_extra("nibabel", "a NIfTI file")
