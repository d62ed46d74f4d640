# SPDX-License-Identifier: Apache-2.0
"""Local training without FLARE: updates, optimizers, and whose error it was."""

from typing import Any

import pytest
import torch
from torch import nn

from fdg_plugins.errors import FDGError, PartError, Stopped
from fdg_plugins.models import ExtractorClassifier
from fdg_plugins.objectives import ERMObjective, LocalObjective
from fdg_plugins.privacy.reasons import texts_of
from fdg_plugins.randomness import seeded
from fdg_plugins.settings.protocol import make_protocol
from fdg_plugins.training.loop import DevicePolicy, train_locally
from fdg_plugins.training.optimizers import make_optimizer
from fdg_plugins.training.results import make_update
from tests.random_tensors import normal

CPU = torch.device("cpu")
CLASSES = 3
BATCH = (normal(2, 8, 3, 6, 6), torch.arange(8) % CLASSES)


def small_model() -> ExtractorClassifier:
    with seeded(1, "model"):
        layers = [nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten()]
        return ExtractorClassifier(nn.Sequential(*layers), nn.Linear(8, CLASSES))


def train(model: ExtractorClassifier, policy: DevicePolicy, objective: LocalObjective) -> None:
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    train_locally(policy.place(model), objective, [[BATCH] * 2], optimizer, policy, lambda: False)


def test_channels_last_changes_the_layout_but_not_the_result_and_the_update_is_contiguous() -> None:
    received = small_model().state_dict()
    updates = []
    for channels_last in (False, True):
        model = small_model()
        train(model, DevicePolicy(CPU, channels_last=channels_last), ERMObjective().local({}, model))
        weight = model.get_parameter("extractor.0.weight")
        assert weight.is_contiguous(memory_format=torch.channels_last) is channels_last
        updates.append(make_update(model.state_dict(), received))
    assert all(value.is_contiguous() for value in updates[1].values())
    torch.testing.assert_close(updates[0], updates[1], rtol=1e-4, atol=1e-6)


def test_an_update_is_local_minus_received_with_dtype_kept_and_its_inputs_unchanged() -> None:
    local = {"w": torch.tensor([[3.0, 5.0]]).t(), "counter": torch.tensor(7), "on": torch.tensor([True, False])}
    received = {"w": torch.tensor([[1.0], [1.0]]), "counter": torch.tensor(3), "on": torch.tensor([True, True])}
    update = make_update(local, received)
    assert update["w"].tolist() == [[2.0], [4.0]]
    assert (int(update["counter"]), update["counter"].dtype) == (4, torch.int64)
    assert update["on"].tolist() == [False, True], "whether it has changed"
    assert (int(local["counter"]), int(received["counter"])) == (7, 3)


PLAIN: dict[str, Any] = {
    "sgd": lambda parameters: torch.optim.SGD(parameters, lr=0.02, momentum=0.9, weight_decay=0.01),
    "adam": lambda parameters: torch.optim.Adam(parameters, lr=0.02, weight_decay=0.01),
    "adamw": lambda parameters: torch.optim.AdamW(parameters, lr=0.02, weight_decay=0.01),
}


def ours(name: str, device: torch.device | None) -> Any:
    protocol = make_protocol([{"optimizer": name, "weight_decay": 0.01}])
    return lambda parameters: make_optimizer(parameters, protocol, 0.02, device)


@pytest.mark.parametrize("name", PLAIN)
def test_parameters_may_get_their_first_gradient_after_others_have_stepped(name: str) -> None:
    """As under an objective with phases, or a network that leaves out layers at random."""

    def steps(make: Any) -> list[torch.Tensor]:
        generator = torch.Generator().manual_seed(3)
        parameters = [torch.nn.Parameter(torch.randn(4, generator=generator)) for _ in range(3)]
        optimizer = make(parameters)
        for having in ((), (1,), (1, 2), (0,), (0, 1, 2), (2,)):
            optimizer.zero_grad(set_to_none=True)
            for index in having:
                parameters[index].grad = torch.randn(4, generator=generator)
            optimizer.step()
        return [one.detach() for one in parameters]

    expected = steps(PLAIN[name])
    for device, tolerance in ((None, 0.0), (CPU, 1e-5)):  # fused kernels round in another order
        torch.testing.assert_close(steps(ours(name, device)), expected, atol=tolerance, rtol=0)


class Failing(LocalObjective):
    def __init__(self, error: Exception) -> None:
        self.error = error

    def loss(self, model: ExtractorClassifier, images: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        raise self.error


def test_what_training_raises_names_the_objective_unless_a_site_can_tell_it_itself() -> None:
    error = NameError("name 'imgs' is not defined")
    with pytest.raises(PartError) as caught:
        train(small_model(), DevicePolicy(CPU), Failing(error))
    assert caught.value.__cause__ is error
    assert "name 'imgs' is not defined" in str(caught.value)
    assert texts_of(caught.value) == (str(caught.value), "objective Failing raised NameError.")
    for known in (Stopped(), FDGError("no."), ZeroDivisionError("division by zero")):
        with pytest.raises(type(known)) as left:
            train(small_model(), DevicePolicy(CPU), Failing(known))
        assert left.value is known
