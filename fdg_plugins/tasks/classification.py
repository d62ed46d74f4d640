# SPDX-License-Identifier: Apache-2.0
"""Classification: one class per image, cross entropy, and the fraction of correctly classified images.

Shapes: logits ``[B, Y]``, labels ``[B]`` int64, features ``[B, D]``: each image is a sample.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch.nn.functional import cross_entropy, one_hot

from fdg_plugins.tasks.counted import (
    CONFIDENCE,
    CONFUSION,
    OF_CLASSES,
    PROBABILITIES,
    CountedScore,
    Counts,
    counted_score,
    support,
)
from fdg_plugins.tasks.counts import confusion, histograms
from fdg_plugins.tasks.score import ScoreKind, Sum
from fdg_plugins.tasks.task import Stratified, SumAndCount, Task

ACCURACY = ScoreKind("accuracy", "Accuracy")


@dataclass(frozen=True)
class Classification(Task):
    """One class per image, by which splits are stratified."""

    one_class_per_image: ClassVar[bool] = True
    loss_name: ClassVar[str] = "cross entropy"
    loss_unit: ClassVar[str] = "nats"
    can_score: ClassVar[tuple[str, ...]] = OF_CLASSES

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

    def counted(self, name: str) -> CountedScore | None:
        return counted_score(name)

    @torch.no_grad()
    def counts(self, logits: torch.Tensor, targets: torch.Tensor) -> Mapping[str, torch.Tensor]:
        """Return the counts that the ``scores`` need: those of softmax and of the largest logit."""
        if not self.scores:
            return {}
        classes, given = logits.shape[1], logits.argmax(dim=1)
        probabilities, right = logits.softmax(dim=1), given == targets
        made = {
            PROBABILITIES: lambda: histograms(probabilities, one_hot(targets, classes).bool()),
            CONFUSION: lambda: confusion(targets, given, classes),
            CONFIDENCE: lambda: histograms(probabilities.gather(1, given[:, None]), right[:, None]),
        }
        return {name: made[name]() for name in self.reads}

    def complaint_on_counts(self, counts: Counts, sums: Mapping[str, SumAndCount], images: int) -> str | None:
        """Each image has one label and one class that is given, the right one as often as its accuracy is."""
        if (found := super().complaint_on_counts(counts, sums, images)) is not None:
            return found
        supports = [supported for name in counts if (supported := support({name: counts[name]})) is not None]
        if any(int(one.sum()) != images or (one != supports[0]).any() for one in supports):
            return "its counts differ in the images of a class"
        right = {sums[ACCURACY.name][0]} if ACCURACY.name in sums else set()
        right |= {float(counts[CONFUSION].trace())} if CONFUSION in counts else set()
        right |= {float(counts[CONFIDENCE][0, 1].sum())} if CONFIDENCE in counts else set()
        return "its counts and sums differ in the images that are classified correctly" if len(right) > 1 else None

    def samples_of(self, features: torch.Tensor, targets: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return features, targets

    def strata(self, classes: Sequence[str]) -> tuple[str, ...]:
        return tuple(classes)

    def stratum(self, image: Stratified) -> int:
        return image.label

    def class_counts(self, images: Iterable[Any], num_classes: int) -> tuple[int, ...]:
        counts = Counter(image.label for image in images)
        return tuple(counts[label] for label in range(num_classes))


CLASSIFICATION = Classification()
