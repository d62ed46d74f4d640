# SPDX-License-Identifier: Apache-2.0
"""A report and a score from one pass over the training split have the bits of two, whatever the report reads."""

from collections.abc import Iterable
from itertools import islice
from typing import Any

import pytest
import torch

from fdg_plugins.errors import Stopped
from fdg_plugins.models import ExtractorClassifier, build_model
from fdg_plugins.objectives import OBJECTIVES, FeatureBatch, make_objective, see
from fdg_plugins.training.judging import report_and_judge
from fdg_plugins.training.loop import DevicePolicy, evaluate, placed

CLASSES = 3
Batch = tuple[torch.Tensor, torch.Tensor]
Tensors = dict[str, torch.Tensor]
POLICIES = [
    DevicePolicy(torch.device("cpu")),
    DevicePolicy(torch.device("cpu"), bfloat16=True),
    DevicePolicy(torch.device("cpu"), channels_last=True),
]


def never() -> bool:
    return False


def batches() -> list[Batch]:
    """Three batches of random images."""
    generator = torch.Generator().manual_seed(3)
    return [(torch.randn(size, 3, 16, 16, generator=generator), torch.arange(size) % CLASSES) for size in (5, 5, 4)]


def network(head: str = "linear") -> ExtractorClassifier:
    """A network whose BatchNorm has seen something, in training mode."""
    model = build_model("convnet", CLASSES, seed=1, head=head).train()
    for images, _ in batches():
        model(images)
    return model


def passes_of(model: ExtractorClassifier) -> list[int]:
    """Return a list that grows by the batch size at every pass through the extractor."""
    sizes: list[int] = []
    model.extractor.register_forward_hook(lambda module, inputs, output: sizes.append(len(output)))
    return sizes


@pytest.mark.parametrize(
    ("name", "head", "policy"),
    [
        *((name, "linear", POLICIES[0]) for name in sorted(OBJECTIVES)),
        *(
            (name, "two_layer", policy)
            for name in sorted(OBJECTIVES)
            if make_objective(name).report is not None
            for policy in POLICIES
        ),
    ],
)
def test_report_and_score_have_the_bits_of_passes_of_their_own(name: str, head: str, policy: DevicePolicy) -> None:
    objective = make_objective(name)
    model = policy.place(objective.adapt(network(head), (3, 16, 16), 1))
    images = list(placed(batches(), policy, never))
    for report in (objective.report_received, objective.report_trained):
        modes = [module.training for module in model.modules()]
        tensors, score = report_and_judge(report, model, images, CLASSES, policy)
        assert [module.training for module in model.modules()] == modes
        alone = report(model, see(model, images), CLASSES)
        assert tensors.keys() == alone.keys()
        assert all(torch.equal(tensors[key], value) for key, value in alone.items())
        assert score == evaluate(model, images, policy, never)
        model.train()  # the evaluation leaves its own mode


def test_one_pass_through_the_extractor_serves_both() -> None:
    model = network()
    sizes = passes_of(model)
    report_and_judge(make_objective("dim").report_trained, model, batches(), CLASSES, POLICIES[0])
    assert sizes == [5, 5, 4]


def test_images_are_read_once_also_where_precisions_differ() -> None:
    read: list[int] = []

    def once() -> Iterable[Batch]:
        for batch in batches():
            read.append(len(batch[1]))
            yield batch

    report_and_judge(make_objective("dim").report_trained, network(), once(), CLASSES, POLICIES[1])
    assert read == [5, 5, 4]


@pytest.mark.parametrize("count", [0, 1, 3])
def test_the_score_is_of_all_images_however_many_the_report_reads(count: int) -> None:
    def report(model: ExtractorClassifier, seen: Iterable[FeatureBatch], num_classes: int) -> Tensors:
        return {"labels": torch.cat([torch.zeros(0), *(batch.targets for batch in islice(seen, count))])}

    model = network()
    tensors, score = report_and_judge(report, model, batches(), CLASSES, POLICIES[0])
    assert len(tensors["labels"]) == sum((5, 5, 4)[:count])
    assert score == evaluate(model, batches(), POLICIES[0], never)


def test_a_stop_passes_through_and_puts_the_modes_back() -> None:
    def stopping() -> Any:
        yield batches()[0]
        raise Stopped

    for name in ("dim", "erm"):
        model = network()
        with pytest.raises(Stopped):
            report_and_judge(make_objective(name).report_trained, model, stopping(), CLASSES, POLICIES[0])
        assert all(module.training for module in model.modules())
