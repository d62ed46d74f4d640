# SPDX-License-Identifier: Apache-2.0
"""A report and a score from one pass over the training split have the bits of two, whatever the report reads."""

from typing import Any

import pytest
import torch

from fdg_plugins.errors import Stopped
from fdg_plugins.models import ExtractorClassifier, build_model
from fdg_plugins.objectives import OBJECTIVES, make_objective, see
from fdg_plugins.training.judging import report_and_judge
from fdg_plugins.training.loop import DevicePolicy, evaluate, placed

CLASSES = 3
Batch = tuple[torch.Tensor, torch.Tensor]
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


def test_a_stop_passes_through_and_puts_the_modes_back() -> None:
    def stopping() -> Any:
        yield batches()[0]
        raise Stopped

    for name in ("dim", "erm"):
        model = network()
        with pytest.raises(Stopped):
            report_and_judge(make_objective(name).report_trained, model, stopping(), CLASSES, POLICIES[0])
        assert all(module.training for module in model.modules())
