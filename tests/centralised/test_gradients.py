# SPDX-License-Identifier: Apache-2.0
"""Closed forms against plain automatic differentiation, in double precision."""

from collections.abc import Sequence

import pytest
import torch
from torch.nn.functional import cross_entropy

from fdg_plugins.lab.centralised.algorithm import Batch
from fdg_plugins.lab.centralised.algorithms import CentralisedIGA, gradient_spread, scale_derivative
from fdg_plugins.lab.centralised.fishr import gradient_variances, head_gradients, variance_spread
from fdg_plugins.models import ExtractorClassifier
from fdg_plugins.randomness import seeded
from tests.centralised.contract import CLASSES, small_batches, small_network


def double_batches() -> list[Batch]:
    return [(images.double(), labels) for images, labels in small_batches(size=4)]


def risks_of(model: ExtractorClassifier, batches: Sequence[Batch]) -> torch.Tensor:
    return torch.stack([cross_entropy(model(images), labels) for images, labels in batches])


def flat(gradients: Sequence[torch.Tensor]) -> torch.Tensor:
    return torch.cat([gradient.flatten() for gradient in gradients])


def test_the_derivative_by_the_scale_of_the_logits_is_that_of_autograd() -> None:
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(7, CLASSES, dtype=torch.float64, generator=generator, requires_grad=True)
    labels = torch.tensor([0, 1, 2, 0, 1, 2, 0])
    scale = torch.ones((), dtype=torch.float64, requires_grad=True)
    (naive,) = torch.autograd.grad(cross_entropy(scale * logits, labels), scale, create_graph=True)
    closed = scale_derivative(logits, labels)
    torch.testing.assert_close(closed, naive)
    # and so is its own gradient, which training follows
    torch.testing.assert_close(
        torch.autograd.grad(closed**2, logits)[0], torch.autograd.grad(naive**2, logits, retain_graph=True)[0]
    )


def naive_spread(model: ExtractorClassifier, batches: Sequence[Batch]) -> torch.Tensor:
    """Return the sum of squared distances of the domains' flat gradients from their mean, nothing held constant."""
    gradients = torch.stack(
        [
            flat(torch.autograd.grad(risk, list(model.parameters()), create_graph=True))
            for risk in risks_of(model, batches)
        ]
    )
    return ((gradients - gradients.mean(dim=0)) ** 2).sum()


def test_the_spread_of_gradients_and_its_gradient_are_those_of_autograd() -> None:
    model, batches = small_network().double(), double_batches()
    parameters = list(model.parameters())
    spread = gradient_spread(risks_of(model, batches), parameters)
    naive = naive_spread(model, batches)
    assert float(spread.detach()) > 1e-4
    torch.testing.assert_close(spread, naive)
    for own, other in zip(torch.autograd.grad(spread, parameters), torch.autograd.grad(naive, parameters), strict=True):
        torch.testing.assert_close(own, other)


def naive_head_gradients(model: ExtractorClassifier, images: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """Return the head's gradient of one image after the other."""
    parameters = list(model.classifier.parameters())
    rows = [
        flat(torch.autograd.grad(cross_entropy(model(image[None]), label[None]), parameters, create_graph=True))
        for image, label in zip(images, labels, strict=True)
    ]
    return torch.stack(rows)


@pytest.mark.parametrize("two_layer", [False, True])
def test_the_penalty_on_variances_and_its_gradient_are_those_of_autograd(two_layer: bool) -> None:
    model, batches = small_network(two_layer=two_layer).double(), double_batches()
    images, labels = (torch.cat(parts) for parts in zip(*batches, strict=True))
    closed = variance_spread(
        gradient_variances(head_gradients(model.classifier, model.features(images), labels), batches)
    )
    rows = [naive_head_gradients(model, *batch) for batch in batches]
    variances = [((own - own.mean(dim=0)) ** 2).mean(dim=0) for own in rows]
    mean = sum(variances) / len(variances)
    naive = sum(((own - mean) ** 2).mean() for own in variances) / len(variances)
    assert isinstance(naive, torch.Tensor)
    torch.testing.assert_close(closed, naive)
    parameters = list(model.parameters())  # the extractor's too: through features and softmax
    found, expected = (torch.autograd.grad(value, parameters) for value in (closed, naive))
    assert all(float(gradient.abs().max()) > 0 for gradient in found)
    for own, other in zip(found, expected, strict=True):
        torch.testing.assert_close(own, other)


class Attention(torch.nn.Module):
    """Features ``[B, 4]`` of images ``[B, 1, 3, 4]`` whose rows attend to each other."""

    def __init__(self) -> None:
        super().__init__()
        self.attention = torch.nn.MultiheadAttention(4, 2, batch_first=True)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        rows = images[:, 0]
        return self.attention(rows, rows, rows, need_weights=False)[0].mean(dim=1)


def test_the_gradient_of_iga_through_attention_is_that_of_finite_differences() -> None:
    with seeded(0, "attention"):
        model = ExtractorClassifier(Attention(), torch.nn.Linear(4, CLASSES)).double().train()
    weight = model.get_parameter("extractor.attention.in_proj_weight")
    batches, algorithm = [(images.double(), labels) for images, labels in small_batches()], CentralisedIGA(10.0)
    (gradient,) = torch.autograd.grad(algorithm.loss(model, batches, 0, {}).value, weight)
    # Logits travel in float32, so a step must be large and the agreement is that of float32.
    generator = torch.Generator().manual_seed(1)
    direction, step, ends = torch.randn(weight.shape, generator=generator, dtype=weight.dtype), 1e-2, []
    for sign in (1, -2):  # first up, then down past the start
        with torch.no_grad():
            weight.add_(direction, alpha=sign * step)
        ends.append(float(algorithm.loss(model, batches, 0, {}).value.detach()))
    assert float((gradient * direction).sum()) == pytest.approx((ends[0] - ends[1]) / (2 * step), rel=2e-2)
