# SPDX-License-Identifier: Apache-2.0
"""FedLGF: the loss is the described one, targets are constants, and without strengths it is FedAvg."""

import copy
from typing import Any, Literal

import pytest
import torch
from torch.nn.functional import cross_entropy

from fdg_plugins.core.flatness import Perturbed, adversarial_predictions, divergence_from
from fdg_plugins.methods.fedlgf import LocalFlatness
from fdg_plugins.models import ExtractorClassifier
from fdg_plugins.objectives import SiteRound, make_objective
from fdg_plugins.randomness import torch_generator
from tests.objectives.local_steps import make_batches, trained

SITE = SiteRound("photo", 3, seed=7)
KINDS = ["singular", "weight"]


def local_of(model: ExtractorClassifier, site: SiteRound = SITE, **settings: Any) -> LocalFlatness:
    local = make_objective({"name": "lgf", **settings}).local({}, model, site)
    assert isinstance(local, LocalFlatness)
    return local


def moved(model: ExtractorClassifier) -> ExtractorClassifier:
    """A copy whose parameters have moved since the model was received."""
    other = copy.deepcopy(model)
    with torch.no_grad():
        for parameter in other.parameters():
            parameter.add_(0.05 * torch.ones_like(parameter))
    return other


@pytest.mark.parametrize("kind", KINDS)
def test_the_loss_is_the_described_one(model: ExtractorClassifier, kind: Literal["weight", "singular"]) -> None:
    received, current = model.eval(), moved(model).eval()
    strengths = {"local_strength": 0.3, "global_strength": 0.2}
    local = local_of(received, SITE, **strengths, perturbation=kind, probing=1.0, size=0.5)
    images, labels = make_batches(model)[0]
    generator = torch_generator(7, "photo", 3, "lgf")

    def draw(shape: tuple[int, ...]) -> torch.Tensor:
        return torch.randn(shape, generator=generator)

    logits, q = current(images), []
    for network in (current, received):  # first the local term, then the global one
        head = Perturbed.of(network.classifier, kind)
        q.append(adversarial_predictions(head, network.features(images), logits.softmax(dim=1), draw, 1.0, 0.5))
    expected = cross_entropy(logits, labels) + 0.3 * divergence_from(q[0], logits) + 0.2 * divergence_from(q[1], logits)
    torch.testing.assert_close(local.loss(current, images, labels), expected)


def test_the_global_target_stays_that_of_the_model_received(linear_model: ExtractorClassifier) -> None:
    local, before = local_of(linear_model), copy.deepcopy(linear_model)
    batches = make_batches(linear_model)
    trained(linear_model, local, batches)
    assert local.received is not None
    kept = local.received.model
    assert not kept.training
    assert all(
        torch.equal(*pair) for pair in zip(kept.state_dict().values(), before.state_dict().values(), strict=True)
    )
    assert not any(parameter.requires_grad for parameter in kept.parameters())
    assert all(parameter.requires_grad for parameter in linear_model.parameters())
