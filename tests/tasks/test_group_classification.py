# SPDX-License-Identifier: Apache-2.0
"""The worst group's accuracy: what is summed, exact however sites share the images, and what is refused."""

from collections.abc import Mapping, Sequence
from itertools import permutations

import pytest
import torch

from fdg_plugins.messages import Evaluation
from fdg_plugins.record.run_record import pooled_sums
from fdg_plugins.tasks import CLASSIFICATION, GROUP_CLASSIFICATION, TASKS, Accumulator, SumAndCount
from fdg_plugins.training.results import evaluation_of

CPU = torch.device("cpu")
CLASSES = ("blond", "not_blond")
COUNT = 60


def images(count: int = COUNT, classes: int = 2, seed: int = 3) -> tuple[torch.Tensor, torch.Tensor]:
    """Return logits, and labels with attributes of which the pair (0, 1) is rare."""
    generator = torch.Generator().manual_seed(seed)
    logits = torch.randn(count, classes, generator=generator)
    labels = torch.randint(classes, (count,), generator=generator)
    rare = (torch.rand(count, generator=generator) < torch.where(labels == 0, 0.1, 0.5)).long()
    return logits, torch.stack([labels, rare], dim=1)


def judged(logits: torch.Tensor, targets: torch.Tensor, sizes: Sequence[int] | None = None) -> Evaluation:
    found = Accumulator(GROUP_CLASSIFICATION, CPU)
    sizes = list(sizes or [len(targets)])
    for part, own in zip(logits.split(sizes), targets.split(sizes), strict=True):
        found.add(part, own)
    return evaluation_of("test", found.score())


def by_hand(logits: torch.Tensor, targets: torch.Tensor) -> dict[tuple[int, int], tuple[int, int]]:
    found: dict[tuple[int, int], tuple[int, int]] = {}
    for row, (label, attribute) in zip(logits.tolist(), targets.tolist(), strict=True):
        correct, count = found.get((label, attribute), (0, 0))
        found[label, attribute] = (correct + (row.index(max(row)) == label), count + 1)
    return found


def worst_of(sums: Mapping[str, SumAndCount]) -> float:
    return GROUP_CLASSIFICATION.summary(sums, {})["worst_group_accuracy"].value


def pooled(scores: Mapping[str, Evaluation]) -> dict[str, SumAndCount]:
    return pooled_sums(scores[site] for site in sorted(scores))


def test_loss_and_accuracy_have_the_bits_of_classification_in_training_and_evaluation() -> None:
    logits, targets = images()
    labels = targets[:, 0].contiguous()
    plain = Accumulator(CLASSIFICATION, CPU)
    plain.add(logits, labels)
    found = Accumulator(GROUP_CLASSIFICATION, CPU)
    found.add(logits, targets)
    assert (found.score().loss, found.score().count) == (plain.score().loss, COUNT)
    assert found.score().sums["accuracy"] == plain.score().sums["accuracy"]
    for seen in (labels, targets):
        assert torch.equal(GROUP_CLASSIFICATION.loss(logits, seen), CLASSIFICATION.loss(logits, labels))
        assert torch.equal(GROUP_CLASSIFICATION.samples_of(logits, seen)[1], labels)
    assert TASKS.get("group_classification") is GROUP_CLASSIFICATION


@pytest.mark.parametrize("classes", [2, 5])
@pytest.mark.parametrize("sizes", [[COUNT], [1] * COUNT, [25, 25, 10]])
def test_groups_are_counted_image_by_image_however_they_are_batched(sizes: list[int], classes: int) -> None:
    logits, targets = images(classes=classes)
    score, expected = judged(logits, targets, sizes), by_hand(logits, targets)
    sums = {name: (one.sum, one.count) for name, one in score.sums.items()}
    of_groups = {f"accuracy_{label}_{attribute}": one for (label, attribute), one in expected.items()}
    assert sums == {**of_groups, "accuracy": sums["accuracy"]}
    assert GROUP_CLASSIFICATION.complaint(sums, COUNT, classes) is None
    worst = min(correct / count for correct, count in expected.values())
    assert worst_of(sums) == worst


@pytest.mark.parametrize("seed", range(4))
def test_the_worst_group_is_that_of_all_images_whatever_the_sites_and_their_order(seed: int) -> None:
    logits, targets = images(seed=seed)
    generator = torch.Generator().manual_seed(seed)
    order = torch.randperm(COUNT, generator=generator)
    cuts = sorted((torch.randperm(COUNT - 1, generator=generator)[:3] + 1).tolist())
    parts = [order[start:end] for start, end in zip([0, *cuts], [*cuts, COUNT], strict=True)]
    scores = {f"site-{number}": judged(logits[part], targets[part]) for number, part in enumerate(parts)}
    whole = pooled({"all": judged(logits, targets)})
    for names in permutations(scores):
        assert pooled({name: scores[name] for name in names}) == whole
    worst = min(correct / count for correct, count in by_hand(logits, targets).values())
    assert worst_of(whole) == worst
    # The mean of the sites' own worst groups is another number, so it must not be what is reported.
    own = [worst_of(pooled({"a": one})) for one in scores.values()]
    assert sum(own) / len(own) != worst


def test_a_group_that_no_site_has_is_left_out_and_named() -> None:
    logits, targets = images()
    targets[:, 1] = torch.where(targets[:, 0] == 0, 0, targets[:, 1])
    sums = pooled({"a": judged(logits[:20], targets[:20]), "b": judged(logits[20:], targets[20:])})
    assert "accuracy_0_1" not in sums
    assert GROUP_CLASSIFICATION.complaint(sums, COUNT, 2) is None
    first, absent = GROUP_CLASSIFICATION.remarks(sums, {}, CLASSES)
    worst = min((one[0] / one[1], name) for name, one in sums.items() if name != "accuracy")
    assert f"({100 * worst[0]:.1f} % of {sums[worst[1]][1]} images)" in first
    assert first.startswith(f"worst group class {CLASSES[int(worst[1][-3])]}, attribute {worst[1][-1]}")
    assert absent == "no image of class blond, attribute 1"


def test_without_a_site_that_told_groups_there_is_no_worst_group() -> None:
    assert list(GROUP_CLASSIFICATION.summary({"accuracy": (3.0, 4)}, {})) == ["accuracy"]
    assert len(GROUP_CLASSIFICATION.remarks({"accuracy": (3.0, 4)}, {}, CLASSES)) == 1


RIGHT: dict[str, SumAndCount] = {"accuracy": (5.0, 8), "accuracy_0_0": (2.0, 4), "accuracy_1_1": (3.0, 4)}


def test_scores_that_cannot_be_are_refused() -> None:
    assert GROUP_CLASSIFICATION.complaint(RIGHT, 8, 2) is None
    changes: list[dict[str, SumAndCount]] = [
        *({"accuracy_1_1": value} for value in ((3.0, 0), (5.0, 4), (2.0, 4), (3.0, 5))),
        *({"accuracy_2_0": (0.0, 1)}, {"accuracy_1_1": (2.5, 4), "accuracy_0_0": (2.5, 4)}, {"accuracy": (5.0, 9)}),
    ]
    for change in changes:
        assert GROUP_CLASSIFICATION.complaint({**RIGHT, **change}, 8, 2), change
