# SPDX-License-Identifier: Apache-2.0
"""Facts about the masks of a domain: how many pairs can be used, their sizes, and how much each class covers."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from fdg_plugins.data.catalogue import SegmentationSpec
from fdg_plugins.data.mask_pairs import Pair, Picture, read_pair
from fdg_plugins.errors import DataError


@dataclass(frozen=True)
class MaskFacts:
    """What the pairs of a domain are like.

    ``sizes`` are width and height of each usable image in pixels, ``shares`` ``[N, Y]`` the fraction of its pixels in
    each class; ``damaged`` says of every other pair why it cannot be used.
    """

    sizes: tuple[tuple[int, int], ...]
    shares: np.ndarray
    damaged: Mapping[Pair, DataError]

    @property
    def pairs(self) -> int:
        """The number of pairs, damaged ones included."""
        return len(self.sizes) + len(self.damaged)


def mask_facts(root: Path, spec: SegmentationSpec, pairs: Iterable[Pair]) -> MaskFacts:
    """Decode the pairs below the resolved data root, and return their facts."""
    sizes: list[tuple[int, int]] = []
    shares: list[np.ndarray] = []
    damaged: dict[Pair, DataError] = {}
    for pair in pairs:
        try:
            picture = read_pair(root, spec, pair)
        except DataError as error:
            damaged[pair] = error
            continue
        sizes.append(picture.image.size)
        shares.append(class_shares(picture, len(spec.classes)))
    return MaskFacts(tuple(sizes), np.array(shares).reshape(-1, len(spec.classes)), damaged)


def class_shares(picture: Picture, classes: int) -> np.ndarray:
    """Return the fraction of the pixels in each class, ``[Y]``."""
    return np.bincount(picture.labels.ravel(), minlength=classes) / picture.labels.size
