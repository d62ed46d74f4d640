# SPDX-License-Identifier: Apache-2.0
"""FedIIR: the loss is Algorithm 1's, the report the gradient of the pooled mean loss, however it was batched."""

import copy
from typing import Literal

import pytest
import torch
from torch.nn.functional import cross_entropy

from fdg_plugins.methods.fediir import FedIIRObjective, GradientExchange
from fdg_plugins.models import ExtractorClassifier
from fdg_plugins.objectives import see
from tests.objectives.objective_batches import CLASSES, Batch, Train, make_batches
from tests.objectives.report_round import ReportRound

Gradient = dict[str, torch.Tensor]
Variant = Literal["paper", "released"]


def classifier_names(model: ExtractorClassifier) -> list[str]:
    return [name for name, _ in model.named_parameters() if name.startswith("classifier.")]


def random_gradient(model: ExtractorClassifier, seed: int = 3) -> Gradient:
    generator = torch.Generator().manual_seed(seed)
    parameters = dict(model.named_parameters())
    return {
        f"gradient/{name}": torch.randn(parameters[name].shape, generator=generator) for name in classifier_names(model)
    }


# --- the loss ---


def linear_penalty(model: ExtractorClassifier, batch: Batch, mean: Gradient) -> torch.Tensor:
    """The penalty of a linear classifier from the closed form of its gradient: (softmax - one hot)' z / B."""
    images, labels = batch
    z = model.features(images)
    error = torch.softmax(model.classifier(z), dim=1) - torch.nn.functional.one_hot(labels, CLASSES)
    weight = error.t() @ z / len(labels) - mean["gradient/classifier.weight"]
    bias = error.mean(dim=0) - mean["gradient/classifier.bias"]
    return weight.square().sum() + bias.square().sum()


@pytest.mark.parametrize(("variant", "factor"), [("paper", 0.05), ("released", 0.1)])
def test_loss_and_gradients_are_those_of_the_closed_form(
    linear_model: ExtractorClassifier, variant: Variant, factor: float
) -> None:
    batch, mean = make_batches(linear_model)[0], random_gradient(linear_model)
    linear_model.eval()
    objective = FedIIRObjective(strength=0.1, variant=variant)
    ours = objective.local(mean, linear_model).loss(linear_model, *batch)
    defined = cross_entropy(linear_model(batch[0]), batch[1]) + factor * linear_penalty(linear_model, batch, mean)
    torch.testing.assert_close(ours, defined)
    parameters = list(linear_model.parameters())
    for one, other in zip(torch.autograd.grad(ours, parameters), torch.autograd.grad(defined, parameters), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-6)


def test_loss_and_gradients_are_those_of_differentiating_twice_by_hand(
    model: ExtractorClassifier, batches: list[Batch]
) -> None:
    images, labels = batches[0]
    model.eval()
    mean, names = random_gradient(model), classifier_names(model)
    ours = FedIIRObjective(strength=0.1).local(mean, model).loss(model, images, labels)
    loss = cross_entropy(model(images), labels)
    omega = [dict(model.named_parameters())[name] for name in names]
    gradients = torch.autograd.grad(loss, omega, create_graph=True)
    differences = [one - mean[f"gradient/{name}"] for name, one in zip(names, gradients, strict=True)]
    defined = loss + 0.05 * sum(difference.square().sum() for difference in differences)
    torch.testing.assert_close(ours, defined)
    parameters = list(model.parameters())
    for one, other in zip(torch.autograd.grad(ours, parameters), torch.autograd.grad(defined, parameters), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-6)


def test_the_extractor_is_pulled_by_the_penalty_too(linear_model: ExtractorClassifier) -> None:
    batch, mean = make_batches(linear_model)[0], random_gradient(linear_model)
    linear_model.eval()
    extractor = list(linear_model.extractor.parameters())
    found = [
        torch.autograd.grad(local.loss(linear_model, *batch), extractor)
        for local in (FedIIRObjective(strength=1.0).local(sent, linear_model) for sent in ({}, mean))
    ]
    assert any(not torch.allclose(one, other) for one, other in zip(*found, strict=True))


# --- the report ---


@pytest.mark.parametrize("sizes", [(13,), (4, 5, 4), (1, 12), (1,) * 13])
def test_the_report_is_the_gradient_of_the_pooled_mean_loss_for_uneven_batches(
    model: ExtractorClassifier, sizes: tuple[int, ...]
) -> None:
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


def test_a_report_can_be_made_where_gradients_are_switched_off(
    linear_model: ExtractorClassifier,
) -> None:
    batches = make_batches(linear_model)
    expected = FedIIRObjective().report_received(linear_model, see(linear_model, batches), CLASSES)
    with torch.no_grad():
        report = FedIIRObjective().report_received(linear_model, see(linear_model, batches), CLASSES)
    assert all(torch.equal(report[name], expected[name]) for name in expected)


def test_nothing_is_reported_of_the_trained_model(linear_model: ExtractorClassifier) -> None:
    assert FedIIRObjective().report_trained(linear_model, see(linear_model, make_batches(linear_model)), CLASSES) == {}


# --- the server ---


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


def test_without_memory_it_is_the_mean_of_the_round_and_with_nothing_new_it_stays_zero() -> None:
    forgetful, deaf = exchange_of(0.0), exchange_of(1.0)
    for exchange in (forgetful, deaf):
        run_round(exchange, {"a": [9.0, 9.0]})
    assert run_round(forgetful, {"a": [1.0, 2.0], "b": [3.0, 2.0]}) == [2.0, 2.0]
    assert run_round(deaf, {"a": [1.0, 2.0]}) == [0.0, 0.0]


@pytest.mark.parametrize(("probe", "phase"), [("extra_task", "probe"), ("previous_round", "train")])
def test_gradients_come_with_the_task_that_the_setting_names(
    linear_model: ExtractorClassifier, probe: Literal["extra_task", "previous_round"], phase: str
) -> None:
    objective = FedIIRObjective(probe=probe)
    exchange = objective.exchange(linear_model, CLASSES)
    assert exchange is not None
    assert exchange.phase == phase
    assert objective.probes == (phase == "probe")


@pytest.mark.parametrize("variant", ["paper", "released"])
def test_one_site_without_memory_has_no_penalty_at_the_first_full_batch_step(
    model: ExtractorClassifier, batches: list[Batch], variant: Variant
) -> None:
    images = torch.cat([images for images, _ in batches])
    labels = torch.cat([labels for _, labels in batches])
    objective = FedIIRObjective(strength=1e3, ema=0.0, variant=variant)
    exchange = objective.exchange(model, CLASSES)
    assert exchange is not None
    of_round = ReportRound(exchange, model.state_dict())
    of_round.accept("a", objective.report_received(model, see(model, batches), CLASSES), None)
    of_round.finish(["a"])
    model.eval()
    loss = objective.local(exchange.broadcast(), model).loss(model, images, labels)
    torch.testing.assert_close(loss, cross_entropy(model(images), labels))


# --- BatchNorm ---


@pytest.mark.parametrize("sent", [False, True])
@pytest.mark.parametrize("strength", [0, 0.1])
def test_frozen_batchnorm_keeps_its_statistics_and_trains_its_affine_pair(
    linear_model: ExtractorClassifier, train: Train, sent: bool, strength: float
) -> None:
    before = copy.deepcopy(dict(linear_model.state_dict()))
    received = random_gradient(linear_model) if sent else {}
    local = FedIIRObjective(strength=strength, frozen_batchnorm=True).local(received, linear_model)
    after = train(linear_model, local, make_batches(linear_model))
    buffers = [name for name, _ in linear_model.named_buffers()]
    assert len(buffers) == 12
    assert all(torch.equal(after[name], before[name]) for name in buffers)
    assert not any(torch.equal(after[name], before[name]) for name, _ in linear_model.named_parameters())


def test_without_freezing_the_statistics_follow_the_data(linear_model: ExtractorClassifier, train: Train) -> None:
    before = linear_model.state_dict()["extractor.1.running_mean"].clone()
    local = FedIIRObjective().local({}, linear_model)
    assert not torch.equal(train(linear_model, local, make_batches(linear_model))["extractor.1.running_mean"], before)


# --- what one site can do ---------------------------------------------------------------------------


def gradients_of(scale: float) -> Gradient:
    return {
        "gradient/classifier.weight": torch.full((2, 3), scale),
        "gradient/classifier.bias": torch.full((2,), scale),
    }


@pytest.mark.parametrize(("lie", "mean"), [(2.0, 4 / 3), (10.0, 4.0), (1e12, 4.0)])
def test_of_three_sites_none_pulls_the_mean_farther_than_ten_medians(lie: float, mean: float) -> None:
    exchange = GradientExchange(0.0, {"classifier.weight": (2, 3), "classifier.bias": (2,)}, "probe")
    exchange.begin_round({})
    sites = {"art": 1.0, "cartoon": 1.0, "photo": lie}
    exchange.finish({site: exchange.read(site, gradients_of(scale), None) for site, scale in sites.items()})
    assert exchange.broadcast()["gradient/classifier.bias"].tolist() == pytest.approx([mean, mean])
