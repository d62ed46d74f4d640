# SPDX-License-Identifier: Apache-2.0
"""Small images with masks, drawn below a folder: photographs and NIfTI, of a data set of three classes."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from fdg_plugins.data import SegmentationSpec

nibabel = pytest.importorskip("nibabel")

CLASSES = ("background", "cup", "disc")
VALUES = ((0,), (100, 110), (200,))


def eyes(**changes: Any) -> SegmentationSpec:
    names = {"name": "eyes", "folder": "eyes", "title": "Eyes", "reference": "drawn", "domains": ("left", "right")}
    return SegmentationSpec(**{**names, "classes": CLASSES, "mask_values": VALUES, **changes})


def labels(size: tuple[int, ...], number: int) -> np.ndarray:
    """Return class numbers of the given size, all three of them present."""
    drawn = np.random.default_rng(number).integers(0, 3, size, dtype=np.uint8)
    drawn.flat[:3] = (0, 1, 2)
    return drawn


def draw_photo(folder: Path, stem: str, size: tuple[int, int] = (24, 20), number: int = 0) -> None:
    """Draw an image whose red channel is the value of its mask, so that both can be compared after any motion."""
    values = np.array([0, 100, 200], dtype=np.uint8)[labels(size, number)]
    noise = np.random.default_rng(number + 1000).integers(0, 256, (*size, 2), dtype=np.uint8)
    for part, pixels in (("images", np.dstack([values, noise])), ("masks", values)):
        (folder / part).mkdir(parents=True, exist_ok=True)
        Image.fromarray(pixels).save(folder / part / f"{stem}.png")


def draw_volume(
    image: Path, mask: Path, size: tuple[int, ...] = (6, 5, 4), affine: np.ndarray | None = None
) -> np.ndarray:
    """Write a NIfTI image whose values are 100 + 50 x class, and its mask of class numbers; return the classes."""
    classes = labels(size, 0)
    placed = np.diag([0.5, 0.6, 3.0, 1.0]) if affine is None else affine
    for path, values in ((image, (100 + 50 * classes).astype(np.int16)), (mask, classes)):
        path.parent.mkdir(parents=True, exist_ok=True)
        nibabel.save(nibabel.Nifti1Image(values, placed), path)
    return classes
