# SPDX-License-Identifier: Apache-2.0
"""Segmentation: one class per pixel, Dice loss with cross entropy, and the Dice score per image.

Shapes: images ``[B, C, *S]`` with S = (H, W), or (H, W, Z) for volumes; logits ``[B, *S, Y]``; masks ``[B, *S]``,
int64, with class numbers; class 0 is the background. Each pixel (voxel) is a sample.

Loss, Dice and sliding windows are MONAI's (the extra ``medical``), which is imported when they are used.
"""

import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, ClassVar

import torch
from torch.nn.functional import pad

from fdg_plugins.errors import load_extra
from fdg_plugins.tasks.score import ScoreKind, Sum
from fdg_plugins.tasks.task import SumAndCount, Task

DICE = ScoreKind("dice", "Dice")
POOLED_DICE = ScoreKind("pooled_dice", "Pooled Dice")
HAUSDORFF = ScoreKind(
    "hausdorff_95", "Hausdorff distance at 95 %, pixels", highest=1e6, higher_is_better=False, percent=False
)

SIDE = 16  # networks here halve the sides up to four times
OVERLAP = 0.25
WINDOWS = 4  # computed at once

_KINDS_OF_VOXELS = ("true_positives", "false_positives", "false_negatives")


@dataclass(frozen=True)
class Segmentation(Task):
    """One class per pixel.

    Scores (:meth:`sums`): ``dice``, the mean over the foreground classes of each image's Dice; if there are several,
    also ``dice_<class number>`` for each; and per foreground class ``true_positives_<class number>``,
    ``false_positives_<class number>`` and ``false_negatives_<class number>`` in voxels. An image without a class, in
    truth and prediction, has a Dice of 1 for it, and of 0 if the class is in one of the two; so every image counts.
    If asked for, also ``hausdorff_95_<class number>``: the distance within which 95 % of either boundary's pixels are
    of the other, in pixels of the network's input, over the images that have the class in truth and prediction.
    """

    one_class_per_image: ClassVar[bool] = False
    by_pixel: ClassVar[bool] = True
    weighs_classes_equally: ClassVar[bool] = True
    packages: ClassVar[tuple[str, ...]] = ("monai",)
    derived_kinds: ClassVar[tuple[ScoreKind, ...]] = (POOLED_DICE,)
    can_score: ClassVar[tuple[str, ...]] = (HAUSDORFF.name,)
    loss_name: ClassVar[str] = "Dice loss + cross entropy"

    name: str = "segmentation"
    score: ScoreKind = DICE

    # --- logits, loss and score ---

    def logits(
        self, model: Callable[[torch.Tensor], torch.Tensor], images: torch.Tensor, size: int | None = None
    ) -> torch.Tensor:
        """Return the channels-last output of ``model`` for images ``[B, C, *S]``.

        If a side is longer than ``size``, the output is put together from overlapping windows with sides of ``size``,
        weighted by a Gaussian. Otherwise the sides are padded with zeros, half of them on either side, to ``size``, as
        in training and in windows, or without it to the next multiples of 16; and the output is cut back.
        """
        sides = images.shape[2:]
        if size is not None and max(sides) > size:
            return _windows(size)(images, lambda part: model(part).movedim(-1, 1)).movedim(1, -1)
        missing = [-side % SIDE if size is None else size - side for side in sides]
        if not any(missing):
            return model(images)
        ends = [(one // 2, one - one // 2) for one in missing]
        padded = pad(images, [end for pair in reversed(ends) for end in pair])
        cut = (slice(before, before + side) for (before, _), side in zip(ends, sides, strict=True))
        return model(padded)[(slice(None), *cut)]

    def loss(self, logits: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        """Return the mean Dice loss over images and classes, background included, plus the mean cross entropy."""
        return _dice_ce()(logits.movedim(-1, 1), targets.unsqueeze(1))

    def summed_loss(self, logits: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        """Return B times the loss; Dice is computed per image, so sums of batches add up exactly."""
        return self.loss(logits, targets) * len(targets)

    @torch.no_grad()
    def sums(self, logits: torch.Tensor, targets: torch.Tensor) -> Mapping[str, Sum]:
        """Return the Dice of logits ``[B, *S, Y]`` and masks over images, and the voxels by outcome over all voxels."""
        classes, found = logits.shape[-1], logits.argmax(dim=-1)
        each = _monai("metrics").compute_dice(
            *(part.unsqueeze(1) for part in (found, targets)),
            **{"include_background": False, "ignore_empty": False, "num_classes": classes},
        )
        each = each.double()
        sums = {DICE.name: Sum(each.mean(dim=1).sum(), len(targets))}
        sums |= {name: Sum(each[:, number - 1].sum(), len(targets)) for number, name in _by_class("dice", classes)}
        for number in range(1, classes):
            predicted, true = found == number, targets == number
            outcomes = (predicted & true, predicted & ~true, ~predicted & true)
            for kind, outcome in zip(_KINDS_OF_VOXELS, outcomes, strict=True):
                sums[f"{kind}_{number}"] = Sum(outcome.sum(), targets.numel())
            if HAUSDORFF.name in self.scores:
                sums[f"{HAUSDORFF.name}_{number}"] = _hausdorff(predicted, true)
        return sums

    def kind_asked(self, name: str) -> ScoreKind | None:
        return HAUSDORFF if name == HAUSDORFF.name else None

    def may_lack(self, num_classes: int) -> frozenset[str]:
        return frozenset(f"{HAUSDORFF.name}_{number}" for number in range(1, num_classes))

    def kinds(self, num_classes: int) -> tuple[ScoreKind, ...]:
        numbers = [number for number, _ in _by_class("dice", num_classes)]
        of_voxels = [(kind, number) for number in range(1, num_classes) for kind in _KINDS_OF_VOXELS]
        asked = [(name, number) for name in self.scores for number in range(1, num_classes)]
        each = [*(("dice", number) for number in numbers), *of_voxels]
        distances = (replace(HAUSDORFF, name=f"{name}_{number}") for name, number in asked)
        named = (ScoreKind(f"{kind}_{n}", f"{kind.replace('_', ' ').capitalize()} of class {n}") for kind, n in each)
        return (DICE, *named, *distances)

    def complaint(self, sums: Mapping[str, SumAndCount], images: int, num_classes: int) -> str | None:
        """Dice is over images; voxels are whole numbers over one count, each with one true and one predicted class."""
        if (found := super().complaint(sums, images, num_classes)) is not None:
            return found
        for name, (_, count) in sums.items():
            if name.startswith(DICE.name) and count != images:
                return f"its {name} is over {count} images, expected {images}"
            if name.startswith(HAUSDORFF.name) and count > images:
                return f"its {name} is over {count} images, expected at most {images}"
        counts = {count for name, (_, count) in sums.items() if not name.startswith((DICE.name, HAUSDORFF.name))}
        return _wrong_voxels(_voxels(sums), counts, images)

    def derived(self, sums: Mapping[str, SumAndCount]) -> Mapping[str, float]:
        """Return the pooled Dice, ``2 TP / (2 TP + FP + FN)`` over all voxels, as the mean over foreground classes.

        A class that is nowhere, in truth and prediction, has 1. The Hausdorff distance is the mean over classes that
        have one.
        """
        each = [
            2 * hit / (2 * hit + false + missed) if hit + false + missed else 1.0
            for hit, false, missed in _voxels(sums)
        ]
        found = {POOLED_DICE.name: sum(each) / len(each)}
        distances = [total / count for name, (total, count) in sums.items() if name.startswith(HAUSDORFF.name)]
        return found | ({HAUSDORFF.name: sum(distances) / len(distances)} if distances else {})

    def remarks(self, sums: Mapping[str, SumAndCount], classes: Sequence[str]) -> tuple[str, ...]:
        """Return over how many images the Hausdorff distance of each class is, if not over all."""
        counts = {number: sums.get(f"{HAUSDORFF.name}_{number}", (0, 0))[1] for number in range(1, len(classes))}
        images = sums[DICE.name][1]
        few = [f"{count} of {classes[number]}" for number, count in counts.items() if count < images]
        return (f"Hausdorff distance over {', '.join(few)} of {images} images",) if self.scores and few else ()

    # --- how methods read a network ---

    def samples_of(self, features: torch.Tensor, targets: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return features.flatten(0, -2), targets.flatten()

    # --- data ---

    def class_counts(self, images: Iterable[Any], num_classes: int) -> tuple[int, ...]:
        """Return an upper bound, the number of images, for every class: counting would mean reading every mask."""
        return (len(list(images)),) * num_classes


SEGMENTATION = Segmentation()


def _by_class(prefix: str, classes: int) -> list[tuple[int, str]]:
    """Return number and score of each foreground class; of a single one there is nothing to tell apart."""
    return [(number, f"{prefix}_{number}") for number in range(1, classes)] if classes > 2 else []


def _voxels(sums: Mapping[str, SumAndCount]) -> list[tuple[float, ...]]:
    """Return true positives, false positives and false negatives of each foreground class."""
    classes = sum(name.startswith(_KINDS_OF_VOXELS[0]) for name in sums)
    return [tuple(sums[f"{kind}_{number}"][0] for kind in _KINDS_OF_VOXELS) for number in range(1, classes + 1)]


def _hausdorff(predicted: torch.Tensor, true: torch.Tensor) -> Sum:
    """Return the distances of boundaries summed over the images ``[B, *S]`` that have both, and their number."""
    both = (predicted.flatten(1).any(dim=1) & true.flatten(1).any(dim=1)).nonzero().flatten()
    if not len(both):
        return Sum(0.0, 0)
    masks = {name: mask[both].unsqueeze(1).float() for name, mask in (("y_pred", predicted), ("y", true))}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # of MONAI 1.5, about an argument of its own
        each = _monai("metrics").compute_hausdorff_distance(**masks, include_background=True, percentile=95)
    return Sum(each.double().sum(), len(both))


def _wrong_voxels(voxels: Sequence[Sequence[float]], counts: set[int], images: int) -> str | None:
    if len(counts) != 1 or min(counts) < images:
        return f"its voxels are counted over {sorted(counts)}, expected one number of at least {images}"
    if any(not float(one).is_integer() for outcomes in voxels for one in outcomes):
        return "its voxels by outcome are not whole numbers"
    true = sum(hit + missed for hit, _, missed in voxels)
    predicted = sum(hit + false for hit, false, _ in voxels)
    if max(true, predicted) > min(counts):
        return f"its voxels of all classes are {max(true, predicted):g}, expected at most {min(counts)}"
    return None


def _monai(module: str) -> Any:
    return load_extra(f"monai.{module}", "task 'segmentation'")


@cache
def _dice_ce() -> Any:
    return _monai("losses").DiceCELoss(to_onehot_y=True, softmax=True, batch=False)


@cache
def _windows(size: int) -> Any:
    return _monai("inferers").SlidingWindowInferer(size, sw_batch_size=WINDOWS, overlap=OVERLAP, mode="gaussian")
