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
    UPRIGHT,
    TooLargeError,
    UnfitError,
    UnreadableError,
    decoding,
    has_deep_channels,
    ignored_orientation,
    open_image,
    to_rgb,
)
from fdg_plugins.data.pairs import is_nifti
from fdg_plugins.data.specs import SegmentationSpec
from fdg_plugins.errors import DataError
from fdg_plugins.extras import load_extra
from fdg_plugins.plugins.own_dataset import LARGEST_MASK_VALUE

FORMATS = ("JPEG", "PNG", "TIFF")
SHOWN_VALUES = 5
LARGEST_BYTE = 255
MOST_CUT_OFF = 0.01
"""The largest fraction of an image's values that a preset for photographs may cut off."""

_MILLIMETRES = {1: 1000.0, 3: 0.001}  # by NIfTI's code for metres and microns; any other means millimetres here


class MaskError(DataError):
    """A mask can be read but does not fit: its size, its orientation, or a value of no class.

    ``reason`` says what it has and what was expected, for the site's own log.
    """

    def __init__(self, mask: Path, reason: str) -> None:
        super().__init__(f"mask {mask} has {reason}.", public="a mask of the split does not fit.")
        self.reason = reason


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
        channels. Raises DataError for a file that cannot be read, TooLargeError, UnfitError for an image whose values
        or EXIF orientation do not fit, and MaskError for such a mask.
        """
        pixels, classes = self.image(image), self.mask(mask)[np.newaxis]
        if classes.shape[1:] != pixels.shape[1:]:
            found, expected = (" x ".join(map(str, values.shape[1:])) for values in (classes, pixels))
            raise MaskError(mask, f"{found} pixels, expected those of its image, {expected}")
        if is_nifti(image.name):
            axes = {_nibabel().aff2axcodes(open_nifti(path, self.max_pixels).affine) for path in (image, mask)}
            if len(axes) > 1:
                raise MaskError(mask, "another orientation than its image")
        return pixels, classes

    def image(self, path: Path) -> np.ndarray:
        """Return an image, float32 ``[C, *S]``; raises as :meth:`read` does."""
        pixels = self._channels_first(path, self._volume(path) if is_nifti(path.name) else self._photograph(path))
        if not np.isfinite(pixels).all():
            raise DataError(
                f"image {path} has values that are not finite; expected numbers.",
                public="an image of the split has values that are not finite.",
            )
        if self.in_bytes and is_nifti(path.name):
            _check_bytes(path, pixels)
        return pixels if len(pixels) == self.channels else np.repeat(pixels, self.channels, axis=0)

    def mask(self, path: Path) -> np.ndarray:
        """Return the class numbers of a mask, int16 ``[*S]``; raises as :meth:`read` does."""
        values = self._volume(path) if is_nifti(path.name) else self._label_map(path)
        if values.ndim != self.dims:
            raise MaskError(path, f"the shape {values.shape}, expected {self.dims} axes")
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
        return spacing_of(open_nifti(image, self.max_pixels), self.dims, oriented=self.oriented)

    def lies_elsewhere(self, image: Path, mask: Path) -> bool:
        """Return whether the headers of a NIfTI image and its mask place the same voxel differently."""
        if not is_nifti(image.name):
            return False
        return not lie_alike(*(open_nifti(path, self.max_pixels) for path in (image, mask)))

    def _channels_first(self, path: Path, values: np.ndarray) -> np.ndarray:
        """Return values ``[*S]`` or ``[*S, C]`` as float32 ``[1, *S]`` or ``[C, *S]``."""
        shaped = values[..., np.newaxis] if values.ndim == self.dims else values
        if shaped.ndim != self.dims + 1 or shaped.shape[-1] not in (1, self.channels):
            raise DataError(
                f"image {path} has the shape {values.shape}; expected {self.dims} axes and {self.channels} channels.",
                public="an image of the split has another number of axes or channels than the data set.",
            )
        return np.ascontiguousarray(np.moveaxis(shaped, -1, 0), dtype=np.float32)

    def _photograph(self, path: Path) -> np.ndarray:
        """Return the pixels in 8 bits, ``[H, W]`` or ``[H, W, 3]``."""
        with open_image(path, self.max_pixels, formats=FORMATS) as image, decoding(path):
            _refuse_pages(image, path)
            pixels = to_rgb(image, path)
            if reason := _turned(image):
                raise UnfitError(path, reason)
            return np.asarray(pixels.convert("L") if self.channels == 1 else pixels)

    def _label_map(self, path: Path) -> np.ndarray:
        """Return the values as they are in the file; channels must be equal, and transparency is ignored."""
        with open_image(path, self.max_pixels, formats=FORMATS) as image, decoding(path):
            _refuse_pages(image, path)
            if has_deep_channels(image):
                raise MaskError(path, "several channels of 16 bits, expected one, or channels of 8 bits")
            image.load()
            if reason := _turned(image):
                raise MaskError(path, reason)
            values, clear = np.asarray(image), image.mode in ("LA", "PA", "RGBA")
        if values.ndim == 2:
            return values
        colours = values[..., :-1] if clear else values
        if (colours != colours[..., :1]).any():
            raise MaskError(path, "colours, expected one value per pixel")
        return colours[..., 0]

    def _volume(self, path: Path) -> np.ndarray:
        return read_nifti(path, self.max_pixels, self.dims, oriented=self.oriented)

    def _classes(self, values: np.ndarray, path: Path) -> np.ndarray:
        """Return the class numbers, int16, of the values in a mask; raise MaskError for values of no class."""
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
            raise MaskError(path, f"the values {shown}, expected only {expected}")
        return classes


def _check_bytes(path: Path, pixels: np.ndarray) -> None:
    """Raise UnfitError for values of which a preset for photographs would leave white, or next to black."""
    low, high = float(pixels.min()), float(pixels.max())
    if low < high <= 1 or np.mean((pixels < 0) | (pixels > LARGEST_BYTE)) > MOST_CUT_OFF:
        raise UnfitError(
            path,
            f"values from {low:g} to {high:g}, expected 0 to {LARGEST_BYTE} for a preset of photographs; mri_patches "
            "and ct_patches take others",
        )


def _refuse_pages(image: Image.Image, path: Path) -> None:
    """Raise ``DataError`` for a file of several pages."""
    if image.format == "TIFF" and (pages := getattr(image, "n_frames", 1)) > 1:
        raise DataError(
            f"image {path} has {pages:,} pages; expected one.", public="an image of the split has several pages."
        )


def _turned(image: Image.Image) -> str:
    """Return what is wrong with an image that viewers turn and decoding does not; empty if nothing is.

    Whoever drew the mask saw the turned image, so the two would not match. Ask for it after decoding: Pillow tells of a
    damaged PNG only once, and not here.
    """
    found = ignored_orientation(image)
    return (
        "" if found == UPRIGHT else f"the EXIF orientation {found}, expected {UPRIGHT}: pixels that are turned already"
    )


def open_nifti(path: Path, max_pixels: int) -> Any:
    """Return nibabel's image with a checked header, whose values are not read yet.

    Raises DataError naming the file if it is not NIfTI with real values and axes that can be told apart, and
    :class:`TooLargeError` if it has more than ``max_pixels`` voxels.
    """
    nibabel = _nibabel()
    try:
        kinds = (kind for kind in (nibabel.Nifti1Image, nibabel.Nifti2Image) if kind.path_maybe_image(path)[0])
        if (kind := next(kinds, None)) is None:
            raise ValueError
        opened = kind.from_filename(path, mmap=False)
        voxels = int(np.prod([int(side) for side in opened.shape], dtype=object))
        usable = voxels >= 1 and opened.get_data_dtype().kind in "iuf"
    except (*DECODE_ERRORS, nibabel.filebasedimages.ImageFileError, nibabel.spatialimages.HeaderDataError) as error:
        raise UnreadableError(path, error) from error
    if voxels > max_pixels:
        raise TooLargeError(path, voxels, max_pixels)
    if not usable or np.linalg.matrix_rank(np.nan_to_num(opened.affine)[:3, :3]) < 3:
        raise UnreadableError(path, ValueError())
    return opened


def read_nifti(path: Path, max_pixels: int, dims: int, *, oriented: bool) -> np.ndarray:
    """Return the values, ``[*S]`` or ``[*S, C]``, without further axes of length 1; raise as :func:`open_nifti` does.

    ``oriented``: turned so that the axes point to the right, to the front and up (RAS).
    """
    opened = open_nifti(path, max_pixels)
    try:
        values = np.asarray((_nibabel().as_closest_canonical(opened) if oriented else opened).dataobj)
    except (*DECODE_ERRORS, MemoryError) as error:
        raise UnreadableError(path, error) from error
    while values.ndim > dims and values.shape[-1] == 1:
        values = values[..., 0]
    return values


def lie_alike(one: Any, other: Any) -> bool:
    """Return whether the voxels of two opened images of one shape lie in the same places, to a tenth of a voxel."""
    sides = np.linalg.norm(np.nan_to_num(one.affine)[:3, :3], axis=0)
    corners = np.array([[*corner, 1] for corner in np.ndindex(2, 2, 2)]) * [
        *(side - 1 for side in (*one.shape, 1, 1, 1)[:3]),
        1,
    ]
    shifts = corners @ np.nan_to_num(one.affine - other.affine).T
    return bool(np.abs(shifts).max() <= 0.1 * sides.min())


def spacing_of(opened: Any, dims: int, *, oriented: bool) -> tuple[float, ...] | None:
    """Return the distance of neighbouring voxels along the axes, as :func:`read_nifti` orders them, in millimetres.

    None if the header does not say it.
    """
    zooms = np.asarray(opened.header.get_zooms()[:dims], dtype=np.float64)
    if len(zooms) < dims or not (np.isfinite(zooms) & (zooms > 0)).all():
        return None
    zooms *= _MILLIMETRES.get(int(opened.header["xyzt_units"]) % 8, 1.0)
    order = np.argsort(_nibabel().io_orientation(opened.affine)[:, 0]) if oriented else np.arange(dims)
    return tuple(zooms[order].tolist())


def _nibabel() -> Any:
    return load_extra("nibabel", "a NIfTI file")
