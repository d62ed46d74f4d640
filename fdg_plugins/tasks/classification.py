# SPDX-License-Identifier: Apache-2.0
"""Classification: one class per image, cross entropy, and the fraction of correctly classified images.

Shapes: logits ``[B, Y]``, labels ``[B]`` int64, features ``[B, D]``: each image is a sample.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch.nn.functional import cross_entropy

from fdg_plugins.tasks.score import ScoreKind, Sum
from fdg_plugins.tasks.task import Stratified, SumAndCount, Task

ACCURACY = ScoreKind("accuracy", "Accuracy")


@dataclass(frozen=True)
class Classification(Task):
    """One class per image, by which splits are stratified."""

    one_class_per_image: ClassVar[bool] = True
    loss_name: ClassVar[str] = "cross entropy"
    loss_unit: ClassVar[str] = "nats"

    name: str = "classification"
    score: ScoreKind = ACCURACY

    def loss(self, logits: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        return cross_entropy(logits, targets)

    def summed_loss(self, logits: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        return cross_entropy(logits, targets, reduction="sum")

    def sums(self, logits: torch.Tensor, targets: torch.Tensor) -> Mapping[str, Sum]:
        """Return the number of images whose largest logit is that of their label, and B."""
        return {ACCURACY.name: Sum((logits.argmax(dim=1) == targets).sum(), len(targets))}

    def complaint(self, sums: Mapping[str, SumAndCount], images: int, num_classes: int) -> str | None:
        if (found := super().complaint(sums, images, num_classes)) is not None:
            return found
        count = sums[self.score.name][1]
        return None if count == images else f"its {self.score.name} is over {count} images, expected {images}"

    def samples_of(self, features: torch.Tensor, targets: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return features, targets

    def samples_per_image(self, image_size: int, dims: int = 2) -> int:
        return 1

    def strata(self, classes: Sequence[str]) -> tuple[str, ...]:
        return tuple(classes)

    def stratum(self, image: Stratified) -> int:
        return image.label

    def class_counts(self, images: Iterable[Any], num_classes: int) -> tuple[int, ...]:
        counts = Counter(image.label for image in images)
        return tuple(counts[label] for label in range(num_classes))


CLASSIFICATION = Classification()
