# SPDX-License-Identifier: Apache-2.0
"""FedSR: the loss is the published one, the references stay at the site, and without noise and terms it is FedAvg."""

import copy
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.distributions import Normal, kl_divergence
from torch.nn.functional import cross_entropy, softplus

from fdg_plugins.methods.fedsr import (
    ClassReferences,
    FedSRObjective,
    LocalSimpleRepresentation,
    parts,
)
from fdg_plugins.models import ExtractorClassifier
from fdg_plugins.objectives import SiteRound, build_network, make_objective
from fdg_plugins.randomness import torch_generator
from fdg_plugins.settings.protocol import Protocol
from fdg_plugins.settings.site_config import SiteConfig
from fdg_plugins.state.site_memory import Kept
from fdg_plugins.training.results import TrainResult
from fdg_plugins.training.session import SiteSession
from tests.objectives.local_steps import same
from tests.objectives.objective_batches import CLASSES, make_batches

SITE = SiteRound("photo", 3, seed=7)
NAMES = {"mean", "raw_scale", "factor"}


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


# --- the network ---


def test_the_network_has_a_gaussian_layer_before_the_head_that_it_had(model: ExtractorClassifier) -> None:
    head = copy.deepcopy(model.classifier)
    size, layers = model.feature_size, len(head) if isinstance(head, nn.Sequential) else 1
    network = adapted(model).eval()
    gaussian, behind = parts(network)
    assert (gaussian.linear.in_features, gaussian.out_features) == (size, size)
    assert all(map(torch.equal, head.state_dict().values(), behind.state_dict().values()))
    assert len(head.state_dict()) == len(behind.state_dict())
    images = make_batches(network)[0][0]
    assert network.feature_size == size
    assert network.last_layer.out_features == CLASSES
    assert network.last_layer_names == (f"classifier.{layers}.weight", f"classifier.{layers}.bias")
    assert network.state_dict()[network.last_weight_name].data_ptr() == network.last_layer.weight.data_ptr()
    assert torch.equal(network(images), network.last_layer(network.penultimate(images)))
    assert torch.equal(network(images), head.eval()(gaussian(network.features(images))))


# --- the loss ---


@pytest.mark.parametrize("norm", ["norm", "squared"])
def test_the_loss_is_the_published_one_of_the_drawn_sample(network: ExtractorClassifier, norm: str) -> None:
    network.eval()
    images, labels = make_batches(network)[0]
    local = local_of(network, l2_strength=0.3, cmi_strength=0.02, norm=norm)
    with torch.no_grad():
        for number, parameter in enumerate(local.parameters()):
            parameter.add_(0.2 * normal(number, *parameter.shape).abs())
    gaussian, head = parts(network)
    mean, scale = gaussian.distribution(network.features(images))
    z = mean + scale * torch.randn(mean.shape, generator=torch_generator(7, "photo", 3, "sr"))
    lengths = [math.sqrt(sum(v * v for v in row)) for row in z.tolist()]
    length = sum(length if norm == "norm" else length**2 for length in lengths) / len(lengths)
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


# --- the neutral setting, and randomness ---


# --- the references: personal, kept, positive ---


# --- at a site ---


def test_nothing_of_the_references_leaves_the_site_and_the_next_round_goes_on_from_them(data_root: Path) -> None:
    protocol = Protocol(
        model="convnet",
        target="sketch",
        image_size=16,
        local_epochs=1,
        batch_size=8,
        rounds=3,
        objective={"name": "sr"},
    )
    site = SiteSession("photo", SiteConfig(device="cpu", data_root=data_root), protocol)
    state = dict(build_network(protocol, len(site.data.classes)).state_dict())

    def train(number: int, memory: Mapping[str, torch.Tensor]) -> TrainResult:
        return site.train(state, number, lambda: False, lambda epoch, loss: None, kept=Kept(memory))

    first = train(0, {})
    assert first.update.keys() == state.keys()
    assert {"classifier.0.linear.weight", "classifier.1.weight"} <= state.keys()
    assert first.tensors == {}
    assert set(first.kept.memory) == NAMES
    assert not any(name.rpartition(".")[2] in NAMES for name in first.update)
    assert all(bool(first.update[name].any()) for name in ("classifier.0.linear.weight", "classifier.1.weight"))
    fresh, later = train(2, {}), train(2, first.kept.memory)
    assert not same(fresh.update, later.update)
    assert not same(fresh.kept.memory, later.kept.memory)


# --- settings ---
