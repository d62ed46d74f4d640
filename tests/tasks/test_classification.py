# SPDX-License-Identifier: Apache-2.0
"""The first task, its score, and the sums of which a score is made."""

import math
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch.nn.functional import cross_entropy

from fdg_plugins.errors import SettingsError
from fdg_plugins.tasks import CLASSIFICATION, DEFAULT_TASK, TASKS, Accumulator, ScoreKind

CPU = torch.device("cpu")


@pytest.mark.parametrize("changes", [{"title": 3}, {"percent": "yes"}, {"lowest": 1.0}, {"highest": math.nan}])
def test_a_score_is_refused_with_a_wrong_field(changes: dict[str, Any]) -> None:
    with pytest.raises(SettingsError):
        ScoreKind(**{"name": "mine", "title": "Mine", **changes})


def batch(count: int = 14, classes: int = 4) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(7)
    logits = torch.randn(count, classes, generator=generator)
    return logits, torch.randint(classes, (count,), generator=generator)


def test_the_loss_is_the_cross_entropy_and_the_sum_is_that_of_its_images() -> None:
    logits, labels = batch()
    assert torch.equal(CLASSIFICATION.loss(logits, labels), cross_entropy(logits, labels))
    each = torch.stack([CLASSIFICATION.loss(logits[i : i + 1], labels[i : i + 1]) for i in range(len(labels))])
    assert torch.allclose(CLASSIFICATION.summed_loss(logits, labels), each.sum())


@pytest.mark.parametrize("sizes", [[14], [1] * 14, [5, 5, 4]])
def test_a_score_is_that_of_all_images_however_they_are_batched(sizes: list[int]) -> None:
    logits, labels = batch()
    found = Accumulator(CLASSIFICATION, CPU)
    for part, own in zip(logits.split(sizes), labels.split(sizes), strict=True):
        found.add(part, own)
    score = found.score()
    right = int((logits.argmax(dim=1) == labels).sum())
    assert score.sums == {"accuracy": (float(right), 14)}
    assert score.count == 14
    assert score.loss == pytest.approx(float(cross_entropy(logits, labels)), rel=1e-6)


def test_methods_read_an_image_as_a_sample() -> None:
    features, labels = torch.rand(3, 5), torch.tensor([0, 1, 0])
    assert CLASSIFICATION.samples_of(features, labels) == (features, labels)
    assert CLASSIFICATION.samples_per_image(224) == 1


def test_a_split_and_the_census_go_by_class() -> None:
    images = [SimpleNamespace(label=label) for label in (0, 2, 2)]
    assert CLASSIFICATION.strata(("dog", "cat", "cow")) == ("dog", "cat", "cow")
    assert [CLASSIFICATION.stratum(image) for image in images] == [0, 2, 2]
    assert CLASSIFICATION.class_counts(images, 3) == (1, 0, 2)


def test_a_task_is_found_by_name_and_an_unknown_one_refused_with_the_nearest() -> None:
    assert TASKS.get("classification") is DEFAULT_TASK
    with pytest.raises(SettingsError):
        TASKS.get("clasification")
