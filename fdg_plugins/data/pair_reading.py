# SPDX-License-Identifier: Apache-2.0
"""Read an image and its mask: Pillow for photographs, nibabel for NIfTI; the number of pixels is checked first.

Only these two readers are used, and neither executes anything from a file. nibabel is imported when it is needed.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from fdg_plugins.data.catalogue import LARGEST_MASK_VALUE, SegmentationSpec
from fdg_plugins.data.decoding import DECODE_ERRORS, MOST_PIXELS, TooLargeError, open_image, to_rgb
from fdg_plugins.data.pair_names import is_nifti
from fdg_plugins.errors import DataError
from fdg_plugins.extras import load_extra

FORMATS = ("JPEG", "PNG", "TIFF")
SHOWN_VALUES = 5


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
    """

    channels: int
    dims: int
    class_of_value: Mapping[int, int]
    oriented: bool = False
    max_pixels: int = MOST_PIXELS

    @classmethod
    def of(cls, spec: SegmentationSpec, *, oriented: bool, max_pixels: int) -> "PairForm":
        """Return the form of a data set's files."""
        return cls(spec.channels, spec.dims, spec.class_of_value, oriented and spec.dims == 3, max_pixels)

    def read(self, image: Path, mask: Path) -> tuple[np.ndarray, np.ndarray]:
        """Return the image, float32 ``[C, *S]``, and its mask of class numbers, int16 ``[1, *S]``.

        S is (H, W) of a photograph, and the order of the axes in a NIfTI file, or RAS. A grey image is repeated for all
        channels. Raises DataError for a file that cannot be read, TooLargeError, and MaskError for a mask that does not
        fit.
        """
        pixels = self._image(image)
        values = self._mask(mask)
        if values.shape != pixels.shape[1:]:
            found, expected = (" x ".join(map(str, shape)) for shape in (values.shape, pixels.shape[1:]))
            raise MaskError(mask, f"{found} pixels, expected those of its image, {expected}")
        if is_nifti(image.name) and _axes(self._nifti(image)) != _axes(self._nifti(mask)):
            raise MaskError(mask, "another orientation than its image")
        return pixels, self._classes(values, mask)[np.newaxis]

    def size_of(self, image: Path) -> tuple[int, ...]:
        """Return the spatial size of an image, from its header; raises as :meth:`read` does."""
        if is_nifti(image.name):
            return tuple(self._nifti(image).shape[: self.dims])
        with open_image(image, self.max_pixels, formats=FORMATS) as opened:
            return opened.height, opened.width

    def spacing_of(self, image: Path) -> tuple[float, ...] | None:
        """Return the distance of neighbouring pixels along each axis in millimetres; None without such information."""
        if not is_nifti(image.name):
            return None
        opened = self._nifti(image)
        zooms = np.asarray(opened.header.get_zooms()[: self.dims], dtype=np.float64)
        if len(zooms) < self.dims or not np.isfinite(zooms).all() or not (zooms > 0).all():
            return None
        if self.oriented:
            zooms = zooms[np.argsort(_nibabel().io_orientation(opened.affine)[:, 0])]
        return tuple(zooms.tolist())

    def _image(self, path: Path) -> np.ndarray:
        values = self._volume(path) if is_nifti(path.name) else self._photograph(path)
        if values.ndim == self.dims:
            values = values[..., np.newaxis]
        if values.ndim != self.dims + 1 or values.shape[-1] not in (1, self.channels):
            raise DataError(
                f"image {path} has the shape {values.shape}; expected {self.dims} axes and {self.channels} channels.",
                public="an image of the split has another number of axes or channels than the data set.",
            )
        pixels = np.ascontiguousarray(np.moveaxis(values, -1, 0), dtype=np.float32)
        if not np.isfinite(pixels).all():
            raise DataError(
                f"image {path} has values that are not finite; expected numbers.",
                public="an image of the split has values that are not finite.",
            )
        return pixels if len(pixels) == self.channels else np.repeat(pixels, self.channels, axis=0)

    def _mask(self, path: Path) -> np.ndarray:
        values = self._volume(path) if is_nifti(path.name) else self._label_map(path)
        if values.ndim != self.dims:
            raise MaskError(path, f"the shape {values.shape}, expected {self.dims} axes")
        return values

    def _photograph(self, path: Path) -> np.ndarray:
        """Return the pixels in 8 bits, ``[H, W]`` or ``[H, W, 3]``."""
        with open_image(path, self.max_pixels, formats=FORMATS) as image:
            try:
                _refuse_pages(image, path)
                pixels = to_rgb(image)
                return np.asarray(pixels.convert("L") if self.channels == 1 else pixels)
            except DECODE_ERRORS as error:
                raise _unreadable(path, error) from error

    def _label_map(self, path: Path) -> np.ndarray:
        """Return the values as they are in the file; channels must be equal, and transparency is ignored."""
        with open_image(path, self.max_pixels, formats=FORMATS) as image:
            try:
                _refuse_pages(image, path)
                values = np.asarray(image)
            except DECODE_ERRORS as error:
                raise _unreadable(path, error) from error
            if values.ndim == 2:
                return values
            colours = values[..., :-1] if image.mode in ("LA", "RGBA", "PA") else values
        if (colours != colours[..., :1]).any():
            raise MaskError(path, "colours, expected one value per pixel")
        return colours[..., 0]

    def _volume(self, path: Path) -> np.ndarray:
        """Return the values of a NIfTI file in the orientation of the preset, without trailing axes of length 1."""
        opened = self._nifti(path)
        try:
            if self.oriented:
                opened = _nibabel().as_closest_canonical(opened)
            values = np.asarray(opened.dataobj)
        except (*DECODE_ERRORS, MemoryError) as error:
            raise _unreadable(path, error) from error
        while values.ndim > self.dims and values.shape[-1] == 1:
            values = values[..., 0]
        return values

    def _nifti(self, path: Path) -> Any:
        """Open a NIfTI file and check its header; the values are not read."""
        nibabel = _nibabel()
        errors = (*DECODE_ERRORS, nibabel.filebasedimages.ImageFileError, nibabel.spatialimages.HeaderDataError)
        try:
            kinds = [kind for kind in (nibabel.Nifti1Image, nibabel.Nifti2Image) if kind.path_maybe_image(path)[0]]
            if not kinds:
                raise _unreadable(path, ValueError())
            opened = kinds[0].from_filename(path, mmap=False)
            kind = opened.get_data_dtype().kind
        except errors as error:
            raise _unreadable(path, error) from error
        pixels = int(np.prod([int(side) for side in opened.shape], dtype=object))
        if pixels > self.max_pixels:
            raise TooLargeError(
                f"image {path} has {pixels:,} voxels; expected at most {self.max_pixels:,} (max_image_pixels).",
                public="an image of the split has more pixels than the site opens (max_image_pixels).",
            )
        usable = not self.oriented or np.linalg.matrix_rank(np.nan_to_num(opened.affine)[:3, :3]) == 3
        if pixels < 1 or kind not in "iuf" or not usable:
            raise _unreadable(path, ValueError())
        return opened

    def _classes(self, values: np.ndarray, path: Path) -> np.ndarray:
        """Return the class numbers, int16, of the values in a mask; raise MaskError for values of no class."""
        table = np.full(LARGEST_MASK_VALUE + 2, -1, dtype=np.int16)  # the last is that of all other values
        for value, number in self.class_of_value.items():
            table[value] = number
        known = (values >= 0) & (values <= LARGEST_MASK_VALUE) & (values == np.floor(values))
        classes: np.ndarray = table[np.where(known, values, LARGEST_MASK_VALUE + 1).astype(np.int64)]
        if (unknown := np.unique(values[classes < 0])).size:
            shown = ", ".join(f"{float(value):g}" for value in unknown[:SHOWN_VALUES])
            expected = ", ".join(map(str, sorted(self.class_of_value)))
            raise MaskError(path, f"the values {shown}, expected only {expected}")
        return classes


def _refuse_pages(image: Image.Image, path: Path) -> None:
    if image.format == "TIFF" and (pages := getattr(image, "n_frames", 1)) > 1:
        raise DataError(
            f"image {path} has {pages:,} pages; expected one.", public="an image of the split has several pages."
        )


def _axes(opened: Any) -> Any:
    """Return the orientation of a NIfTI image's axes, such as ``("L", "P", "S")``."""
    return _nibabel().aff2axcodes(opened.affine)


def _nibabel() -> Any:
    return load_extra("nibabel", "a NIfTI file")


def _unreadable(path: Path, error: Exception) -> DataError:
    return DataError(
        f"image {path} cannot be read ({type(error).__name__}); expected an undamaged {', '.join(FORMATS)} or NIfTI "
        "file.",
        public="an image of the split cannot be read.",
    )
