# SPDX-License-Identifier: Apache-2.0
"""Images and masks in ``<domain>/{images,masks}/`` with equal stems: which belong together, and whether they are sound.

For 2-D images that Pillow decodes.
"""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from PIL import Image

from fdg_plugins.data.catalogue import SegmentationSpec
from fdg_plugins.data.decoding import MOST_PIXELS, read_image
from fdg_plugins.data.folders import is_folder, refuse_outside
from fdg_plugins.errors import DataError

IMAGES, MASKS = "images", "masks"
OUTSIDE = -1
_TWO_SUFFIXES = ".nii.gz"


@dataclass(frozen=True)
class Pair:
    """An image and its mask, as POSIX paths below the data set's folder."""

    image: str
    mask: str

    @property
    def stem(self) -> str:
        """The name that both files have, without suffix."""
        return stem_of(self.image.rpartition("/")[2])


@dataclass(frozen=True)
class Picture:
    """A decoded pair: ``image`` is RGB, ``labels`` ``[H, W]`` int64 has the class of each pixel."""

    image: Image.Image
    labels: np.ndarray


def stem_of(name: str) -> str:
    """Return a file name without its suffix, ``.nii.gz`` being one."""
    if name.lower().endswith(_TWO_SUFFIXES):
        return name[: -len(_TWO_SUFFIXES)]
    return name.rpartition(".")[0] or name


def list_pairs(root: Path, spec: SegmentationSpec, domain: str) -> tuple[Pair, ...]:
    """Return the pairs of a domain below the resolved data root, sorted by stem.

    Raises DataError for a missing folder, a link out of the root, an empty domain, two files of one stem, and an image
    or a mask without the other.
    """
    base = root / spec.folder
    images, masks = (_by_stem(root, base / domain / folder) for folder in (IMAGES, MASKS))
    if single := sorted(images.keys() ^ masks.keys()):
        has, lacks = ("image", "mask") if single[0] in images else ("mask", "image")
        raise DataError(
            f"folder {base / domain}: {len(single):,} files have no partner, such as {has} {single[0]} without {lacks};"
            f" expected equal stems in {IMAGES}/ and {MASKS}/.",
            public=f"domain {domain!r} has {len(single):,} images or masks without the other.",
        )
    if not images:
        raise DataError(
            f"folder {base / domain} holds no image; expected pairs in {IMAGES}/ and {MASKS}/.",
            public=f"domain {domain!r} has no image.",
        )
    return tuple(
        Pair(f"{domain}/{IMAGES}/{images[stem]}", f"{domain}/{MASKS}/{masks[stem]}") for stem in sorted(images)
    )


def read_pair(root: Path, spec: SegmentationSpec, pair: Pair, max_pixels: int = MOST_PIXELS) -> Picture:
    """Decode a pair; raise DataError, naming the file, if one is damaged, the sizes differ, or a value has no class."""
    base = root / spec.folder
    image, mask = (read_image(base / file, max_pixels) for file in (pair.image, pair.mask))
    if image.size != mask.size:
        raise DataError(
            f"mask {base / pair.mask} has {mask.width} x {mask.height} pixels; expected {image.width} x {image.height} "
            "as its image has."
        )
    labels = _labels(np.asarray(mask.convert("L")), spec)
    if (labels == OUTSIDE).any():
        raise DataError(
            f"mask {base / pair.mask} has values that stand for no class; expected {_values(spec)}.",
        )
    return Picture(image, labels)


def _by_stem(root: Path, folder: Path) -> dict[str, str]:
    """Return the file names in a folder, without hidden ones, by their stems."""
    if not is_folder(folder):
        raise DataError(f"folder {folder} is not there; expected <domain>/{IMAGES}/ and <domain>/{MASKS}/.")
    refuse_outside(root, folder)
    found: dict[str, str] = {}
    for name in sorted(entry.name for entry in folder.iterdir() if not entry.name.startswith(".")):
        refuse_outside(root, folder / name)
        if (stem := stem_of(name)) in found:
            raise DataError(f"folder {folder} holds {found[stem]} and {name}; expected one file of a stem.")
        found[stem] = name
    return found


def _labels(values: np.ndarray, spec: SegmentationSpec) -> np.ndarray:
    """Return the class of each value, ``OUTSIDE`` for a value without class."""
    table = np.full(256, OUTSIDE)
    for label, accepted in enumerate(_values(spec)):
        table[list(accepted)] = label
    return table[values]


def _values(spec: SegmentationSpec) -> tuple[tuple[int, ...], ...]:
    return spec.mask_values or tuple((label,) for label in range(len(spec.classes)))
