# SPDX-License-Identifier: Apache-2.0
"""FedIIR: the loss is Algorithm 1's, the report the gradient of the pooled mean loss, however it was batched."""

import copy
from typing import Literal

import pytest
import torch
from torch.nn.functional import cross_entropy

from fdg_plugins.methods.fediir import FedIIRObjective, GradientExchange
from fdg_plugins.models import ExtractorClassifier
from fdg_plugins.objectives import make_objective, see
from fdg_plugins.testing.objectives import received_by
from tests.objectives.local_steps import CLASSES, Batch, ReportRound, make_batches, trained

Gradient = dict[str, torch.Tensor]


def classifier_names(model: ExtractorClassifier) -> list[str]:
    return [name for name, _ in model.named_parameters() if name.startswith("classifier.")]


def random_gradient(model: ExtractorClassifier, seed: int = 3) -> Gradient:
    generator = torch.Generator().manual_seed(seed)
    parameters = dict(model.named_parameters())
    return {
        f"gradient/{name}": torch.randn(parameters[name].shape, generator=generator) for name in classifier_names(model)
    }


def linear_penalty(model: ExtractorClassifier, batch: Batch, mean: Gradient) -> torch.Tensor:
    """The penalty of a linear classifier from the closed form of its gradient: (softmax - one hot)' z / B."""
    images, labels = batch
    z = model.features(images)
    error = torch.softmax(model.classifier(z), dim=1) - torch.nn.functional.one_hot(labels, CLASSES)
    weight = error.t() @ z / len(labels) - mean["gradient/classifier.weight"]
    bias = error.mean(dim=0) - mean["gradient/classifier.bias"]
    return weight.square().sum() + bias.square().sum()


def test_loss_is_the_closed_form(linear_model: ExtractorClassifier) -> None:
    batch, mean = make_batches(linear_model)[0], random_gradient(linear_model)
    linear_model.eval()
    objective = FedIIRObjective(strength=0.1)
    ours = objective.local(mean, linear_model).loss(linear_model, *batch)
    defined = cross_entropy(linear_model(batch[0]), batch[1]) + 0.05 * linear_penalty(linear_model, batch, mean)
    torch.testing.assert_close(ours, defined)
    parameters = list(linear_model.parameters())
    for one, other in zip(torch.autograd.grad(ours, parameters), torch.autograd.grad(defined, parameters), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("sizes", [(13,), (4, 5, 4), (1, 12)])
def test_report_is_the_gradient_of_the_pooled_loss(model: ExtractorClassifier, sizes: tuple[int, ...]) -> None:
    images = torch.cat([images for images, _ in make_batches(model)])
    labels = torch.arange(13) % CLASSES
    split = list(zip(images.split(list(sizes)), labels.split(list(sizes)), strict=True))
    report = FedIIRObjective().report_received(model, see(model, split), CLASSES)
    model.eval()
    names = classifier_names(model)
    loss = cross_entropy(model(images), labels)
    expected = torch.autograd.grad(loss, [dict(model.named_parameters())[name] for name in names])
    assert sorted(report) == sorted(f"gradient/{name}" for name in names)
    for name, gradient in zip(names, expected, strict=True):
        torch.testing.assert_close(report[f"gradient/{name}"], gradient, rtol=1e-4, atol=1e-6)


def exchange_of(ema: float, phase: Literal["probe", "train"] = "probe") -> GradientExchange:
    return GradientExchange(ema, {"classifier.weight": (2,)}, phase)


def run_round(exchange: GradientExchange, gradients: dict[str, list[float]]) -> list[float]:
    of_round = ReportRound(exchange, {})
    for site, gradient in gradients.items():
        of_round.accept(site, {"gradient/classifier.weight": torch.tensor(gradient)}, None)
    of_round.finish(gradients)
    return exchange.broadcast()["gradient/classifier.weight"].tolist()


def test_the_moving_average_by_hand() -> None:
    # v = 0.75, from zero: 0.25 * mean((4, 0), (0, 8)) = (0.5, 1); then 0.75 * (0.5, 1) + 0.25 * (4, 4).
    exchange = exchange_of(0.75)
    assert exchange.broadcast() == {}
    assert run_round(exchange, {"b": [0.0, 8.0], "a": [4.0, 0.0]}) == [0.5, 1.0]
    assert run_round(exchange, {"c": [4.0, 4.0]}) == [1.375, 1.75]


@pytest.mark.parametrize(("sent", "strength"), [(False, 0), (True, 0.1)])
def test_frozen_batchnorm_keeps_statistics(linear_model: ExtractorClassifier, sent: bool, strength: float) -> None:
    before = copy.deepcopy(dict(linear_model.state_dict()))
    received = random_gradient(linear_model) if sent else {}
    local = FedIIRObjective(strength=strength, frozen_batchnorm=True).local(received, linear_model)
    after = trained(linear_model, local, make_batches(linear_model))
    buffers = [name for name, _ in linear_model.named_buffers()]
    assert len(buffers) == 12
    assert all(torch.equal(after[name], before[name]) for name in buffers)
    assert not any(torch.equal(after[name], before[name]) for name, _ in linear_model.named_parameters())


def test_alignment_is_in_float32(linear_model: ExtractorClassifier, monkeypatch: pytest.MonkeyPatch) -> None:
    objective = make_objective({"name": "iir", "strength": 1.0})
    local = objective.local(received_by(objective), linear_model)
    images, labels = make_batches(linear_model)[0]
    features = linear_model.features(images).detach()
    monkeypatch.setattr(linear_model, "features", lambda _: features)
    exact = local.loss(linear_model, images, labels)
    with torch.autocast("cpu", torch.bfloat16):
        assert torch.equal(local.loss(linear_model, images, labels), exact)
