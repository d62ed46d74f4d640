# SPDX-License-Identifier: Apache-2.0
"""FedProx: the loss and its gradients are those of the definition, one step is FedAvg's, and mu zero is FedAvg."""

import copy
import math
from collections.abc import Iterable
from typing import Any

import pytest
import torch
from torch.nn.functional import cross_entropy

from fdg_plugins.errors import SettingsError
from fdg_plugins.methods.fedprox import FedProxObjective, LocalProximal, add_proximal_gradients
from fdg_plugins.models import ExtractorClassifier
from fdg_plugins.objectives import make_objective
from tests.objectives.local_steps import copy_of, plain, same, train_steps
from tests.objectives.objective_batches import Batch, make_batches


def moved(model: ExtractorClassifier) -> ExtractorClassifier:
    """Change every parameter a little, in place."""
    generator = torch.Generator().manual_seed(5)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.1 * torch.randn(parameter.shape, generator=generator))
    return model


def half_distance(parameters: Iterable[torch.Tensor], start: Iterable[torch.Tensor]) -> torch.Tensor:
    """Return ``1/2 |theta_u - theta|^2``, differentiable."""
    parts = [(own - other).square().sum() for own, other in zip(parameters, start, strict=True)]
    return torch.stack(parts).sum() / 2


def proximal(strength: float, model: ExtractorClassifier) -> LocalProximal:
    local = FedProxObjective(strength=strength).local({}, model)
    assert isinstance(local, LocalProximal)
    return local


# --- the definition ---


def test_loss_and_gradients_of_a_step_are_those_of_the_definition(
    model: ExtractorClassifier, batches: list[Batch]
) -> None:
    images, labels = batches[0]
    start = [parameter.detach().clone() for parameter in model.parameters()]
    local = proximal(0.3, model)
    moved(model.eval())
    expected = cross_entropy(model(images), labels) + 0.3 * half_distance(model.parameters(), start)
    gradients = torch.autograd.grad(expected, list(model.parameters()))

    def compute_gradients() -> torch.Tensor:
        loss = local.loss(model, images, labels)
        loss.backward()
        return loss.detach()

    loss = local.step(model, compute_gradients, torch.optim.SGD(model.parameters(), lr=0))
    assert (loss.shape, loss.dtype, loss.requires_grad) == ((), torch.float32, False)
    torch.testing.assert_close(loss, expected.detach())
    for parameter, gradient in zip(model.parameters(), gradients, strict=True):
        torch.testing.assert_close(parameter.grad, gradient, rtol=1e-5, atol=1e-6)


def test_no_pass_backwards_goes_through_the_term(model: ExtractorClassifier, batches: list[Batch]) -> None:
    """On a CPU, that takes longer than the rest of the step."""
    local = proximal(0.3, model)
    moved(model.eval())
    assert torch.equal(local.loss(model, *batches[0]), plain(model).loss(model, *batches[0]))


@pytest.mark.parametrize("momentum", [0.0, 0.9])
def test_training_is_that_of_the_penalised_loss(momentum: float, linear_model: ExtractorClassifier) -> None:
    """Also with momentum and weight decay, because the optimizer gets the gradient of the whole loss."""
    reference, images_and_labels = copy.deepcopy(linear_model), make_batches(linear_model)
    start = [parameter.detach().clone() for parameter in reference.parameters()]
    optimizer = torch.optim.SGD(reference.parameters(), lr=0.05, momentum=momentum, weight_decay=5e-4)
    for images, labels in images_and_labels:
        optimizer.zero_grad()
        (cross_entropy(reference(images), labels) + 0.7 * half_distance(reference.parameters(), start)).backward()
        optimizer.step()
    train_steps(linear_model, proximal(0.7, linear_model), [images_and_labels], momentum=momentum)
    for ours, expected in zip(linear_model.parameters(), reference.parameters(), strict=True):
        torch.testing.assert_close(ours, expected, rtol=1e-4, atol=1e-6)


def test_the_gradient_of_the_term_is_the_distance_itself() -> None:
    parameters, received = [torch.tensor([3.0, -1.0]), torch.tensor([[2.0]])], [torch.ones(2), torch.ones(1, 1) * 2]
    for parameter in parameters:
        parameter.grad = torch.full_like(parameter, 5.0)
    term = add_proximal_gradients(parameters, received, 0.5)
    assert term.dtype == torch.float32
    assert term.item() == pytest.approx(4.0)  # (2^2 + 2^2) / 2
    assert [parameter.grad.tolist() for parameter in parameters if parameter.grad is not None] == [[6, 4], [[5]]]


def test_the_gradient_agrees_with_finite_differences_in_double_precision() -> None:
    start, strength, step = torch.tensor([0.5, -2.0, 1.0], dtype=torch.float64), 0.7, 2.0**-6
    point = torch.tensor([0.75, 1.0, -1.0], dtype=torch.float64)

    def term(at: torch.Tensor) -> tuple[float, torch.Tensor]:
        at.grad = torch.zeros_like(at)
        value = strength * add_proximal_gradients([at], [start], strength).item()
        return value, at.grad

    gradient = term(point)[1]
    for index in range(3):
        shift = step * torch.eye(3, dtype=torch.float64)[index]
        ends = [term(point + sign * shift)[0] for sign in (1, -1)]
        assert (ends[0] - ends[1]) / (2 * step) == pytest.approx(gradient[index].item(), rel=1e-4)


@pytest.mark.parametrize("strength", [0.01, 0.1, 1.0, 10.0])
def test_on_a_quadratic_the_local_fixed_point_lies_between_optimum_and_start(strength: float) -> None:
    """f = 1/2 |x - b|^2: descent ends at (b + mu x0) / (1 + mu)."""
    optimum, start = torch.tensor([2.0, -3.0]), torch.tensor([-1.0, 1.0])
    point = start.clone()
    for _ in range(200):
        point.grad = point - optimum
        add_proximal_gradients([point], [start], strength)
        point = point - point.grad / (1 + 2 * strength)
    torch.testing.assert_close(point, (optimum + strength * start) / (1 + strength))


def test_neither_buffers_nor_fixed_parameters_are_in_the_term(linear_model: ExtractorClassifier) -> None:
    local = proximal(1.0, linear_model)
    for buffer in linear_model.buffers():
        buffer.fill_(100)
    fixed, *trained = linear_model.parameters()
    with torch.no_grad():
        fixed.fill_(100)
    for parameter in trained:
        parameter.grad = torch.zeros_like(parameter)
    assert add_proximal_gradients(linear_model.parameters(), local.received, 1.0).item() == 0.0
    assert fixed.grad is None


# --- training ---


@pytest.mark.parametrize("strength", [0.01, 1e6])
def test_a_single_step_is_that_of_fedavg_for_any_strength(
    strength: float, model: ExtractorClassifier, batches: list[Batch]
) -> None:
    reference = copy.deepcopy(model)
    plain_loss = train_steps(reference, plain(reference), [batches[:1]]).epoch_losses
    loss = train_steps(model, FedProxObjective(strength=strength).local({}, model), [batches[:1]]).epoch_losses
    assert same(copy_of(model), copy_of(reference))
    assert loss == plain_loss


def test_the_stronger_the_nearer_the_model_stays(linear_model: ExtractorClassifier) -> None:
    start = [parameter.detach().clone() for parameter in linear_model.parameters()]
    batches, distances = make_batches(linear_model), []
    for strength in (0, 1.0, 10.0):
        trained = copy.deepcopy(linear_model)
        local = FedProxObjective(strength=strength).local({}, trained)
        train_steps(trained, local, [batches] * 2, lr=0.02, momentum=0.0)
        distances.append(half_distance(trained.parameters(), start).item())
    assert distances[0] > distances[1] > distances[2] > 0


def test_what_is_held_fixed_does_not_move_with_the_model(model: ExtractorClassifier) -> None:
    local = proximal(0.1, model)
    before = [value.clone() for value in local.received]
    moved(model)
    assert all(torch.equal(value, kept) for value, kept in zip(local.received, before, strict=True))
    assert not any(value.requires_grad for value in local.received)


def test_under_autocast_the_term_keeps_its_precision(linear_model: ExtractorClassifier) -> None:
    local = proximal(1.0, linear_model)
    moved(linear_model)
    found = []
    for enabled in (False, True):
        for parameter in linear_model.parameters():
            parameter.grad = torch.zeros_like(parameter)
        with torch.autocast("cpu", torch.bfloat16, enabled=enabled):
            term = add_proximal_gradients(linear_model.parameters(), local.received, 0.3)
        found.append([term, *(parameter.grad for parameter in linear_model.parameters())])
    assert all(map(torch.equal, *found))


# --- settings ---


@pytest.mark.parametrize("value", [-0.1, math.inf, math.nan, True, "0.1", None])
def test_a_strength_out_of_range_is_refused_by_name(value: Any) -> None:
    with pytest.raises(SettingsError, match=r"^strength is .*, expected a finite number of at least 0\.$"):
        make_objective({"name": "prox", "strength": value})


def test_it_exchanges_nothing_and_refuses_to_be_sent_something(linear_model: ExtractorClassifier) -> None:
    for strength in (0, 0.1):
        objective = FedProxObjective(strength=strength)
        assert objective.exchange(linear_model, 3) is None
        assert objective.report is None
        with pytest.raises(
            SettingsError, match=r"^sent for objective 'prox': sent 'insight', expected only nothing\.$"
        ):
            objective.local({"insight": torch.zeros(1)}, linear_model)
