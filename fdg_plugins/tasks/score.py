# SPDX-License-Identifier: Apache-2.0
"""What a score is called, which of two is better, how it is printed; and a score as a sum over a count."""

from dataclasses import dataclass
from typing import NamedTuple

import torch

MISSING = "missing"


class Sum(NamedTuple):
    """A score before the division: the sum over what was judged, and how much that was. Sums of batches add up."""

    total: float | torch.Tensor
    samples: int | torch.Tensor


@dataclass(frozen=True)
class ScoreKind:
    """One score of a task.

    Args:
        name: as records, tags of TensorBoard and axes of figures have it: ``"accuracy"``.
        title: as captions begin: ``"Accuracy"``.
        lowest: the smallest value it can have.
        highest: the largest.
        higher_is_better: whether the largest is the best.
        percent: whether people are shown a hundred times its value, in percent.
    """

    name: str
    title: str
    lowest: float = 0.0
    highest: float = 1.0
    higher_is_better: bool = True
    percent: bool = True

    @property
    def factor(self) -> float:
        """By what a value is multiplied when it is shown to people."""
        return 100.0 if self.percent else 1.0

    @property
    def heading(self) -> str:
        """Return title and place for captions' numbers: ``"Accuracy on the held-out domain"``."""
        return f"{self.title} on the held-out domain"

    @property
    def unit(self) -> str:
        """Return the unit in which people are shown values, with the comma before it; empty if there is none."""
        return ", percent" if self.percent else ""

    def goodness(self, value: float) -> float:
        """Return ``value`` with the sign that makes the larger one the better one."""
        return value if self.higher_is_better else -value

    def best(self, values: list[float]) -> float:
        """Return the best of one or more values."""
        return max(values, key=self.goodness)

    def worst(self, values: list[float]) -> float:
        """Return the worst of one or more values."""
        return min(values, key=self.goodness)

    def error(self, value: float) -> float:
        """Return how far ``value`` is from the best there can be, at least 0."""
        return self.highest - value if self.higher_is_better else value - self.lowest

    def text(self, value: float | None, digits: int = 1) -> str:
        """Return a value for people, ``81.2 %``; ``missing`` if there is none."""
        if value is None:
            return MISSING
        return f"{self.factor * value:.{digits}f}{' %' if self.percent else ''}"
