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
from fdg_plugins.tasks.counts import Bounded, Counts, exactly, mean_from, mean_of
from fdg_plugins.tasks.score import ScoreKind, Sum
from fdg_plugins.tasks.task import Sums, Task

DICE = ScoreKind("dice", "Dice")
POOLED_DICE = ScoreKind("pooled_dice", "Pooled Dice")
HAUSDORFF = ScoreKind(
    "hausdorff_95",
    "Hausdorff distance at 95 %, pixels",
    highest=1e6,
    higher_is_better=False,
    percent=False,
    always=False,
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
    of the other, in pixels of the network's input, over the images that have the class in truth and prediction; and
    the sums of the squares, ``squared_dice`` and ``squared_hausdorff_95_<class number>``, for standard errors.
    """

    one_class_per_image: ClassVar[bool] = False
    by_pixel: ClassVar[bool] = True
    packages: ClassVar[tuple[str, ...]] = ("monai",)
    derived_kinds: ClassVar[tuple[ScoreKind, ...]] = (POOLED_DICE,)
    can_score: ClassVar[tuple[str, ...]] = (HAUSDORFF.name,)

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
        several = range(1, classes) if classes > 2 else ()  # of a single class there is nothing to tell apart
        sums |= {f"{DICE.name}_{number}": Sum(each[:, number - 1].sum(), len(targets)) for number in several}
        for number in range(1, classes):
            predicted, true = found == number, targets == number
            outcomes = (predicted & true, predicted & ~true, ~predicted & true)
            for kind, outcome in zip(_KINDS_OF_VOXELS, outcomes, strict=True):
                sums[f"{kind}_{number}"] = Sum(outcome.sum(), targets.numel())
            if self.scores:
                distances = _hausdorff(predicted, true)
                sums[f"{HAUSDORFF.name}_{number}"] = Sum(distances.sum(), len(distances))
                sums[f"squared_{HAUSDORFF.name}_{number}"] = Sum(distances.square().sum(), len(distances))
        if self.scores:
            sums[f"squared_{DICE.name}"] = Sum(each.mean(dim=1).square().sum(), len(targets))
        return sums

    def counts_images(self, name: str) -> bool:
        return name.removeprefix("squared_").startswith(DICE.name)

    def kind_asked(self, name: str) -> ScoreKind | None:
        return HAUSDORFF if name == HAUSDORFF.name else None

    def kinds(self, num_classes: int) -> tuple[ScoreKind, ...]:
        numbers = range(1, num_classes)
        named = [f"{DICE.name}_{number}" for number in numbers if num_classes > 2]
        named += [f"{kind}_{number}" for number in numbers for kind in _KINDS_OF_VOXELS]
        found = [DICE, *(ScoreKind(name, name) for name in named)]
        if self.scores:
            distances = [replace(HAUSDORFF, name=f"{HAUSDORFF.name}_{number}") for number in numbers]
            squares = [replace(one, name=f"squared_{one.name}", highest=one.highest**2) for one in (*distances, DICE)]
            found += [*distances, *squares]
        return tuple(found)

    def complaint(self, sums: Sums, images: int, num_classes: int) -> str | None:
        """Voxels are whole numbers over one count, each with one true and one predicted class."""
        if (found := super().complaint(sums, images, num_classes)) is not None:
            return found
        if any(count > images for name, (_, count) in sums.items() if HAUSDORFF.name in name):
            return f"its {HAUSDORFF.name} is over more than {images} images"
        counts = {count for name, (_, count) in sums.items() if name.startswith(_KINDS_OF_VOXELS)}
        hit, false, missed = zip(*_voxels(sums), strict=True)
        whole = not any(one % 1 for one in (*hit, *false, *missed))
        if len(counts) > 1 or not whole or max(sum(hit + missed), sum(hit + false)) > min(counts):
            return "its voxels by outcome contradict each other"
        return None

    def summary(self, sums: Sums, counts: Counts) -> dict[str, Bounded]:
        """Add the pooled Dice, ``2 TP / (2 TP + FP + FN)`` over all voxels, as the mean over foreground classes.

        A class that is nowhere, in truth and prediction, has 1. The Hausdorff distance is the mean over classes that
        have one. Standard errors follow from the sums of squares, if there are any.
        """
        voxels = _voxels(sums)
        each = [2 * hit / (2 * hit + false + missed) if hit + false + missed else 1.0 for hit, false, missed in voxels]
        found = super().summary(sums, counts) | {POOLED_DICE.name: exactly(sum(each) / len(each))}
        for kind in (DICE, HAUSDORFF):
            parts = [name for name in sums if name.startswith(kind.name) and f"squared_{name}" in sums]
            if (mean := mean_of([mean_from(*sums[one], sums[f"squared_{one}"][0]) for one in parts])) is not None:
                found[kind.name] = mean
        return found

    def remarks(self, sums: Sums, counts: Counts, classes: Sequence[str]) -> tuple[str, ...]:
        """Add over how many images the Hausdorff distance of each class is, if not over all."""
        remarks, images = super().remarks(sums, counts, classes), sums[DICE.name][1]
        over = {one: sums.get(f"{HAUSDORFF.name}_{number}", (0, 0))[1] for number, one in enumerate(classes) if number}
        few = [f"{count} of {name}" for name, count in over.items() if count < images]
        told = (f"Hausdorff distance over {', '.join(few)} of {images} images",) if self.scores and few else ()
        return told + remarks

    # --- how methods read a network ---

    def samples_of(self, features: torch.Tensor, targets: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return features.flatten(0, -2), targets.flatten()

    # --- data ---

    def class_counts(self, images: Iterable[Any], num_classes: int) -> tuple[int, ...]:
        """Return an upper bound, the number of images, for every class: counting would mean reading every mask."""
        return (len(list(images)),) * num_classes


SEGMENTATION = Segmentation()


def _voxels(sums: Sums) -> list[tuple[float, ...]]:
    """Return true positives, false positives and false negatives of each foreground class."""
    classes = sum(name.startswith(_KINDS_OF_VOXELS[0]) for name in sums)
    return [tuple(sums[f"{kind}_{number}"][0] for kind in _KINDS_OF_VOXELS) for number in range(1, classes + 1)]


def _hausdorff(predicted: torch.Tensor, true: torch.Tensor) -> torch.Tensor:
    """Return the distance of the boundaries of each of the images ``[B, *S]`` that have both, float64."""
    both = (predicted.flatten(1).any(dim=1) & true.flatten(1).any(dim=1)).nonzero().flatten()
    if not len(both):
        return torch.zeros(0, dtype=torch.float64)
    masks = {name: mask[both].unsqueeze(1).float() for name, mask in (("y_pred", predicted), ("y", true))}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # of MONAI 1.5, about an argument of its own
        found = _monai("metrics").compute_hausdorff_distance(**masks, include_background=True, percentile=95)
    return torch.as_tensor(found).double().flatten()


def _monai(module: str) -> Any:
    return load_extra(f"monai.{module}", "task 'segmentation'")


@cache
def _dice_ce() -> Any:
    return _monai("losses").DiceCELoss(to_onehot_y=True, softmax=True, batch=False)


@cache
def _windows(size: int) -> Any:
    return _monai("inferers").SlidingWindowInferer(size, sw_batch_size=WINDOWS, overlap=OVERLAP, mode="gaussian")
