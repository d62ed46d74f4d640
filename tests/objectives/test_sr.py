# SPDX-License-Identifier: Apache-2.0
"""FedSR: the loss is the published one, the references stay at the site, and without noise and terms it is FedAvg."""

import math
from typing import Any

import pytest
import torch
from torch.distributions import Normal, kl_divergence
from torch.nn.functional import cross_entropy, softplus

from fdg_plugins.methods.fedsr import ClassReferences, FedSRObjective, LocalSimpleRepresentation, parts
from fdg_plugins.models import ExtractorClassifier
from fdg_plugins.objectives import SiteRound, make_objective
from fdg_plugins.randomness import torch_generator
from tests.objectives.local_steps import make_batches

SITE = SiteRound("photo", 3, seed=7)


def adapted(model: ExtractorClassifier, seed: int = 1) -> ExtractorClassifier:
    return FedSRObjective().adapt(model, (3, 16, 16), seed)


@pytest.fixture
def network(model: ExtractorClassifier) -> ExtractorClassifier:
    """Each of the four models, as FedSR trains it."""
    return adapted(model)


def local_of(model: ExtractorClassifier, site: SiteRound = SITE, **settings: Any) -> LocalSimpleRepresentation:
    local = make_objective({"name": "sr", **settings}).local({}, model, site)
    assert isinstance(local, LocalSimpleRepresentation)
    return local


def normal(seed: int, *shape: int) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def test_the_loss_is_the_published_one_of_the_drawn_sample(network: ExtractorClassifier) -> None:
    network.eval()
    images, labels = make_batches(network)[0]
    local = local_of(network, l2_strength=0.3, cmi_strength=0.02)
    with torch.no_grad():
        for number, parameter in enumerate(local.parameters()):
            parameter.add_(0.2 * normal(number, *parameter.shape).abs())
    gaussian, head = parts(network)
    mean, scale = gaussian.distribution(network.features(images))
    z = mean + scale * torch.randn(mean.shape, generator=torch_generator(7, "photo", 3, "sr"))
    lengths = [math.sqrt(sum(v * v for v in row)) for row in z.tolist()]
    length = sum(lengths) / len(lengths)
    r_mu, r_sigma, factor = (local.references.state_dict()[name] for name in ("mean", "raw_scale", "factor"))
    of_class = Normal(r_mu[labels], softplus(r_sigma)[labels])
    divergence = kl_divergence(Normal(factor * mean, factor * scale), of_class).sum(dim=1).mean()
    expected = cross_entropy(head(z), labels) + 0.3 * length + 0.02 * divergence
    torch.testing.assert_close(local.loss(network, images, labels), expected, rtol=1e-5, atol=1e-5)


def test_the_divergence_of_a_hand_sized_example() -> None:
    # One coordinate, N(1, 2^2) against N(0, r^2) with r = softplus(1): log(r/2) + (4 + 1)/(2 r^2) - 1/2.
    references, r = ClassReferences(1, 1).double(), math.log(1 + math.e)
    divergence = references.divergence(torch.ones(1, 1).double(), torch.full((1, 1), 2.0).double(), torch.tensor([0]))
    assert r == pytest.approx(1.3133, abs=5e-5)
    assert divergence.item() == pytest.approx(math.log(r / 2) + 5 / (2 * r * r) - 0.5)
