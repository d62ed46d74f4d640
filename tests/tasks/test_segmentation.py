# SPDX-License-Identifier: Apache-2.0
"""Segmentation: loss, scores and windows against plain loops, and MONAI imported only when it is used."""

import pytest
import torch

from fdg_plugins.tasks import SEGMENTATION, Accumulator
from fdg_plugins.tasks.task import SumAndCount

CPU = torch.device("cpu")


def batch(count: int = 6, classes: int = 3, sides: tuple[int, ...] = (8, 6)) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(7)
    logits = torch.randn(count, *sides, classes, generator=generator)
    return logits, torch.randint(classes, (count, *sides), generator=generator)


def dice_of(found: torch.Tensor, true: torch.Tensor, label: int) -> float:
    one, two = found == label, true == label
    total = int(one.sum() + two.sum())
    return 2 * int((one & two).sum()) / total if total else 1.0


def accumulated(logits: torch.Tensor, masks: torch.Tensor, sizes: list[int]) -> Accumulator:
    found = Accumulator(SEGMENTATION, CPU)
    for part, own in zip(logits.split(sizes), masks.split(sizes), strict=True):
        found.add(part, own)
    return found


def sums_of(logits: torch.Tensor, masks: torch.Tensor) -> dict[str, SumAndCount]:
    return dict(accumulated(logits, masks, [len(masks)]).score().sums)


@pytest.mark.parametrize("sides", [(8, 6), (4, 4, 4)])
def test_the_loss_is_that_of_the_definition(sides: tuple[int, ...]) -> None:
    logits, masks = batch(sides=sides)
    chances = logits.double().softmax(dim=-1)
    one_hot = torch.nn.functional.one_hot(masks, 3).double()
    inner = tuple(range(1, logits.ndim - 1))
    overlap = (2 * (chances * one_hot).sum(inner) + 1e-5) / (chances.sum(inner) + one_hot.sum(inner) + 1e-5)
    entropy = -(chances.log() * one_hot).sum(dim=-1).mean()
    expected = (1 - overlap).mean() + entropy
    assert torch.allclose(SEGMENTATION.loss(logits.double(), masks), expected)
    each = [SEGMENTATION.loss(logits[i : i + 1], masks[i : i + 1]) for i in range(len(masks))]
    assert torch.allclose(SEGMENTATION.summed_loss(logits, masks), torch.stack(each).sum())


@pytest.mark.parametrize("sizes", [[6], [1] * 6, [4, 2]])
@pytest.mark.parametrize("classes", [2, 3])
def test_scores_are_those_of_a_loop_however_the_images_are_batched(sizes: list[int], classes: int) -> None:
    logits, masks = batch(classes=classes)
    score = accumulated(logits, masks, sizes).score()
    found, foreground = logits.argmax(dim=-1), range(1, classes)
    each = {c: sum(dice_of(one, two, c) for one, two in zip(found, masks, strict=True)) for c in foreground}
    assert score.sums["dice"] == pytest.approx((sum(each.values()) / len(each), 6), rel=1e-6)
    for label in foreground:
        hits = int(((found == label) & (masks == label)).sum())
        assert score.sums[f"true_positives_{label}"] == (hits, masks.numel())
        assert score.sums[f"false_positives_{label}"] == (int((found == label).sum()) - hits, masks.numel())
        assert score.sums[f"false_negatives_{label}"] == (int((masks == label).sum()) - hits, masks.numel())
        if classes > 2:
            assert score.sums[f"dice_{label}"] == pytest.approx((each[label], 6), rel=1e-6)
    assert list(score.sums) == [kind.name for kind in SEGMENTATION.kinds(classes)]
    assert SEGMENTATION.complaint(score.sums, 6, classes) is None
    pooled = sum(dice_of(found, masks, label) for label in foreground) / len(foreground)
    assert SEGMENTATION.summary(score.sums, {})["pooled_dice"].value == pytest.approx(pooled)
    assert [kind.title for kind in SEGMENTATION.derived_kinds] == ["Pooled Dice"]


@pytest.mark.parametrize(("found", "true", "dice"), [(0, 0, 1.0), (0, 1, 0.0), (1, 0, 0.0), (1, 1, 1.0)])
def test_an_image_without_the_class_counts(found: int, true: int, dice: float) -> None:
    logits = torch.nn.functional.one_hot(torch.full((1, 4, 4), found), 2).float()
    sums = sums_of(logits, torch.full((1, 4, 4), true))
    assert sums["dice"] == (dice, 1)
    assert SEGMENTATION.summary(sums, {})["pooled_dice"].value == dice


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *(("dice", value) for value in ((3.0, 5), (7.0, 6), (float("nan"), 6))),
        *(("true_positives_1", value) for value in ((3.0, 289), (3.5, 288))),
        *(("dice_2", (3.0, 7)), ("volume", (1.0, 1)), ("false_positives_1", (288.0, 288))),
    ],
)
def test_scores_that_cannot_be_are_refused(name: str, value: SumAndCount) -> None:
    assert SEGMENTATION.complaint({**sums_of(*batch()), name: value}, 6, 3)


@pytest.mark.parametrize("sides", [(16, 32), (17, 30), (5, 3), (16, 20, 7)])
def test_images_are_padded_for_the_network_and_the_logits_cut_back(sides: tuple[int, ...]) -> None:
    seen: list[tuple[int, ...]] = []

    def model(images: torch.Tensor) -> torch.Tensor:
        seen.append(tuple(images.shape[2:]))
        return images.movedim(1, -1)

    images = torch.rand(2, 3, *sides)
    for size in (32, None):
        assert torch.equal(SEGMENTATION.logits(model, images, size), images.movedim(1, -1))
    assert seen[0] == (32,) * len(sides), "as in training and in windows"
    assert all(side % 16 == 0 for side in seen[1])


@pytest.mark.parametrize("sides", [(40, 20), (33, 70), (40, 20, 33)])
def test_larger_images_are_put_together_from_windows(sides: tuple[int, ...]) -> None:
    seen: set[tuple[int, ...]] = set()

    def model(images: torch.Tensor) -> torch.Tensor:
        seen.add(tuple(images.shape[2:]))
        return torch.cat([images, images**2], dim=1).movedim(1, -1)

    images = torch.rand(2, 1, *sides)
    found = SEGMENTATION.logits(model, images, 32)
    assert seen == {(32,) * len(sides)}
    assert torch.allclose(found, model(images), atol=1e-5)  # every window says the same about a pixel
