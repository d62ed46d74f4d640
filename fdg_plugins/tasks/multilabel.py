# SPDX-License-Identifier: Apache-2.0
"""Multi-label classification: any number of classes per image, none among them, each learned by itself.

Shapes: logits ``[B, Y]``; targets ``[B, Y]`` float32, 1 for each class that an image has, else 0; features ``[B, D]``.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch.nn.functional import binary_cross_entropy_with_logits

from fdg_plugins.errors import SettingsError
from fdg_plugins.tasks.counted import OF_CLASSES, PROBABILITIES, CountedScore, counted_score
from fdg_plugins.tasks.counts import histograms
from fdg_plugins.tasks.score import ScoreKind, Sum
from fdg_plugins.tasks.task import SumAndCount, Task

LABEL_ACCURACY = ScoreKind("label_accuracy", "Label accuracy")


@dataclass(frozen=True)
class MultiLabel(Task):
    """Any number of classes per image; binary cross entropy.

    Scores (:meth:`sums`): ``label_accuracy``, each image's share of the classes that are rightly present or absent at a
    probability of 0.5. Where classes are rare it says little; ask for ``auroc`` or ``f1`` too, and select by it.
    """

    one_class_per_image: ClassVar[bool] = False
    has_classes: ClassVar[bool] = False
    loss_name: ClassVar[str] = "binary cross entropy"
    loss_unit: ClassVar[str] = "nats"
    can_score: ClassVar[tuple[str, ...]] = OF_CLASSES

    name: str = "multilabel"
    score: ScoreKind = LABEL_ACCURACY

    def loss(self, logits: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        """Return the mean over images and classes."""
        return binary_cross_entropy_with_logits(logits, targets)

    def summed_loss(self, logits: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        return binary_cross_entropy_with_logits(logits, targets, reduction="sum") / targets.shape[1]

    def sums(self, logits: torch.Tensor, targets: torch.Tensor) -> Mapping[str, Sum]:
        right = (logits.sigmoid() >= 0.5) == targets.bool()
        return {LABEL_ACCURACY.name: Sum(right.double().mean(dim=1).sum(), len(targets))}

    def complaint(self, sums: Mapping[str, SumAndCount], images: int, num_classes: int) -> str | None:
        if (found := super().complaint(sums, images, num_classes)) is not None:
            return found
        count = sums[self.score.name][1]
        return None if count == images else f"its {self.score.name} is over {count} images, expected {images}"

    def counted(self, name: str) -> CountedScore | None:
        return counted_score(name, independent=True)

    @torch.no_grad()
    def counts(self, logits: torch.Tensor, targets: torch.Tensor) -> Mapping[str, torch.Tensor]:
        return {PROBABILITIES: histograms(logits.sigmoid(), targets.bool())} if self.scores else {}

    def samples_of(self, features: torch.Tensor, targets: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        raise SettingsError(
            field="task", value=self.name, expected="one whose samples have one class each", public=True
        )

    def class_counts(self, images: Iterable[Any], num_classes: int) -> tuple[int, ...]:
        """Return how many images have each of the Y classes; an image counts for each class that it has."""
        listed = list(images)
        return tuple(sum(image.present[label] for image in listed) for label in range(num_classes))


MULTILABEL = MultiLabel()
