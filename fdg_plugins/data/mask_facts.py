# SPDX-License-Identifier: Apache-2.0
"""Facts about the masks of a domain: how many pairs can be used, their sizes, and how much each class covers."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from fdg_plugins.data.decoding import MOST_PIXELS
from fdg_plugins.data.image_facts import digest_of
from fdg_plugins.data.pair_reading import PairForm
from fdg_plugins.data.presets import PRESETS
from fdg_plugins.data.specs import PairSample, SegmentationSpec
from fdg_plugins.errors import DataError


@dataclass(frozen=True)
class MaskFacts:
    """What the pairs of a domain are like.

    ``sizes`` has the spatial size S of each usable image, in the order of its axes, and ``shares`` ``[N, Y]`` the
    fraction of its pixels in each class; ``damaged`` says of every other pair why it cannot be used. ``digests`` has
    the SHA-256 of every image that can be read. ``elsewhere`` are the usable pairs whose headers place image and mask
    differently.
    """

    sizes: tuple[tuple[int, ...], ...]
    shares: np.ndarray
    damaged: Mapping[PairSample, DataError]
    digests: Mapping[PairSample, str]
    elsewhere: tuple[PairSample, ...] = ()

    @property
    def pairs(self) -> int:
        """The number of pairs, damaged ones included."""
        return len(self.sizes) + len(self.damaged)


def mask_facts(
    root: Path, spec: SegmentationSpec, pairs: Iterable[PairSample], max_pixels: int = MOST_PIXELS
) -> MaskFacts:
    """Decode the pairs below the resolved data root, of at most ``max_pixels`` each, and return their facts.

    An image is hashed when it is decoded: later, it would have to be read from the disk again.
    """
    sizes: list[tuple[int, ...]] = []
    shares: list[np.ndarray] = []
    damaged: dict[PairSample, DataError] = {}
    digests: dict[PairSample, str] = {}
    elsewhere: list[PairSample] = []
    folder, form = root / spec.folder, _form(spec, max_pixels)
    for pair in pairs:
        try:
            digests[pair] = digest_of(folder / pair.file)
            _, labels = read_pair(root, spec, pair, max_pixels)
        except DataError as error:
            damaged[pair] = error
            continue
        sizes.append(labels.shape)
        shares.append(class_shares(labels, len(spec.classes)))
        if form.lies_elsewhere(folder / pair.file, folder / pair.mask):
            elsewhere.append(pair)
    fractions = np.array(shares).reshape(-1, len(spec.classes))
    return MaskFacts(tuple(sizes), fractions, damaged, digests, tuple(elsewhere))


def read_pair(
    root: Path, spec: SegmentationSpec, pair: PairSample, max_pixels: int = MOST_PIXELS
) -> tuple[np.ndarray, np.ndarray]:
    """Return an image ``[C, *S]`` below the resolved data root, of at most ``max_pixels``, and its classes ``[*S]``.

    Volumes are turned to the orientation RAS, and values have to suit the data set's own preset. Raises as
    :meth:`PairForm.read` does.
    """
    form = _form(spec, max_pixels)
    image, labels = form.read(root / spec.folder / pair.file, root / spec.folder / pair.mask)
    return image, labels[0]


def _form(spec: SegmentationSpec, max_pixels: int) -> PairForm:
    preset = PRESETS.get(spec.preset)
    in_bytes = preset is not None and preset.of_photographs and spec.dims in preset.dims
    return PairForm.of(spec, oriented=True, max_pixels=max_pixels, in_bytes=in_bytes)


def class_shares(labels: np.ndarray, classes: int) -> np.ndarray:
    """Return the fraction of the pixels in each class, ``[Y]``."""
    return np.bincount(labels.ravel(), minlength=classes) / labels.size
