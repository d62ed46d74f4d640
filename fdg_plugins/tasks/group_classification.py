# SPDX-License-Identifier: Apache-2.0
"""Classification, also evaluated by its worst group: a class with an attribute that is not to be learned.

A network that decides by what usually goes with a class is right on most images and wrong on the few where it does not.
The accuracy of the worst group shows this, the accuracy over all images does not.

Reference: Sagawa, Koh, Hashimoto, Liang, "Distributionally Robust Neural Networks for Group Shifts", ICLR 2020.

Shapes: logits ``[B, Y]``; labels ``[B]`` int64 in training; in an evaluation label and attribute, ``[B, 2]`` int64,
with attributes in {0, 1}. So no loss and no method ever receives an attribute. The groups are the 2 Y pairs.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import ClassVar

import torch

from fdg_plugins.plugins.reports import REPORT_GROUPS
from fdg_plugins.tasks.classification import ACCURACY, Classification
from fdg_plugins.tasks.counts import Bounded, Counts, exactly
from fdg_plugins.tasks.score import ScoreKind, Sum
from fdg_plugins.tasks.task import SumAndCount, Sums

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


GROUP_CLASSIFICATION = GroupClassification()


def _of_groups(sums: Sums) -> dict[str, SumAndCount]:
    return {name: one for name, one in sums.items() if name.startswith(f"{ACCURACY.name}_")}


def _groups(num_classes: int) -> dict[str, tuple[int, int]]:
    """Return label and attribute of each group, by the name of its score."""
    pairs = product(range(num_classes), range(ATTRIBUTES))
    return {f"{ACCURACY.name}_{label}_{attribute}": (label, attribute) for label, attribute in pairs}
