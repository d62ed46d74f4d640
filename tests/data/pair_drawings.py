# SPDX-License-Identifier: Apache-2.0
"""Small images with masks, drawn below a folder: photographs, grey ones and NIfTI, of a data set of three classes."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import nibabel
import numpy as np
from PIL import Image

from fdg_plugins.data import SegmentationSpec
from fdg_plugins.tasks.classification import Classification

CLASSES = ("background", "cup", "disc")
VALUES = ((0,), (100, 110), (200,))


@dataclass(frozen=True)
class PairTask(Classification):
    """A task whose images have no class; only what splits and the census need differs from classification."""

    name: str = "pairs_of_tests"

    def strata(self, classes: Sequence[str]) -> tuple[str, ...]:
        return ("all",)

    def stratum(self, image: Any) -> int:
        return 0

    def class_counts(self, images: Iterable[Any], num_classes: int) -> tuple[int, ...]:
        return (len(list(images)),) * num_classes


def eyes(**changes: Any) -> SegmentationSpec:
    """Return the record of the data set; ``changes`` replace its fields."""
    fields = {
        "name": "eyes",
        "folder": "eyes",
        "title": "Eyes",
        "reference": "drawn",
        "domains": ("left", "right"),
        "classes": CLASSES,
        "mask_values": VALUES,
        "task": PairTask().name,
    }
    return SegmentationSpec(**{**fields, **changes})


def labels(size: tuple[int, ...], number: int) -> np.ndarray:
    """Return class numbers of the given size, all three of them present."""
    drawn = np.random.default_rng(number).integers(0, 3, size, dtype=np.uint8)
    drawn.flat[:3] = (0, 1, 2)
    return drawn


def draw_photo(
    folder: Path, stem: str, size: tuple[int, int] = (24, 20), number: int = 0, suffix: str = ".png"
) -> None:
    """Draw an image whose red channel is the value of its mask, so that both can be compared after any motion."""
    classes = labels(size, number)
    values = np.array([0, 100, 200], dtype=np.uint8)[classes]
    noise = np.random.default_rng(number + 1000).integers(0, 256, (*size, 2), dtype=np.uint8)
    for part in ("images", "masks"):
        (folder / part).mkdir(parents=True, exist_ok=True)
    Image.fromarray(np.dstack([values, noise])).save(folder / "images" / f"{stem}{suffix}")
    Image.fromarray(values).save(folder / "masks" / f"{stem}.png")


def draw_volume(
    image: Path, mask: Path, size: tuple[int, ...], number: int = 0, affine: np.ndarray | None = None
) -> np.ndarray:
    """Write a NIfTI image whose values are 100 + 50 x class, and its mask of class numbers; return the classes."""
    classes = labels(size, number)
    placed = np.diag([0.5, 0.6, 3.0, 1.0]) if affine is None else affine
    for path, values in ((image, (100 + 50 * classes).astype(np.int16)), (mask, classes)):
        path.parent.mkdir(parents=True, exist_ok=True)
        nibabel.save(nibabel.Nifti1Image(values, placed), path)
    return classes
