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
from itertools import product
from typing import ClassVar

import torch

from fdg_plugins.plugins.reports import REPORT_GROUPS
from fdg_plugins.tasks.classification import ACCURACY, Classification
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
        for label, attribute, name in _groups(logits.shape[1]):
            members = (labels == label) & (attributes == attribute)
            sums[name] = Sum((correct & members).sum(), members.sum())
        return sums

    def kinds(self, num_classes: int) -> tuple[ScoreKind, ...]:
        titles = {name: f"Accuracy of class {label}, attribute {one}" for label, one, name in _groups(num_classes)}
        return (ACCURACY, *(ScoreKind(name, title, always=False) for name, title in titles.items()))

    def complaint(self, sums: Sums, images: int, num_classes: int) -> str | None:
        """Every image is of one group, so images and correct images add up to those of the accuracy."""
        if (found := super().complaint(sums, images, num_classes)) is not None:
            return found
        groups = _of_groups(sums).values()
        added = tuple(sum(one[place] for one in groups) for place in (0, 1))
        if added != sums[ACCURACY.name] or any(correct % 1 for correct, _ in groups):
            return "the images of its groups do not add up to those of its accuracy"
        return None

    def derived(self, sums: Sums) -> Mapping[str, float]:
        each = [correct / count for correct, count in _of_groups(sums).values()]
        return {WORST_GROUP.name: min(each)} if each else {}

    def remarks(self, sums: Sums, classes: Sequence[str]) -> tuple[str, ...]:
        words = {name: f"class {classes[label]}, attribute {one}" for label, one, name in _groups(len(classes))}
        missing, found = [words[name] for name in words if name not in sums], _of_groups(sums)
        absent = (f"no image of {', nor of '.join(missing)}",) if missing else ()
        if not found:
            return absent
        name, (correct, images) = min(found.items(), key=lambda one: one[1][0] / one[1][1])
        return (f"worst group {words[name]} ({WORST_GROUP.text(correct / images)} of {images:,} images)", *absent)


GROUP_CLASSIFICATION = GroupClassification()


def _of_groups(sums: Sums) -> dict[str, SumAndCount]:
    return {name: one for name, one in sums.items() if name.startswith(f"{ACCURACY.name}_")}


def _groups(num_classes: int) -> Iterator[tuple[int, int, str]]:
    """Yield label, attribute and the name of the score of each group."""
    for label, attribute in product(range(num_classes), range(ATTRIBUTES)):
        yield label, attribute, f"{ACCURACY.name}_{label}_{attribute}"
