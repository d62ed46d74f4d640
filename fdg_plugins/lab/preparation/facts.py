# SPDX-License-Identifier: Apache-2.0
"""What an image is like, for ``fdg data check``: size, format, damage, digest, and what its mask covers."""

import re
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from fdg_plugins.data.decoding import UPRIGHT, PairForm, check_image, ignored_orientation, open_image
from fdg_plugins.data.presets import BYTES, preset_of
from fdg_plugins.data.specs import KnownSpec, Sample, SegmentationSpec, without_suffix
from fdg_plugins.errors import shorten
from fdg_plugins.storage import sha256_of

_GREY = ("1", "L", "LA", "I", "I;16", "I;16B", "I;16L", "F")
_START = re.compile(r"(.*\d)[ _.-].+")  # patient_07 of patient_07_slice_3


class ImageFacts(NamedTuple):
    """A usable image: its spatial size in pixels, the SHA-256 of its file, and Pillow's name of its format.

    ``is_turned``: it has an EXIF orientation that is ignored. ``shares``: of an image with a mask, the fraction of the
    pixels in each class, ``[Y]``.
    """

    sample: Sample
    size: tuple[int, ...]
    digest: str
    format: str = ""
    is_grey: bool = False
    is_turned: bool = False
    shares: Sequence[float] = ()


def look_at(root: Path, spec: KnownSpec, sample: Sample, max_pixels: int) -> ImageFacts:
    """Decode an image or a pair below the resolved data root; raise ``DamagedError`` if it cannot be used."""
    path = root / spec.folder / sample.file
    if isinstance(spec, SegmentationSpec):
        _, labels = read_pair(root, spec, sample, max_pixels)
        shares = np.bincount(labels.ravel(), minlength=len(spec.classes)) / labels.size
        return ImageFacts(sample, labels.shape, sha256_of(path), shares=shares.tolist())
    check_image(path, max_pixels)
    with open_image(path, max_pixels) as image:
        is_turned = ignored_orientation(image) != UPRIGHT
        size, digest = (image.height, image.width), sha256_of(path)
        return ImageFacts(sample, size, digest, str(image.format), image.mode in _GREY, is_turned)


def read_pair(root: Path, spec: SegmentationSpec, pair: Sample, max_pixels: int) -> tuple[np.ndarray, np.ndarray]:
    """Return an image ``[C, *S]`` below the resolved data root, of at most ``max_pixels``, and its classes ``[*S]``.

    Volumes are turned to the orientation RAS, and values have to suit the data set's own preset. Raises as
    :meth:`PairForm.read` does.
    """
    form = PairForm(spec, True, max_pixels, preset_of("", spec).intensity == BYTES)
    image, labels = form.read(root / spec.folder / pair.file, root / spec.folder / pair.mask)
    return image, labels[0]


def likely_groups(samples: Sequence[Sample], classes: int) -> str | None:
    """Return a phrase about names that look as if several images were of one group; None if they do not.

    They have a number and something after it, and equal beginnings up to there, more than twice as many as classes.
    """
    matches = (_START.fullmatch(without_suffix(sample.file.rpartition("/")[2])) for sample in samples)
    starts = [(start, count) for start, count in Counter(match[1] for match in matches if match).items() if count > 1]
    if len(starts) <= 2 * classes or 2 * sum(count for _, count in starts) < len(samples):
        return None
    start, count = min(starts)
    return f"{len(starts):,} beginnings of file names have several images, such as {shorten(start)} with {count:,}"
