# SPDX-License-Identifier: Apache-2.0
"""Read an image, or an image and its mask, and say why that is impossible in an error that names the file.

Pillow reads photographs, nibabel NIfTI, and nothing else: no format can make its reader execute anything. Too large an
image is rejected by its header, before any pixel is decoded. nibabel's memory mapping, in which a file that is cut
short would end the process, is not used.
"""

import io
import struct
import threading
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from PIL import ExifTags, Image

from fdg_plugins.data.pairs import is_nifti
from fdg_plugins.data.specs import SegmentationSpec
from fdg_plugins.errors import DataError, load_extra
from fdg_plugins.plugins.own_dataset import LARGEST_MASK_VALUE

MOST_PIXELS = 50_000_000  # Pixels of the largest image that is opened, unless the caller sets another limit

# Pillow selects the decoder by content, not by suffix: these are all the formats a misnamed image may turn out to have.
FORMATS = ("JPEG", "PNG", "BMP", "GIF", "WEBP", "TIFF")
PAIR_FORMATS = ("JPEG", "PNG", "TIFF")
# Exceptions of Pillow's, nibabel's and torchvision's readers on broken files.
DECODE_ERRORS = (
    *(OSError, SyntaxError, ValueError, EOFError, LookupError, ArithmeticError, TypeError, AttributeError),
    *(AssertionError, RuntimeError, MemoryError, struct.error, zlib.error),
)
LARGEST_DEEP = 2**16 - 1  # the largest value of an image of more than 8 bits
LEAST_DEEP = 2**12  # an image whose values stay below is of 12 bits or fewer: its upper 8 of 16 bits are nearly black
UPRIGHT = 1
LARGEST_HEADER = 16 * 2**20  # bytes of a NIfTI file before its voxels
_PILLOWS_LIMIT = threading.Lock()


class DamagedError(DataError):
    """An image, or its mask, cannot be used. ``reason`` ends a sentence about it in this site's log."""

    def __init__(self, path: Path, reason: str) -> None:
        super().__init__(f"image {path} {reason}.", field="image", public="an image of the split cannot be read.")
        self.reason = reason


@contextmanager
def decoding(path: Path, *own: type[Exception]) -> Iterator[None]:
    """Turn the exceptions of decoders, and a library's ``own``, into a :class:`DamagedError`."""
    handled: tuple[type[Exception], ...] = (*DECODE_ERRORS, *own)
    try:
        yield
    except handled as error:
        raise DamagedError(path, f"cannot be read ({type(error).__name__})") from error


def _too_large(path: Path, pixels: int, most: int) -> DamagedError:
    return DamagedError(path, f"has {pixels:,} pixels; expected at most {most:,} (max_image_pixels)")


def open_image(
    path: Path, max_pixels: int = MOST_PIXELS, *, content: bytes | None = None, formats: tuple[str, ...] = FORMATS
) -> Image.Image:
    """Open ``path``, or ``content`` that was read from it, and read its header, not its pixels."""
    with decoding(path), _PILLOWS_LIMIT:
        kept, Image.MAX_IMAGE_PIXELS = Image.MAX_IMAGE_PIXELS, None  # our limit takes the place of Pillow's two
        try:
            image = Image.open(path if content is None else io.BytesIO(content), formats=formats)
        finally:
            Image.MAX_IMAGE_PIXELS = kept
    if (pixels := image.width * image.height) > max_pixels:
        image.close()
        raise _too_large(path, pixels, max_pixels)
    return image


def read_image(
    path: Path, max_pixels: int = MOST_PIXELS, *, content: bytes | None = None, formats: tuple[str, ...] = FORMATS
) -> Image.Image:
    """Return the image in ``path`` as RGB; raises as :func:`open_image` and :func:`to_rgb` do, and if it is damaged."""
    with open_image(path, max_pixels, content=content, formats=formats) as image, decoding(path):
        return to_rgb(image, path)


def check_image(path: Path, max_pixels: int = MOST_PIXELS) -> None:
    """Raise the same errors as ``read_image``, at less cost.

    A JPEG is parsed completely but decoded at an eighth of its size, which takes a tenth of the time.
    """
    with open_image(path, max_pixels) as image, decoding(path):
        if image.format in ("JPEG", "MPO"):
            image.draft(None, (1, 1))
            image.load()
        else:
            to_rgb(image, path)


def to_rgb(image: Image.Image, path: Path) -> Image.Image:
    """Decode and convert to RGB; channels of 16 bits keep their upper 8 bits, transparency is ignored.

    Raises :class:`DamagedError`, naming ``path``, for values of which too little would be left: floating-point ones,
    those out of 16 bits, and grey ones of 12 bits or fewer that are stored in more than 8, unless the image is blank.
    """
    if image.mode == "F":
        raise DamagedError(path, "has floating-point values, expected whole numbers of 8 or 16 bits")
    if image.mode.startswith("I"):
        values = np.asarray(image)
        low, high = int(values.min()), int(values.max())
        if low < 0 or high > LARGEST_DEEP or low < high < LEAST_DEEP:
            expected = f"the whole range up to {LARGEST_DEEP:,} (12-bit values times 16), or 8 bits"
            raise DamagedError(path, f"has values from {low:,} to {high:,}, expected {expected}")
        image = Image.fromarray((values >> 8).astype(np.uint8))
    if image.mode == "P" and "transparency" in image.info:
        image = image.convert("RGBA")
    return image.convert("RGB")


def ignored_orientation(image: Image.Image) -> int:
    """Return the EXIF orientation of an opened image that decoding ignores, from 1, upright, to 8."""
    try:  # Pillow itself turns TIFF images; damaged metadata say nothing
        found = UPRIGHT if image.format == "TIFF" else image.getexif().get(ExifTags.Base.Orientation, UPRIGHT)
    except DECODE_ERRORS:
        return UPRIGHT
    return int(found) if found in range(1, 9) else UPRIGHT


# --- images with masks ---


def _nibabel() -> Any:
    return load_extra("nibabel", "a NIfTI file")


SHOWN_VALUES = 5
MOST_CUT_OFF = 0.01  # of an image's values, by a preset for photographs


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
        axes = {_nibabel().aff2axcodes(self._open(path).affine) for path in (image, mask) if is_nifti(path.name)}
        if is_nifti(image.name) != is_nifti(mask.name) or len(axes) > 1:
            raise DamagedError(mask, "has another orientation than its image, or only one of both is NIfTI")
        return pixels, classes

    def image(self, path: Path) -> np.ndarray:
        """Return an image, float32 ``[C, *S]``; raises as :meth:`read` does."""
        values = self._volume(path) if is_nifti(path.name) else self._picture(path, self._photograph)
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
        values = self._volume(path) if is_nifti(path.name) else self._picture(path, _label_map)
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

    def _picture(self, path: Path, decode: Callable[[Image.Image, Path], np.ndarray]) -> np.ndarray:
        """Return the pixels of a photograph or a mask; refuse several pages, and those that viewers turn."""
        with open_image(path, self.max_pixels, formats=PAIR_FORMATS) as image, decoding(path):
            if image.format == "TIFF" and (pages := getattr(image, "n_frames", 1)) > 1:
                raise DamagedError(path, f"has {pages:,} pages, expected one")
            values = decode(image, path)
            # Whoever drew the mask saw the turned image. After decoding: Pillow tells of a damaged PNG only once.
            if (found := ignored_orientation(image)) != UPRIGHT:
                raise DamagedError(path, f"has the EXIF orientation {found}, expected {UPRIGHT}: pixels turned already")
        return values

    def _photograph(self, image: Image.Image, path: Path) -> np.ndarray:
        pixels = to_rgb(image, path)
        return np.asarray(pixels.convert("L") if self.spec.channels == 1 else pixels)

    def _volume(self, path: Path) -> np.ndarray:
        """Return the values, ``[*S]`` or ``[*S, C]``, without further axes of length 1."""
        opened = self._open(path)
        with decoding(path):
            if self.oriented and self.spec.dims == 3:
                opened = _nibabel().as_closest_canonical(opened)
            values = np.asarray(opened.dataobj)
        while values.ndim > self.spec.dims and values.shape[-1] == 1:
            values = values[..., 0]
        return values

    def _open(self, path: Path) -> Any:
        nibabel = _nibabel()
        own = (nibabel.filebasedimages.ImageFileError, nibabel.spatialimages.HeaderDataError)
        with decoding(path, *own), np.errstate(all="ignore"):
            kinds = [kind for kind in (nibabel.Nifti1Image, nibabel.Nifti2Image) if kind.path_maybe_image(path)[0]]
            kind, (_, (start, _)) = kinds[0], kinds[0].path_maybe_image(path)
            header = kind.header_class(start[: kind.header_class.sizeof_hdr], check=False)
            if not header["vox_offset"] <= LARGEST_HEADER:  # also refuses NaN; nibabel reads all of it
                raise DamagedError(path, f"has a header of more than {LARGEST_HEADER:,} bytes")
            opened = kind.from_filename(path, mmap=False)
            voxels = int(np.prod([int(side) for side in opened.shape], dtype=object))
            usable = voxels >= 1 and opened.get_data_dtype().kind in "iuf"
            axes = nibabel.io_orientation(opened.affine) if np.isfinite(opened.affine[:3, :3]).all() else np.nan
        if voxels > self.max_pixels:
            raise _too_large(path, voxels, self.max_pixels)
        if not usable or np.isnan(axes).any():
            raise DamagedError(path, "is no NIfTI with real values and axes that can be told apart")
        return opened


def _label_map(image: Image.Image, path: Path) -> np.ndarray:
    values = np.asarray(image)
    if values.ndim == 2:
        return values
    colours = values[..., :-1] if image.mode in ("LA", "PA", "RGBA") else values
    if (colours != colours[..., :1]).any():
        raise DamagedError(path, "has colours, expected one value per pixel")
    return colours[..., 0]
