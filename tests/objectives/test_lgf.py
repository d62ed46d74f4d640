# SPDX-License-Identifier: Apache-2.0
"""FedLGF: the loss is the described one, targets are constants, and without strengths it is FedAvg."""

import copy
import math
from typing import Any, Literal

import pytest
import torch
from torch.nn.functional import cross_entropy

from fdg_plugins.core.flatness import Perturbed, adversarial_predictions, divergence_from
from fdg_plugins.errors import SettingsError
from fdg_plugins.methods.fedlgf import FedLGFObjective, LocalFlatness
from fdg_plugins.models import ExtractorClassifier
from fdg_plugins.objectives import SiteRound, make_objective
from fdg_plugins.randomness import torch_generator
from fdg_plugins.testing.inputs import same_bits
from tests.objectives.objective_batches import Train, make_batches

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


@pytest.mark.parametrize("kind", KINDS)
def test_targets_without_a_perturbation_cost_nothing_at_the_first_step(model: ExtractorClassifier, kind: str) -> None:
    model.eval()
    images, labels = make_batches(model)[0]
    local = local_of(model, local_strength=5, global_strength=5, perturbation=kind, size=0)
    loss, plain = local.loss(model, images, labels), cross_entropy(model(images), labels)
    torch.testing.assert_close(loss, plain)
    gradients = torch.autograd.grad(loss, list(model.parameters()))
    of_plain = torch.autograd.grad(plain, list(model.parameters()))
    torch.testing.assert_close(gradients, of_plain, rtol=1e-3, atol=1e-4)


def test_the_global_target_stays_that_of_the_model_received(linear_model: ExtractorClassifier, train: Train) -> None:
    local, before = local_of(linear_model), copy.deepcopy(linear_model)
    batches = make_batches(linear_model)
    train(linear_model, local, batches)
    assert local.received is not None
    kept = local.received.model
    assert not kept.training
    assert all(
        torch.equal(*pair) for pair in zip(kept.state_dict().values(), before.state_dict().values(), strict=True)
    )
    assert not any(parameter.requires_grad for parameter in kept.parameters())
    assert all(parameter.requires_grad for parameter in linear_model.parameters())


def test_the_divergence_is_computed_in_float32_even_under_autocast(linear_model: ExtractorClassifier) -> None:
    features = linear_model.features(make_batches(linear_model)[0][0]).detach()
    logits = linear_model.classifier(features).detach()
    head = Perturbed.of(linear_model.classifier, "weight")
    exact = local_of(linear_model)._divergence(head, features, logits)
    with torch.autocast("cpu", torch.bfloat16):
        assert torch.equal(local_of(linear_model)._divergence(head, features, logits), exact)


def test_a_strength_of_zero_leaves_its_term_out(linear_model: ExtractorClassifier) -> None:
    assert local_of(linear_model, global_strength=0).received is None
    linear_model.eval()
    images, labels = make_batches(linear_model)[0]
    current = moved(linear_model).eval()
    only_global = local_of(linear_model, local_strength=0).loss(current, images, labels)
    assert only_global > cross_entropy(current(images), labels)


def test_two_rounds_alike_agree_and_the_noise_follows_seed_site_and_round(
    linear_model: ExtractorClassifier, train: Train
) -> None:
    batches = make_batches(linear_model)

    def trained(site: SiteRound) -> dict[str, torch.Tensor]:
        torch.rand(3)  # no global generator counts
        model = copy.deepcopy(linear_model)
        return train(model, local_of(model, site, size=1.0), batches)

    first = trained(SITE)
    for other in (SiteRound("sketch", 3, seed=7), SiteRound("photo", 4, seed=7), SiteRound("photo", 3, seed=8)):
        assert any(not torch.equal(value, first[name]) for name, value in trained(other).items())
    assert same_bits(trained(SITE), first)


def test_uniform_noise_lies_around_zero(linear_model: ExtractorClassifier) -> None:
    drawn = local_of(linear_model, noise="uniform")._draw((2000,))
    assert -0.5 <= drawn.min() < -0.4
    assert 0.4 < drawn.max() < 0.5


def test_defaults_are_those_of_the_released_run() -> None:
    assert make_objective("lgf") == FedLGFObjective(0.1, 0.1, "singular", 10.0, 0.1, "normal")


@pytest.mark.parametrize(
    ("setting", "value"),
    [
        ("local_strength", -1),
        ("global_strength", math.inf),
        ("perturbation", "bias"),
        ("probing", 0),
        ("size", -0.1),
        ("noise", "cauchy"),
    ],
)
def test_a_value_out_of_range_is_refused_by_name(setting: str, value: object) -> None:
    with pytest.raises(SettingsError, match=rf"^{setting} is .*, expected .*\.$"):
        make_objective({"name": "lgf", setting: value})
