# SPDX-License-Identifier: Apache-2.0
"""FedProx: the loss and its gradients are those of the definition, one step is FedAvg's, and mu zero is FedAvg."""

from collections.abc import Iterable

import torch
from torch.nn.functional import cross_entropy

from fdg_plugins.methods.fedprox import FedProxObjective, LocalProximal
from fdg_plugins.models import ExtractorClassifier
from tests.objectives.local_steps import Batch


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


def test_loss_and_gradients_are_as_defined(model: ExtractorClassifier, batches: list[Batch]) -> None:
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
