# SPDX-License-Identifier: Apache-2.0
"""Methods whose sites fine-tune a copy to have a model of their own: FedBABU, Per-FedAvg."""

import copy
from typing import Any

import pytest
import torch

from fdg_plugins.models import ExtractorClassifier, build_model
from fdg_plugins.objectives import FineTuning, SiteRound, make_objective
from fdg_plugins.settings.protocol import Protocol
from fdg_plugins.tasks import DEFAULT_TASK
from fdg_plugins.testing.objectives import bits
from fdg_plugins.training.loop import DevicePolicy
from fdg_plugins.training.optimizers import fine_tune
from tests.objectives.local_steps import CLASSES, Batch, make_batches, plain, train_steps

SITE = SiteRound("photo", 2, seed=1, learning_rate=0.1)
CPU = DevicePolicy(torch.device("cpu"))


def tune(model: ExtractorClassifier, tuning: FineTuning, batches: list[Batch], **protocol: Any) -> list[int]:
    """Fine-tune ``model`` in place; return the numbers of epochs that were asked for."""
    asked: list[int] = []

    def epochs(count: int) -> Any:
        asked.append(count)
        return (iter(batches) for _ in range(count))

    settings = Protocol(batch_size=4, **protocol)
    fine_tune(model, tuning, epochs, 0.1, settings, CPU, lambda: False, num_train=4 * len(batches))
    return asked


@pytest.mark.parametrize("part", ["all", "head", "body"])
def test_fine_tuning_moves_its_part(model: ExtractorClassifier, batches: list[Batch], part: str) -> None:
    model.hold(model.head_names)
    before = bits(model)
    own = make_objective({"name": "babu", "fine_tune": part, "fine_tune_epochs": 2}).personal(model, {}, SITE)
    assert own.network is model
    assert own.tuning is not None
    assert tune(model, own.tuning, batches) == [2]
    moved = {name for name, value in model.named_parameters() if not torch.equal(value, before[name])}
    parameters = {name for name, _ in model.named_parameters()}
    head = set(model.head_names)
    assert moved == {"all": parameters, "head": head, "body": parameters - head}[part]


@pytest.mark.parametrize("spec", [{"name": "babu", "fine_tune_epochs": 0}, {"name": "peravg", "adaptation": 0}])
def test_without_tuning_the_own_model_is_the_one_received(linear_model: ExtractorClassifier, spec: Any) -> None:
    assert make_objective(spec).personal(linear_model, {}, SITE) == (linear_model, None)


def test_fine_tuning_with_the_sites_optimizer_is_its_training(linear_model: ExtractorClassifier) -> None:
    batches = make_batches(linear_model)
    other, names = copy.deepcopy(linear_model), tuple(name for name, _ in linear_model.named_parameters())
    tune(linear_model, FineTuning(names, epochs=2), batches)
    train_steps(other, plain(other), [batches] * 2, lr=0.1, momentum=0.9, weight_decay=5e-4)
    assert all(torch.allclose(value, bits(other)[name]) for name, value in bits(linear_model).items())


@pytest.mark.parametrize("head", ["linear", "two_layer"])
def test_a_step_is_along_the_gradient_of_the_second_half_after_a_step_on_the_first(head: str) -> None:
    """A first-order step, written out for a network without BatchNorm."""
    model = build_model("groupnorm_convnet", CLASSES, seed=1, head=head).train()
    batches = make_batches(model)
    (first, second), (of_first, of_second) = (part.split(2) for part in batches[0])
    adapted = copy.deepcopy(model)
    for images, labels in ((first, of_first), (second, of_second)):
        gradients = torch.autograd.grad(DEFAULT_TASK.loss(adapted(images), labels), list(adapted.parameters()))
        with torch.no_grad():
            for own, start, gradient in zip(adapted.parameters(), model.parameters(), gradients, strict=True):
                own.copy_(start - 0.1 * gradient)
    local = make_objective("peravg").local({}, model, SITE)
    train_steps(model, local, [batches[:1]], lr=0.1, momentum=0, weight_decay=0)
    for name, value in model.named_parameters():
        torch.testing.assert_close(value, adapted.get_parameter(name))


def test_the_own_model_takes_plain_steps_of_the_adaptations_length(linear_model: ExtractorClassifier) -> None:
    objective = make_objective({"name": "peravg", "adaptation": 0.5, "adaptation_steps": 3})
    names = tuple(name for name, _ in linear_model.named_parameters())
    own = objective.personal(linear_model, {}, SITE)
    assert own == (linear_model, FineTuning(names, steps=3, learning_rate=0.05))
    linear_model.hold(linear_model.head_names)
    tuned = objective.personal(linear_model, {}, SITE).tuning
    assert tuned is not None
    assert not set(linear_model.head_names) & set(tuned.parameters), "what is frozen stays so"
