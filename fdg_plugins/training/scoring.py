# SPDX-License-Identifier: Apache-2.0
"""What a site tells of finished models: pairs of them on the same images, and no count of few images."""

import numpy as np
import torch

from fdg_plugins.tasks import Counts
from fdg_plugins.tasks.counts import CONFUSION, PROBABILITIES, support


def paired_counts(earlier: torch.Tensor, later: torch.Tensor) -> tuple[int, int, int, int]:
    """Return how many images both models classify correctly, only the earlier, only the later, and neither; ``[N]``.

    >>> paired_counts(torch.tensor([True, True, False]), torch.tensor([True, False, False]))
    (1, 1, 0, 1)
    """
    found = torch.bincount(2 * (~earlier).long() + (~later).long(), minlength=4).tolist()
    return found[0], found[1], found[2], found[3]


def without_few(counts: Counts, least: int) -> tuple[Counts, tuple[int, ...]]:
    """Return counts in which each class has zeros if fewer than ``least`` images have it or do not, and such classes.

    A class without images, or of all images, tells of none which image it is, and stays.
    """
    if (members := support(counts)) is None:
        return counts, ()
    others = counts[PROBABILITIES][:, 0].sum(axis=1) if PROBABILITIES in counts else members.sum() - members
    few = ((members > 0) & (members < least)) | ((others > 0) & (others < least))
    by_class = {
        name: np.where(few.reshape(-1, *[1] * (one.ndim - 1)), 0, one)
        for name, one in counts.items()
        if name in (PROBABILITIES, CONFUSION)
    }
    return {**counts, **by_class}, tuple(map(int, np.flatnonzero(few)))
