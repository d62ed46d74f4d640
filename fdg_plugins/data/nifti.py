# SPDX-License-Identifier: Apache-2.0
"""NIfTI files, of version 1 or 2, through nibabel, which is imported when it is needed.

The header is checked before any value is read. nibabel's other formats, and memory mapping, in which a file that is cut
short would end the process, are not used.
"""

from pathlib import Path
from typing import Any

import numpy as np

from fdg_plugins.data.decoding import DECODE_ERRORS, TooLargeError
from fdg_plugins.errors import DataError
from fdg_plugins.extras import load_extra

METRES, MICRONS = 1, 3  # NIfTI's codes for units of length, the lowest three bits; any other means millimetres here
TENTH = 0.1
_MILLIMETRES = {METRES: 1000.0, MICRONS: 0.001}


def open_nifti(path: Path, max_pixels: int) -> Any:
    """Return nibabel's image with a checked header, whose values are not read yet.

    Raises DataError naming the file if it is not NIfTI with real values and axes that can be told apart, and
    :class:`TooLargeError` if it has more than ``max_pixels`` voxels.
    """
    nibabel = _nibabel()
    try:
        opened = _kind_of(path).from_filename(path, mmap=False)
        voxels = int(np.prod([int(side) for side in opened.shape], dtype=object))
        usable = voxels >= 1 and opened.get_data_dtype().kind in "iuf"
    except (*DECODE_ERRORS, nibabel.filebasedimages.ImageFileError, nibabel.spatialimages.HeaderDataError) as error:
        raise _unreadable(path, error) from error
    if voxels > max_pixels:
        raise TooLargeError(
            f"image {path} has {voxels:,} voxels; expected at most {max_pixels:,} (max_image_pixels).",
            public="an image of the split has more pixels than the site opens (max_image_pixels).",
        )
    if not usable or np.linalg.matrix_rank(np.nan_to_num(opened.affine)[:3, :3]) < 3:
        raise _unreadable(path, ValueError())
    return opened


def read_nifti(path: Path, max_pixels: int, dims: int, *, oriented: bool) -> np.ndarray:
    """Return the values, ``[*S]`` or ``[*S, C]``, without further axes of length 1; raise as :func:`open_nifti` does.

    ``oriented``: turned so that the axes point to the right, to the front and up (RAS).
    """
    opened = open_nifti(path, max_pixels)
    try:
        values = np.asarray((_nibabel().as_closest_canonical(opened) if oriented else opened).dataobj)
    except (*DECODE_ERRORS, MemoryError) as error:
        raise _unreadable(path, error) from error
    while values.ndim > dims and values.shape[-1] == 1:
        values = values[..., 0]
    return values


def orientation_of(opened: Any) -> tuple[str, ...]:
    """Return where the axes of an opened image point, such as ``("L", "P", "S")``."""
    axes: tuple[str, ...] = _nibabel().aff2axcodes(opened.affine)
    return axes


def lie_alike(one: Any, other: Any) -> bool:
    """Return whether the voxels of two opened images of one shape lie in the same places, to a tenth of a voxel."""
    sides = np.linalg.norm(np.nan_to_num(one.affine)[:3, :3], axis=0)
    corners = np.array([[*corner, 1] for corner in np.ndindex(2, 2, 2)]) * [*_last_voxel(one), 1]
    shifts = corners @ np.nan_to_num(one.affine - other.affine).T
    return bool(np.abs(shifts).max() <= TENTH * sides.min())


def _last_voxel(opened: Any) -> tuple[int, ...]:
    """Return the indices of the last voxel along the three axes of space."""
    return tuple(side - 1 for side in (*opened.shape, 1, 1, 1)[:3])


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


def _kind_of(path: Path) -> Any:
    """Return nibabel's class for a NIfTI file; raise ValueError for any other."""
    nibabel = _nibabel()
    for kind in (nibabel.Nifti1Image, nibabel.Nifti2Image):
        if kind.path_maybe_image(path)[0]:
            return kind
    raise ValueError


def _nibabel() -> Any:
    return load_extra("nibabel", "a NIfTI file")


def _unreadable(path: Path, error: Exception) -> DataError:
    return DataError(
        f"image {path} cannot be read ({type(error).__name__}); expected an undamaged NIfTI file.",
        public="an image of the split cannot be read.",
    )
