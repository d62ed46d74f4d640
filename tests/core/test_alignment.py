# SPDX-License-Identifier: Apache-2.0
"""Classifier gradients: squared distances that can be trained on, and a mean that forgets at the stated rate."""

import pytest
import torch
from torch import nn

from fdg_plugins.core.alignment import classifier_gradient, gradient_alignment_penalty, update_mean_gradient

FACTOR = 0.7


class Network(nn.Module):
    """A smooth extractor of two layers and a linear or two-layer classifier, in float64."""

    def __init__(self, layers: int = 1) -> None:
        super().__init__()
        with torch.random.fork_rng(devices=[]):
            torch.default_generator.manual_seed(layers)
            self.extractor = nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 5), nn.Tanh())
            head = [nn.Linear(5, 3)] if layers == 1 else [nn.Linear(5, 4), nn.Tanh(), nn.Linear(4, 3)]
            self.classifier = nn.Sequential(*head)
        self.double()

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return self.classifier(self.extractor(images))

    def loss(self) -> torch.Tensor:
        generator = torch.Generator().manual_seed(1)
        images = torch.randn(7, 4, generator=generator, dtype=torch.float64)
        return nn.functional.cross_entropy(self(images), torch.randint(3, (7,), generator=generator))

    def omega(self) -> dict[str, torch.Tensor]:
        return dict(self.classifier.named_parameters())


def like(parameters: dict[str, torch.Tensor], seed: int) -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return {
        name: torch.randn(value.shape, generator=generator, dtype=value.dtype) for name, value in parameters.items()
    }


def test_the_gradient_of_a_linear_classifier_by_hand() -> None:
    # One sample z = (1, 2) of class 0, W = 0: softmax is 1/2 each, so dL/do = (-1/2, 1/2), dL/dW = dL/do z'.
    weight, bias = torch.zeros(2, 2, requires_grad=True), torch.zeros(2, requires_grad=True)
    loss = nn.functional.cross_entropy(torch.tensor([[1.0, 2.0]]) @ weight.t() + bias, torch.tensor([0]))
    gradient = classifier_gradient(loss, {"weight": weight, "bias": bias})
    assert gradient["weight"].tolist() == [[-0.5, -1.0], [0.5, 1.0]]
    assert gradient["bias"].tolist() == [-0.5, 0.5]


@pytest.mark.parametrize("layers", [1, 2])
def test_the_whole_objective_has_the_gradient_of_finite_differences_in_every_parameter(layers: int) -> None:
    network = Network(layers)
    mean = like(network.omega(), 2)

    def objective() -> torch.Tensor:
        loss = network.loss()
        return loss + FACTOR * gradient_alignment_penalty(loss, network.omega(), mean)

    objective().backward()
    for parameter in network.parameters():
        assert parameter.grad is not None
        for position in range(parameter.numel()):
            entry = parameter.data.view(-1)
            kept, step = entry[position].item(), 1e-5
            entry[position] = kept + step
            above = objective().item()
            entry[position] = kept - step
            below = objective().item()
            entry[position] = kept
            assert parameter.grad.view(-1)[position].item() == pytest.approx((above - below) / (2 * step), abs=1e-8)


def single(value: float) -> dict[str, torch.Tensor]:
    return {"w": torch.tensor([value], dtype=torch.float64)}


def test_the_mean_gradient_by_hand() -> None:
    # Sites 2 and 4 have the mean 3; with v = 0.75 and a start of zero 0.25 * 3 = 0.75, then 0.75 * 0.75 + 0.75.
    sites = {"a": single(2.0), "b": single(4.0)}
    first = update_mean_gradient(None, sites, 0.75)
    assert first["w"].item() == 0.75
    assert update_mean_gradient(first, sites, 0.75)["w"].item() == 1.3125
