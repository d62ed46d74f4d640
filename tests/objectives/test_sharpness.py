# SPDX-License-Identifier: Apache-2.0
"""Sharpness-aware steps: the gradient is that of the ascended point, and nothing else of the ascent remains."""

import copy
from collections.abc import Callable

import pytest
import torch
from torch import nn
from torch.func import functional_call
from torch.nn.functional import cross_entropy

from fdg_plugins.core.sharpness import sharpness_aware_gradients
from fdg_plugins.methods.fedsam import FedSAMObjective
from fdg_plugins.models import ExtractorClassifier
from tests.objectives.local_steps import copy_of, plain, same, train_steps
from tests.objectives.objective_batches import Batch

RADII = [0.05, 0.6, 5.0]


class Point(nn.Module):
    """A model that is its parameters, in two tensors."""

    def __init__(self, *values: list[float]) -> None:
        super().__init__()
        self.parts = nn.ParameterList([nn.Parameter(torch.tensor(value, dtype=torch.float64)) for value in values])

    def whole(self) -> torch.Tensor:
        return torch.cat([part.flatten() for part in self.parts])


def gradients_of(model: nn.Module, loss: Callable[[], torch.Tensor]) -> Callable[[], torch.Tensor]:
    """Return what a site hands to an objective's step."""

    def compute() -> torch.Tensor:
        model.zero_grad(set_to_none=True)
        value = loss()
        value.backward()
        return value.detach()

    return compute


def batch_gradients(model: ExtractorClassifier, batch: Batch) -> Callable[[], torch.Tensor]:
    return gradients_of(model, lambda: cross_entropy(model(batch[0]), batch[1]))


def grads(model: nn.Module) -> list[torch.Tensor]:
    return [parameter.grad.clone() for parameter in model.parameters() if parameter.grad is not None]


# --- the gradient ---


@pytest.mark.parametrize("radius", RADII)
@pytest.mark.parametrize("scale", [1e-3, 1.0, 1e8])
def test_on_a_quadratic_the_gradient_grows_by_the_share_of_the_radius(radius: float, scale: float) -> None:
    """f = a/2 |w|^2: g = a w, e = rho w / |w|, and g~ = a w (1 + rho / |w|)."""
    point = Point([3.0, 0.0], [4.0])
    loss = sharpness_aware_gradients(
        point, gradients_of(point, lambda: scale / 2 * point.whole().square().sum()), radius
    )
    expected = scale * point.whole() * (1 + radius / 5)
    # 1e-7 in the norm of 5 a shortens the ascent by that share
    torch.testing.assert_close(torch.cat(grads(point)), expected.detach(), rtol=1e-4, atol=0)
    assert loss.item() == pytest.approx(scale / 2 * 25)


@pytest.mark.parametrize("radius", RADII)
def test_it_is_the_gradient_at_the_ascended_point_by_the_definition(
    radius: float, model: ExtractorClassifier, batches: list[Batch]
) -> None:
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


def test_with_radius_zero_there_is_one_pass_and_its_gradient() -> None:
    point = Point([3.0], [4.0])
    calls: list[None] = []
    compute = gradients_of(point, lambda: point.whole().pow(4).sum())
    compute()
    expected = grads(point)

    def counted() -> torch.Tensor:
        calls.append(None)
        return compute()

    sharpness_aware_gradients(point, counted, 0.0)
    assert (len(calls), all(map(torch.equal, grads(point), expected))) == (1, True)
    sharpness_aware_gradients(point, counted, 0.1)
    assert (len(calls), any(map(torch.equal, grads(point), expected))) == (3, False)


# --- what remains ---


@pytest.mark.parametrize("radius", RADII)
def test_parameters_have_their_bits_and_buffers_those_of_the_first_pass(
    radius: float, model: ExtractorClassifier, batches: list[Batch]
) -> None:
    reference = copy.deepcopy(model)
    plain_loss = batch_gradients(reference, batches[0])()
    loss = sharpness_aware_gradients(model, batch_gradients(model, batches[0]), radius)
    assert same(copy_of(model), copy_of(reference))
    assert torch.equal(loss, plain_loss)
    assert not all(map(torch.equal, grads(model), grads(reference)))


# --- FedSAM ---


def test_a_step_is_the_optimisers_with_the_sharpness_aware_gradient(
    model: ExtractorClassifier, batches: list[Batch]
) -> None:
    reference = copy.deepcopy(model)
    optimizer = torch.optim.SGD(reference.parameters(), lr=0.05, momentum=0.9, weight_decay=5e-4)
    for batch in batches:
        sharpness_aware_gradients(reference, batch_gradients(reference, batch), 0.6)
        optimizer.step()
    unswerving = copy.deepcopy(model)
    train_steps(unswerving, plain(unswerving), [batches])
    train_steps(model, FedSAMObjective(radius=0.6).local({}, model), [batches])
    assert same(copy_of(model), copy_of(reference))
    assert not same(copy_of(model), copy_of(unswerving))
