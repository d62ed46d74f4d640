# SPDX-License-Identifier: Apache-2.0
"""Classification, also evaluated by its worst group: a class with an attribute that is not to be learned.

A network that decides by what usually goes with a class is right on most images and wrong on the few where it does not.
The accuracy of the worst group shows this, the accuracy over all images does not.

Reference: Sagawa, Koh, Hashimoto, Liang, "Distributionally Robust Neural Networks for Group Shifts", ICLR 2020.

Shapes: logits ``[B, Y]``; labels ``[B]`` int64 in training; in an evaluation label and attribute, ``[B, 2]`` int64,
with attributes in {0, 1}. So no loss and no method ever receives an attribute. The groups are the 2 Y pairs.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch

from fdg_plugins.plugins.reports import REPORT_GROUPS
from fdg_plugins.tasks.classification import ACCURACY, Classification
from fdg_plugins.tasks.score import ScoreKind, Sum
from fdg_plugins.tasks.task import SumAndCount

ATTRIBUTES = 2  # values of the attribute: an image has it, or it has not

WORST_GROUP = ScoreKind("worst_group_accuracy", "Worst-group accuracy")


@dataclass(frozen=True)
class GroupClassification(Classification):
    """One class per image, and an attribute by which evaluations are divided.

    Scores (:meth:`sums`): ``accuracy``, as in classification; and ``accuracy_<label>_<attribute>`` for each group of
    which there is an image: how many of its images are classified correctly, and how many there are.
    """

    derived_kinds: ClassVar[tuple[ScoreKind, ...]] = (WORST_GROUP,)
    report: ClassVar[str | None] = REPORT_GROUPS

    name: str = "group_classification"

    def loss(self, logits: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        return super().loss(logits, labels_of(targets))

    def summed_loss(self, logits: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        return super().summed_loss(logits, labels_of(targets))

    def sums(self, logits: torch.Tensor, targets: torch.Tensor) -> Mapping[str, Sum]:
        labels, attributes = targets.unbind(dim=1)
        correct = logits.argmax(dim=1) == labels
        sums = dict(super().sums(logits, labels))
        for label, attribute, name in _groups(logits.shape[1]):
            members = (labels == label) & (attributes == attribute)
            sums[name] = Sum((correct & members).sum(), members.sum())
        return sums

    def counts(self, logits: torch.Tensor, targets: torch.Tensor) -> Mapping[str, torch.Tensor]:
        return super().counts(logits, labels_of(targets))

    def kinds(self, num_classes: int) -> tuple[ScoreKind, ...]:
        groups = _groups(num_classes)
        return (ACCURACY, *(ScoreKind(name, f"Accuracy of class {y}, attribute {a}") for y, a, name in groups))

    def may_lack(self, num_classes: int) -> frozenset[str]:
        return frozenset(name for _, _, name in _groups(num_classes))

    def complaint(self, sums: Mapping[str, SumAndCount], images: int, num_classes: int) -> str | None:
        """Every image is of one group, so images and correct images add up to those of the accuracy."""
        if (found := super().complaint(sums, images, num_classes)) is not None:
            return found
        groups = [one for name, one in sums.items() if name != ACCURACY.name]
        if any(not float(correct).is_integer() for correct, _ in groups):
            return "its correct images of a group are not a whole number"
        for what, position in (("correct images", 0), ("images", 1)):
            total, expected = sum(one[position] for one in groups), sums[ACCURACY.name][position]
            if total != expected:
                return f"its groups have {total:g} {what}, expected {expected:g}, as many as its accuracy"
        return None

    def derived(self, sums: Mapping[str, SumAndCount]) -> Mapping[str, float]:
        each = [correct / count for name, (correct, count) in sums.items() if name != ACCURACY.name]
        return {WORST_GROUP.name: min(each)} if each else {}

    def left_out(self, sums: Mapping[str, SumAndCount], classes: Sequence[str]) -> tuple[str, ...]:
        """Return the groups that have no image, in words, such as ``class blond, attribute 1``."""
        return tuple(
            f"class {classes[label]}, attribute {attribute}"
            for label, attribute, name in _groups(len(classes))
            if name not in sums
        )

    def remarks(self, sums: Mapping[str, SumAndCount], classes: Sequence[str]) -> tuple[str, ...]:
        missing = self.left_out(sums, classes)
        absent = (f"no image of {', nor of '.join(missing)}",) if missing else ()
        judged = [one for one in _groups(len(classes)) if one[2] in sums]
        if not judged:
            return absent
        label, attribute, name = min(judged, key=lambda one: sums[one[2]][0] / sums[one[2]][1])
        correct, images = sums[name]
        value = WORST_GROUP.text(correct / images)
        return (f"worst group class {classes[label]}, attribute {attribute} ({value} of {images:,} images)", *absent)

    def samples_of(self, features: torch.Tensor, targets: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return features, labels_of(targets)


GROUP_CLASSIFICATION = GroupClassification()


def labels_of(targets: torch.Tensor) -> torch.Tensor:
    """Return the labels ``[B]`` among targets ``[B]``, or ``[B, 2]``: labels and attributes."""
    return targets if targets.dim() == 1 else targets[:, 0]


def _groups(num_classes: int) -> Iterator[tuple[int, int, str]]:
    """Yield label, attribute and the name of the score of each group."""
    for label in range(num_classes):
        for attribute in range(ATTRIBUTES):
            yield label, attribute, f"{ACCURACY.name}_{label}_{attribute}"
