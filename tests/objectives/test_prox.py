# SPDX-License-Identifier: Apache-2.0
"""FedProx: the loss and its gradients are those of the definition, one step is FedAvg's, and mu zero is FedAvg."""

import copy
import math
from typing import Any

import pytest
import torch
from torch.nn.functional import cross_entropy

from fdg_plugins.errors import SettingsError
from fdg_plugins.models import ExtractorClassifier
from fdg_plugins.objectives import make_objective
from fdg_plugins.objectives.fedprox import FedProxObjective, LocalProximal, proximal_term
from tests.objectives.local_steps import copy_of, plain, same, train_steps
from tests.objectives.objective_batches import Batch, make_batches


def moved(model: ExtractorClassifier) -> ExtractorClassifier:
    """Change every parameter a little, in place."""
    generator = torch.Generator().manual_seed(5)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.1 * torch.randn(parameter.shape, generator=generator))
    return model


# --- the definition ---


def test_loss_and_gradients_are_those_of_the_definition(model: ExtractorClassifier, batches: list[Batch]) -> None:
    images, labels = batches[0]
    start = [parameter.detach().clone() for parameter in model.parameters()]
    local = FedProxObjective(strength=0.3).local({}, model)
    moved(model.eval())
    parameters = list(model.parameters())
    loss = local.loss(model, images, labels)
    entropy = cross_entropy(model(images), labels)
    distance = sum(((own - other) ** 2).sum() for own, other in zip(parameters, start, strict=True))
    torch.testing.assert_close(loss, entropy + 0.3 / 2 * distance)
    gradients = zip(torch.autograd.grad(loss, parameters), torch.autograd.grad(entropy, parameters), strict=True)
    for (ours, plain_gradient), own, other in zip(gradients, parameters, start, strict=True):
        torch.testing.assert_close(ours, plain_gradient + 0.3 * (own.detach() - other), rtol=1e-5, atol=1e-6)


def test_the_gradient_of_the_term_is_the_distance_itself() -> None:
    parameters = [torch.tensor([3.0, -1.0], requires_grad=True), torch.tensor([[2.0]], requires_grad=True)]
    received = [torch.tensor([1.0, 1.0]), torch.tensor([[2.0]])]
    term = proximal_term(parameters, received)
    term.backward()
    assert (term.item(), term.dtype) == (4.0, torch.float32)  # (2^2 + 2^2) / 2
    assert parameters[0].grad is not None
    assert parameters[1].grad is not None
    assert parameters[0].grad.tolist() == [2.0, -2.0]
    assert parameters[1].grad.tolist() == [[0.0]]


def test_the_term_agrees_with_finite_differences_in_double_precision() -> None:
    start, strength, step = torch.tensor([0.5, -2.0, 1.0], dtype=torch.float64), 0.7, 2.0**-6
    point = torch.tensor([0.75, 1.0, -1.0], dtype=torch.float64, requires_grad=True)
    (gradient,) = torch.autograd.grad(strength * proximal_term([point], [start]), point)
    for index in range(3):
        shift = step * torch.eye(3, dtype=torch.float64)[index]
        ends = [strength * proximal_term([point + sign * shift], [start]).item() for sign in (1, -1)]
        assert (ends[0] - ends[1]) / (2 * step) == pytest.approx(gradient[index].item(), rel=1e-4)


@pytest.mark.parametrize("strength", [0.01, 0.1, 1.0, 10.0])
def test_on_a_quadratic_the_local_fixed_point_lies_between_optimum_and_start(strength: float) -> None:
    """f = 1/2 |x - b|^2: descent ends at (b + mu x0) / (1 + mu)."""
    optimum, start = torch.tensor([2.0, -3.0]), torch.tensor([-1.0, 1.0])
    point = start.clone().requires_grad_()
    for _ in range(200):
        loss = 0.5 * (point - optimum).square().sum() + strength * proximal_term([point], [start])
        (gradient,) = torch.autograd.grad(loss, point)
        point = (point - gradient / (1 + 2 * strength)).detach().requires_grad_()
    torch.testing.assert_close(point.detach(), (optimum + strength * start) / (1 + strength))


def test_buffers_are_not_in_the_term(linear_model: ExtractorClassifier) -> None:
    local = FedProxObjective(strength=1.0).local({}, linear_model)
    for buffer in linear_model.buffers():
        buffer.fill_(100)
    assert isinstance(local, LocalProximal)
    assert proximal_term(linear_model.parameters(), local.received).item() == 0.0


# --- training ---


def test_with_strength_zero_training_is_that_of_fedavg_to_the_bit(
    model: ExtractorClassifier, batches: list[Batch]
) -> None:
    reference = copy.deepcopy(model)
    train_steps(reference, plain(reference), [batches, batches])
    train_steps(model, FedProxObjective(strength=0).local({}, model), [batches, batches])
    assert same(copy_of(model), copy_of(reference))


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
        distances.append(proximal_term(trained.parameters(), start).item())
    assert distances[0] > distances[1] > distances[2] > 0


def test_what_is_held_fixed_does_not_move_with_the_model(model: ExtractorClassifier) -> None:
    local = FedProxObjective().local({}, model)
    assert isinstance(local, LocalProximal)
    before = [value.clone() for value in local.received]
    moved(model)
    assert all(torch.equal(value, kept) for value, kept in zip(local.received, before, strict=True))
    assert not any(value.requires_grad for value in local.received)


def test_under_autocast_the_term_keeps_its_precision(linear_model: ExtractorClassifier) -> None:
    local = FedProxObjective(strength=1.0).local({}, linear_model)
    assert isinstance(local, LocalProximal)
    moved(linear_model)
    exact = proximal_term(linear_model.parameters(), local.received)
    with torch.autocast("cpu", torch.bfloat16):
        assert torch.equal(proximal_term(linear_model.parameters(), local.received), exact)


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
