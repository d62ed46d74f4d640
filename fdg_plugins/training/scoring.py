# SPDX-License-Identifier: Apache-2.0
"""What a site counts of a finished model: sums and counts, and which images the model classifies correctly.

Shapes: N images, Y classes; ``correct`` bool ``[N]``, in the order of the images, which is the same for every model.
"""

from typing import NamedTuple

import numpy as np
import torch

from fdg_plugins.tasks import Counts, Score, Task
from fdg_plugins.tasks.counted import CONFUSION, PROBABILITIES, support
from fdg_plugins.tasks.group_classification import labels_of


class Scored(NamedTuple):
    """A model on N images: its score; which it classifies correctly, ``[N]``, empty for a task of other images."""

    score: Score
    correct: torch.Tensor


class Correct:
    """Collects, batch by batch, which images are classified correctly; none if an image has no single class."""

    def __init__(self, task: Task) -> None:
        self._has_classes = task.one_class_per_image
        self._found = [torch.empty(0, dtype=torch.bool)]

    def add(self, logits: torch.Tensor, targets: torch.Tensor) -> None:
        """Add a batch of B images, logits ``[B, Y]`` and targets ``[B]`` or ``[B, 2]``."""
        if self._has_classes:
            self._found.append((logits.argmax(dim=1) == labels_of(targets)).cpu())

    def all(self) -> torch.Tensor:
        """Return ``[N]``."""
        return torch.cat(self._found)


def paired_counts(earlier: torch.Tensor, later: torch.Tensor) -> tuple[int, int, int, int]:
    """Return how many images both models classify correctly, only the earlier, only the later, and neither.

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
