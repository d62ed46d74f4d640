# SPDX-License-Identifier: Apache-2.0
"""Classification: one class per image, also by groups of images, or any number of classes, each learned by itself.

Shapes: logits ``[B, Y]``, features ``[B, D]``: each image is a sample. Labels are ``[B]`` int64, those of several
classes ``[B, Y]`` float32: 1 for each class that an image has, else 0. In an evaluation by groups, targets are label
and attribute, ``[B, 2]`` int64, with attributes in {0, 1}: no loss and no method ever receives an attribute.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any, ClassVar

import torch
from torch.nn.functional import binary_cross_entropy_with_logits, cross_entropy, one_hot

from fdg_plugins.errors import SettingsError
from fdg_plugins.plugins.reports import REPORT_GROUPS
from fdg_plugins.tasks.counts import (
    CONFIDENCE,
    CONFUSION,
    OF_CLASSES,
    PROBABILITIES,
    Bounded,
    CountedScore,
    Counts,
    confusion,
    counted_score,
    exactly,
    histograms,
    support,
)
from fdg_plugins.tasks.score import ScoreKind, Sum
from fdg_plugins.tasks.task import SumAndCount, Sums, Task

ACCURACY = ScoreKind("accuracy", "Accuracy")
LABEL_ACCURACY = ScoreKind("label_accuracy", "Label accuracy")
WORST_GROUP = ScoreKind("worst_group_accuracy", "Worst-group accuracy")
ATTRIBUTES = 2  # values of the attribute: an image has it, or it has not


class _ByImage(Task):
    """A task whose primary score counts every image once."""

    can_score: ClassVar[tuple[str, ...]] = OF_CLASSES

    def counts_images(self, name: str) -> bool:
        return name == self.score.name

    def sums(self, logits: torch.Tensor, targets: torch.Tensor) -> Mapping[str, Sum]:
        """Return the sum of the primary score over the images, and B."""
        return {self.score.name: Sum(self.each(logits, targets).sum(), len(targets))}

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

    def summary(self, sums: Sums, counts: Counts) -> dict[str, Bounded]:
        """Leave F1 out if images of some class are withheld, of which it is not known what they are taken for."""
        found = super().summary(sums, counts)
        if CONFUSION in counts and counts[CONFUSION].sum() < sums[ACCURACY.name][1]:
            return {name: one for name, one in found.items() if not name.startswith("f1")}
        return found

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


@dataclass(frozen=True)
class GroupClassification(Classification):
    """One class per image, and an attribute, not to be learned, by which evaluations are divided into 2 Y groups.

    A network that decides by what usually goes with a class is right on most images and wrong on the few where it does
    not. The accuracy of the worst group shows this, the accuracy over all images does not.

    Reference: Sagawa, Koh, Hashimoto, Liang, "Distributionally Robust Neural Networks for Group Shifts", ICLR 2020.

    Scores (:meth:`sums`): ``accuracy``, as in classification; and ``accuracy_<label>_<attribute>`` for each group of
    which there is an image: how many of its images are classified correctly, and how many there are.
    """

    derived_kinds: ClassVar[tuple[ScoreKind, ...]] = (WORST_GROUP,)
    report: ClassVar[str | None] = REPORT_GROUPS

    name: str = "group_classification"

    def sums(self, logits: torch.Tensor, targets: torch.Tensor) -> Mapping[str, Sum]:
        labels, attributes = targets.unbind(dim=1)
        correct = logits.argmax(dim=1) == labels
        sums = dict(super().sums(logits, labels))
        for name, (label, attribute) in _groups(logits.shape[1]).items():
            members = (labels == label) & (attributes == attribute)
            sums[name] = Sum((correct & members).sum(), members.sum())
        return sums

    def kinds(self, num_classes: int) -> tuple[ScoreKind, ...]:
        return (ACCURACY, *(ScoreKind(name, name, always=False) for name in _groups(num_classes)))

    def complaint(self, sums: Sums, images: int, num_classes: int) -> str | None:
        """Every image is of one group, so images and correct images add up to those of the accuracy."""
        if (found := super().complaint(sums, images, num_classes)) is not None:
            return found
        groups = _of_groups(sums).values()
        added = tuple(sum(one[place] for one in groups) for place in (0, 1))
        if added != sums[ACCURACY.name] or any(correct % 1 for correct, _ in groups):
            return "the images of its groups do not add up to those of its accuracy"
        return None

    def summary(self, sums: Sums, counts: Counts) -> dict[str, Bounded]:
        each = [correct / count for correct, count in _of_groups(sums).values()]
        return ({WORST_GROUP.name: exactly(min(each))} if each else {}) | super().summary(sums, counts)

    def remarks(self, sums: Sums, counts: Counts, classes: Sequence[str]) -> tuple[str, ...]:
        groups = {name: f"class {classes[at]}, attribute {one}" for name, (at, one) in _groups(len(classes)).items()}
        missing, found = [words for name, words in groups.items() if name not in sums], _of_groups(sums)
        remarks = [f"no image of {', nor of '.join(missing)}"] if missing else []
        if found:
            name, (correct, images) = min(found.items(), key=lambda one: one[1][0] / one[1][1])
            worst = f"{groups[name]} ({WORST_GROUP.text(correct / images)} of {images:,} images)"
            remarks = [f"worst group {worst}", *remarks]
        return (*remarks, *super().remarks(sums, counts, classes))


CLASSIFICATION = Classification()
MULTILABEL = MultiLabel()
GROUP_CLASSIFICATION = GroupClassification()


def _of_groups(sums: Sums) -> dict[str, SumAndCount]:
    return {name: one for name, one in sums.items() if name.startswith(f"{ACCURACY.name}_")}


def _groups(num_classes: int) -> dict[str, tuple[int, int]]:
    """Return label and attribute of each group, by the name of its score."""
    pairs = product(range(num_classes), range(ATTRIBUTES))
    return {f"{ACCURACY.name}_{label}_{attribute}": (label, attribute) for label, attribute in pairs}
