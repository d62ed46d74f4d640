# SPDX-License-Identifier: Apache-2.0
"""Sharpness-aware steps: the gradient is that of the ascended point, and nothing else of the ascent remains."""

import copy
from collections.abc import Callable

import pytest
import torch
from torch import nn
from torch.func import functional_call
from torch.nn.functional import cross_entropy

from fdg_plugins.core.moved_gradients import sharpness_aware_gradients
from fdg_plugins.methods.fedsam import FedSAMObjective
from fdg_plugins.models import ExtractorClassifier
from fdg_plugins.testing.inputs import same_bits
from fdg_plugins.testing.objectives import bits
from tests.objectives.local_steps import Batch, plain, train_steps

RADII = [0.05, 5.0]


def batch_gradients(model: ExtractorClassifier, batch: Batch) -> Callable[[], torch.Tensor]:
    """Return what a site hands to an objective's step."""

    def compute() -> torch.Tensor:
        model.zero_grad(set_to_none=True)
        value = cross_entropy(model(batch[0]), batch[1])
        value.backward()
        return value.detach()

    return compute


def grads(model: nn.Module) -> list[torch.Tensor]:
    return [parameter.grad.clone() for parameter in model.parameters() if parameter.grad is not None]


@pytest.mark.parametrize("radius", RADII)
def test_gradient_is_at_the_ascended_point(radius: float, model: ExtractorClassifier, batches: list[Batch]) -> None:
    model.double()
    images, labels = batches[0][0].double(), batches[0][1]
    parameters, buffers = dict(model.named_parameters()), {name: b.clone() for name, b in model.named_buffers()}

    def gradient_at(values: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        own = {name: value.detach().clone().requires_grad_() for name, value in values.items()}
        state = {**own, **{name: value.clone() for name, value in buffers.items()}}
        loss = cross_entropy(functional_call(model, state, (images,)), labels)
        return dict(zip(own, torch.autograd.grad(loss, list(own.values())), strict=True))

    first = gradient_at(dict(parameters))
    norm = sum(float(value.square().sum()) for value in first.values()) ** 0.5
    expected = gradient_at({name: value + radius * first[name] / (norm + 1e-7) for name, value in parameters.items()})
    sharpness_aware_gradients(model, batch_gradients(model, (images, labels)), radius)
    for name, parameter in parameters.items():
        torch.testing.assert_close(parameter.grad, expected[name], rtol=1e-7, atol=1e-9)


@pytest.mark.parametrize("radius", RADII)
def test_ascent_leaves_no_trace(radius: float, model: ExtractorClassifier, batches: list[Batch]) -> None:
    reference = copy.deepcopy(model)
    plain_loss = batch_gradients(reference, batches[0])()
    loss = sharpness_aware_gradients(model, batch_gradients(model, batches[0]), radius)
    assert same_bits(bits(model), bits(reference))
    assert torch.equal(loss, plain_loss)
    assert not all(map(torch.equal, grads(model), grads(reference)))


def test_step_has_the_sharpness_aware_gradient(model: ExtractorClassifier, batches: list[Batch]) -> None:
    reference = copy.deepcopy(model)
    optimizer = torch.optim.SGD(reference.parameters(), lr=0.05, momentum=0.9, weight_decay=5e-4)
    for batch in batches:
        sharpness_aware_gradients(reference, batch_gradients(reference, batch), 0.6)
        optimizer.step()
    unswerving = copy.deepcopy(model)
    train_steps(unswerving, plain(unswerving), [batches])
    train_steps(model, FedSAMObjective(radius=0.6).local({}, model), [batches])
    assert same_bits(bits(model), bits(reference))
    assert not same_bits(bits(model), bits(unswerving))
