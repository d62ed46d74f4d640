# SPDX-License-Identifier: Apache-2.0
"""FedDIM and FedIIR: losses as printed, reports however they were batched, and what the server makes of them."""

import copy
from collections import defaultdict

import pytest
import torch
from torch.nn.functional import cross_entropy

from fdg_plugins.core.insight import insight_matrix
from fdg_plugins.methods.feddim import FedDIMObjective, InsightExchange, Target
from fdg_plugins.methods.fediir import FedIIRObjective, GradientExchange
from fdg_plugins.models import ExtractorClassifier
from fdg_plugins.objectives import make_objective, see
from fdg_plugins.testing.objectives import received_by
from tests.objectives.local_steps import CLASSES, Batch, ReportRound, make_batches, trained
from tests.random_tensors import normal

Y, D = 3, 4
WEIGHT = "classifier.weight"
TARGETS = ["insight", "feature", "logit"]


def read_as(target: str, features: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    """What a target reads of each of the features ``[B, D]``."""
    return {"insight": insight_matrix(features, weight), "feature": features, "logit": features @ weight.t()}[target]


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("present", [[True, False, True], [False, False, False]])
def test_loss_and_gradients_are_those_of_equation_7_as_printed(
    model: ExtractorClassifier, batches: list[Batch], target: Target, present: list[bool]
) -> None:
    model.eval()
    size, known = model.last_layer.in_features, torch.tensor(present)
    shape = {"insight": (size, CLASSES), "feature": (size,), "logit": (CLASSES,)}[target]
    values = torch.where(known.view(-1, *[1] * len(shape)), normal(3, CLASSES, *shape), 0.0)
    objective = FedDIMObjective(strength=0.3, target=target)
    images, labels = batches[0]
    ours = objective.local({"insight": values, "present": known}, model).loss(model, images, labels)
    own = read_as(target, model.penultimate(images), model.last_layer.weight)  # one row for each image
    squares = (own - values[labels]).flatten(1).square().sum(dim=1)
    penalty = (squares * known[labels]).sum() / len(labels)
    defined = cross_entropy(model(images), labels) + 0.3 * penalty
    torch.testing.assert_close(ours, defined, rtol=1e-5, atol=1e-6)
    parameters = list(model.parameters())
    for one, other in zip(torch.autograd.grad(ours, parameters), torch.autograd.grad(defined, parameters), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-3, atol=1e-4 * max(1.0, float(other.abs().max())))


GLOBAL = {WEIGHT: normal(50, Y, D), "classifier.bias": normal(51, Y)}


@pytest.mark.parametrize("target", TARGETS)
def test_first_global_insight_is_the_sites_average(target: Target) -> None:
    exchange, means = InsightExchange(0.5, target, Y, D, WEIGHT), defaultdict(list)
    of_round = ReportRound(exchange, GLOBAL)
    # Class 0 at every site, class 1 at all but one, class 2 at one alone.
    for seed, counts in enumerate(torch.tensor([[2, 3, 0], [1, 1, 0], [4, 0, 5]])):
        moved, of_classes = normal(seed + 100, Y, D), normal(seed, int(counts.sum()), D).split(counts.tolist())
        held = [label for label in range(Y) if counts[label]]
        for label in held:  # Eq. 4 sample by sample
            means[label].append(read_as(target, of_classes[label], GLOBAL[WEIGHT] + moved).mean(dim=0))
        class_means = torch.stack([of_classes[label].mean(dim=0) for label in held])
        of_round.accept(str(seed), {"class_means": class_means, "class_counts": counts}, {WEIGHT: moved})
    of_round.finish("012")
    down = exchange.broadcast()
    assert down["present"].tolist() == [True, True, True]
    expected = torch.stack([torch.stack(means[label]).mean(dim=0) for label in range(Y)])
    torch.testing.assert_close(down["insight"], expected, rtol=1e-5, atol=1e-5)


Gradient = dict[str, torch.Tensor]


def classifier_names(model: ExtractorClassifier) -> list[str]:
    return [name for name, _ in model.named_parameters() if name.startswith("classifier.")]


def random_gradient(model: ExtractorClassifier, seed: int = 3) -> Gradient:
    return {f"gradient/{name}": normal(seed, *model.get_parameter(name).shape) for name in classifier_names(model)}


def test_loss_is_the_closed_form(linear_model: ExtractorClassifier) -> None:
    """The gradient of a linear classifier is (softmax - one hot)' z / B."""
    model, (images, labels), mean = linear_model.eval(), make_batches(linear_model)[0], random_gradient(linear_model)
    ours = FedIIRObjective(strength=0.1).local(mean, model).loss(model, images, labels)
    z = model.features(images)
    error = torch.softmax(model.classifier(z), dim=1) - torch.nn.functional.one_hot(labels, CLASSES)
    weight = error.t() @ z / len(labels) - mean["gradient/classifier.weight"]
    bias = error.mean(dim=0) - mean["gradient/classifier.bias"]
    defined = cross_entropy(model(images), labels) + 0.05 * (weight.square().sum() + bias.square().sum())
    torch.testing.assert_close(ours, defined)
    parameters = list(model.parameters())
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


def run_gradients(exchange: GradientExchange, gradients: dict[str, list[float]]) -> list[float]:
    of_round = ReportRound(exchange, {})
    for site, gradient in gradients.items():
        of_round.accept(site, {"gradient/classifier.weight": torch.tensor(gradient)}, None)
    of_round.finish(gradients)
    return exchange.broadcast()["gradient/classifier.weight"].tolist()


def test_the_moving_average_by_hand() -> None:
    # v = 0.75, from zero: 0.25 * mean((4, 0), (0, 8)) = (0.5, 1); then 0.75 * (0.5, 1) + 0.25 * (4, 4).
    exchange = GradientExchange(0.75, {WEIGHT: (2,)}, "probe")
    assert exchange.broadcast() == {}
    assert run_gradients(exchange, {"b": [0.0, 8.0], "a": [4.0, 0.0]}) == [0.5, 1.0]
    assert run_gradients(exchange, {"c": [4.0, 4.0]}) == [1.375, 1.75]


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
