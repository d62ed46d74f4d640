# SPDX-License-Identifier: Apache-2.0
"""Classification: one class per image, or any number of classes, each learned by itself.

Shapes: logits ``[B, Y]``, features ``[B, D]``: each image is a sample. Labels are ``[B]`` int64, those of several
classes ``[B, Y]`` float32: 1 for each class that an image has, else 0.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch.nn.functional import binary_cross_entropy_with_logits, cross_entropy, one_hot

from fdg_plugins.errors import SettingsError
from fdg_plugins.tasks.counts import (
    CONFIDENCE,
    CONFUSION,
    OF_CLASSES,
    PROBABILITIES,
    CountedScore,
    Counts,
    confusion,
    counted_score,
    histograms,
    support,
)
from fdg_plugins.tasks.score import ScoreKind, Sum
from fdg_plugins.tasks.task import Sums, Task

ACCURACY = ScoreKind("accuracy", "Accuracy")
LABEL_ACCURACY = ScoreKind("label_accuracy", "Label accuracy")


class _ByImage(Task):
    """A task whose primary score counts every image once."""

    can_score: ClassVar[tuple[str, ...]] = OF_CLASSES

    def counts_images(self, name: str) -> bool:
        return name == self.score.name

    def counted(self, name: str) -> CountedScore | None:
        return counted_score(name, independent=not self.one_class_per_image)


@dataclass(frozen=True)
class Classification(_ByImage):
    """One class per image, by which splits are stratified; cross entropy, and the fraction of right images."""

    one_class_per_image: ClassVar[bool] = True

    name: str = "classification"
    score: ScoreKind = ACCURACY

    def loss(self, logits: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        return cross_entropy(logits, labels_of(targets))

    def summed_loss(self, logits: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        return cross_entropy(logits, labels_of(targets), reduction="sum")

    def sums(self, logits: torch.Tensor, targets: torch.Tensor) -> Mapping[str, Sum]:
        """Return the number of images whose largest logit is that of their label, and B."""
        return {ACCURACY.name: Sum(self.each(logits, targets).sum(), len(targets))}

    def each(self, logits: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        return logits.argmax(dim=1) == labels_of(targets)

    @torch.no_grad()
    def counts(self, logits: torch.Tensor, targets: torch.Tensor) -> Mapping[str, torch.Tensor]:
        """Return the counts that the ``scores`` need: those of softmax and of the largest logit."""
        classes, given, labels = logits.shape[1], logits.argmax(dim=1), labels_of(targets)
        probabilities = logits.softmax(dim=1)
        made = {
            PROBABILITIES: lambda: histograms(probabilities, one_hot(labels, classes).bool()),
            CONFUSION: lambda: confusion(labels, given, classes),
            CONFIDENCE: lambda: histograms(probabilities.gather(1, given[:, None]), (given == labels)[:, None]),
        }
        return {name: made[name]() for name in self.reads}

    def complaint_on_counts(self, counts: Counts, sums: Sums, images: int) -> str | None:
        """Each image has one label and one class that is given, the right one as often as its accuracy is."""
        if (found := super().complaint_on_counts(counts, sums, images)) is not None:
            return found
        supports = [support({name: one}) for name, one in counts.items() if name != CONFIDENCE]
        if any(one is None or int(one.sum()) != images or (one != supports[0]).any() for one in supports):
            return "its counts differ in the images of a class"
        right = {sums[ACCURACY.name][0]} if ACCURACY.name in sums else set()
        right |= {float(counts[CONFUSION].trace())} if CONFUSION in counts else set()
        right |= {float(counts[CONFIDENCE][0, 1].sum())} if CONFIDENCE in counts else set()
        return "its counts and sums differ in the images that are classified correctly" if len(right) > 1 else None

    def samples_of(self, features: torch.Tensor, targets: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return features, labels_of(targets)

    def strata(self, classes: Sequence[str]) -> tuple[str, ...]:
        return tuple(classes)

    def stratum(self, image: Any) -> int:
        return image.label

    def class_counts(self, images: Iterable[Any], num_classes: int) -> tuple[int, ...]:
        counts = Counter(image.label for image in images)
        return tuple(counts[label] for label in range(num_classes))


@dataclass(frozen=True)
class MultiLabel(_ByImage):
    """Any number of classes per image; binary cross entropy.

    Scores (:meth:`sums`): ``label_accuracy``, each image's share of the classes that are rightly present or absent at a
    probability of 0.5. Where classes are rare it says little; ask for ``auroc`` or ``f1`` too, and select by it.
    """

    one_class_per_image: ClassVar[bool] = False
    has_classes: ClassVar[bool] = False

    name: str = "multilabel"
    score: ScoreKind = LABEL_ACCURACY

    def loss(self, logits: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        """Return the mean over images and classes."""
        return binary_cross_entropy_with_logits(logits, targets)

    def summed_loss(self, logits: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        return binary_cross_entropy_with_logits(logits, targets, reduction="sum") / targets.shape[1]

    def sums(self, logits: torch.Tensor, targets: torch.Tensor) -> Mapping[str, Sum]:
        return {LABEL_ACCURACY.name: Sum(self.each(logits, targets).sum(), len(targets))}

    def each(self, logits: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        return ((logits.sigmoid() >= 0.5) == targets.bool()).double().mean(dim=1)

    @torch.no_grad()
    def counts(self, logits: torch.Tensor, targets: torch.Tensor) -> Mapping[str, torch.Tensor]:
        return {name: histograms(logits.sigmoid(), targets.bool()) for name in self.reads}

    def samples_of(self, features: torch.Tensor, targets: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        expected = "one whose samples have one class each"
        raise SettingsError(field="task", value=self.name, expected=expected, public=True)

    def class_counts(self, images: Iterable[Any], num_classes: int) -> tuple[int, ...]:
        """Return how many images have each of the Y classes; an image counts for each class that it has."""
        listed = list(images)
        return tuple(sum(image.present[label] for image in listed) for label in range(num_classes))


def labels_of(targets: torch.Tensor) -> torch.Tensor:
    """Return the labels ``[B]`` among targets ``[B]``, or ``[B, 2]``: labels and attributes."""
    return targets if targets.dim() == 1 else targets[:, 0]


CLASSIFICATION = Classification()
MULTILABEL = MultiLabel()
