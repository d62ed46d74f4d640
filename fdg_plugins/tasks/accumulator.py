# SPDX-License-Identifier: Apache-2.0
"""Metric accumulation: loss and scores of a model, summed over batches."""

from collections.abc import Mapping
from dataclasses import dataclass

import torch

from fdg_plugins.tasks.score import Sum
from fdg_plugins.tasks.task import Task


@dataclass(frozen=True)
class Score:
    """The quality of a model on ``count`` images: the mean loss, and each score as a sum and a count."""

    loss: float
    count: int
    sums: Mapping[str, tuple[float, int]]

    def value(self, name: str) -> float:
        """Return the score called ``name``."""
        total, count = self.sums[name]
        return total / count


class Accumulator:
    """Sums over batches, from which a :class:`Score` is computed. They stay on the device until they are read.

    Args:
        task: the task that defines loss and scores.
        device: the device of the logits.
    """

    def __init__(self, task: Task, device: torch.device) -> None:
        self.task = task
        self._loss = torch.zeros((), dtype=torch.float64, device=device)
        self._images = 0
        self._sums: dict[str, Sum] = {}

    @torch.no_grad()
    def add(self, logits: torch.Tensor, targets: torch.Tensor) -> None:
        """Add a batch of B images with its logits, float32, and its targets."""
        self._loss += self.task.summed_loss(logits, targets).double()
        self._images += len(targets)
        for name, (total, count) in self.task.sums(logits, targets).items():
            before = self._sums.get(name, Sum(0, 0))
            self._sums[name] = Sum(before.total + total, before.samples + count)

    def score(self) -> Score:
        """Return the score over all added images, at least one, without the scores of which there was no sample."""
        sums = {name: (float(total), int(count)) for name, (total, count) in self._sums.items() if int(count)}
        return Score(float(self._loss) / self._images, self._images, sums)
