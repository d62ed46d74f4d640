# SPDX-License-Identifier: Apache-2.0
"""RSC, FedLGF, FedSR, FedRoD and FedProx: a site's loss is that of the definition, and what stays at the site stays."""

import copy
import math
from dataclasses import replace
from typing import Any, Literal

import pytest
import torch
from torch.distributions import Normal, kl_divergence
from torch.nn.functional import cross_entropy, softplus

from fdg_plugins.core.flatness import Perturbed, adversarial_predictions, divergence_from
from fdg_plugins.methods.fedlgf import LocalFlatness
from fdg_plugins.methods.fedprox import LocalProximal
from fdg_plugins.methods.fedrod import LocalRobustDecoupling
from fdg_plugins.methods.fedsr import FedSRObjective, LocalSimpleRepresentation, parts
from fdg_plugins.methods.rsc import SMALLEST_LOSS, LocalSelfChallenge
from fdg_plugins.models import ExtractorClassifier
from fdg_plugins.objectives import SiteRound, Trained, make_objective
from fdg_plugins.randomness import torch_generator
from fdg_plugins.testing.inputs import same_bits
from tests.objectives.local_steps import Batch, local_of, make_batches, trained
from tests.random_tensors import normal_double as normal


def defined(
    model: ExtractorClassifier, maps: torch.Tensor, labels: torch.Tensor, positions: bool, least: float = -1.0
) -> torch.Tensor:
    """What is kept of ``maps: [B, D, H, W]`` with fractions 1/3, sample by sample, from the gradient of the maps."""
    maps = maps.detach().requires_grad_()
    logits = model.classifier(maps.mean(dim=(2, 3)))
    (gradient,) = torch.autograd.grad(sum(logits[b, y] for b, y in enumerate(labels.tolist())), maps)
    kept, lost = torch.ones_like(maps, dtype=torch.bool), []
    for b, y in enumerate(labels.tolist()):
        mean = gradient[b].mean(dim=(1, 2))
        scores = (maps[b] * mean[:, None, None]).sum(dim=0).flatten() if positions else mean
        top = scores.topk(len(scores) // 3).indices
        if positions:
            kept[b].flatten(1)[:, top] = False
        else:
            kept[b, top] = False
        muted = model.classifier((maps[b] * kept[b]).mean(dim=(1, 2)))
        lost.append((logits[b].softmax(0)[y] - muted.softmax(0)[y]).item())
    chosen = sorted(range(len(labels)), key=lambda b: -lost[b])[: len(labels) // 3]
    for b in range(len(labels)):
        if b not in chosen or lost[b] <= least:
            kept[b] = True
    return kept


def test_what_is_muted_is_as_defined_and_both_kinds_come_up(model: ExtractorClassifier) -> None:
    local, seen = local_of(LocalSelfChallenge, "rsc", model), []
    for number in range(6):
        images, labels = make_batches(model, (6,), seed=number)[0]
        maps = model.double().feature_map(images.double())  # in double precision no two scores are equal
        kept = local.kept(model, maps, labels)
        positions = kept.shape == (6, 1, *maps.shape[2:])
        assert positions or kept.shape == (*maps.shape[:2], 1, 1)
        assert torch.equal(kept.expand_as(maps), defined(model, maps, labels, positions, SMALLEST_LOSS))
        seen.append(positions)
    assert set(seen) == {True, False}


@pytest.mark.parametrize("variant", ["spatial_channel", "feature"])
def test_loss_is_of_what_is_kept(model: ExtractorClassifier, variant: str) -> None:
    images, labels = make_batches(model, (6,))[0]
    twin = copy.deepcopy(model)
    loss = local_of(LocalSelfChallenge, "rsc", model, variant=variant).loss(model, images, labels)
    maps = twin.feature_map(images)
    kept = local_of(LocalSelfChallenge, "rsc", twin, variant=variant).kept(twin, maps, labels)
    expected = cross_entropy(twin.classifier((maps * kept).mean(dim=(2, 3))), labels)
    torch.testing.assert_close(loss, expected)
    assert not bool(kept.all())
    ours, theirs = (torch.autograd.grad(one, [*of.parameters()]) for one, of in ((loss, model), (expected, twin)))
    for one, other in zip(ours, theirs, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-6)


def moved(model: ExtractorClassifier) -> ExtractorClassifier:
    """A copy whose parameters have moved since the model was received."""
    other = copy.deepcopy(model)
    with torch.no_grad():
        for number, parameter in enumerate(other.parameters()):
            parameter.add_(0.05 * normal(number, *parameter.shape))
    return other


@pytest.mark.parametrize(("kind", "own", "others"), [("singular", 0.3, 0.2), ("weight", 0.3, 0), ("weight", 0, 0.2)])
def test_the_loss_of_flatness_is_as_described(
    model: ExtractorClassifier, kind: Literal["weight", "singular"], own: float, others: float
) -> None:
    received, current = model.eval(), moved(model).eval()
    strengths: dict[str, Any] = {"local_strength": own, "global_strength": others}
    local = local_of(LocalFlatness, "lgf", received, **strengths, perturbation=kind, probing=1.0, size=0.5)
    images, labels = make_batches(model)[0]
    generator = torch_generator(7, "photo", 3, "lgf")

    def draw(shape: tuple[int, ...]) -> torch.Tensor:
        return torch.randn(shape, generator=generator)

    logits = current(images)
    expected = cross_entropy(logits, labels)
    for strength, network in ((own, current), (others, received)):  # a term without weight draws no noise
        if strength:
            head, p = Perturbed.of(network.classifier, kind), logits.softmax(dim=1)
            q = adversarial_predictions(head, network.features(images), p, draw, 1.0, 0.5)
            expected = expected + strength * divergence_from(q, logits)
    torch.testing.assert_close(local.loss(current, images, labels), expected)


def test_the_global_target_stays_that_of_the_model_received(linear_model: ExtractorClassifier) -> None:
    local, before = local_of(LocalFlatness, "lgf", linear_model), copy.deepcopy(linear_model)
    batches = make_batches(linear_model)
    trained(linear_model, local, batches)
    assert local.received is not None
    kept = local.received.model
    assert not kept.training
    assert same_bits(kept.state_dict(), before.state_dict())
    assert not any(parameter.requires_grad for parameter in kept.parameters())
    assert all(parameter.requires_grad for parameter in linear_model.parameters())


@pytest.mark.parametrize(("l2", "cmi"), [(0.3, 0.02), (0, 0)])
def test_the_loss_is_the_published_one_of_the_drawn_sample(model: ExtractorClassifier, l2: float, cmi: float) -> None:
    network = FedSRObjective().adapt(model, (3, 16, 16), 1).eval()
    images, labels = make_batches(network)[0]
    local = local_of(LocalSimpleRepresentation, "sr", network, l2_strength=l2, cmi_strength=cmi)
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
    expected = cross_entropy(head(z), labels) + l2 * length + cmi * divergence
    torch.testing.assert_close(local.loss(network, images, labels), expected, rtol=1e-5, atol=1e-5)


UNEQUAL = SiteRound("photo", 0, seed=1, learning_rate=0.05, class_counts=(6, 2, 5))
NO_UPDATE = Trained({}, 1, 1.0)


def test_the_generic_loss_is_balanced_softmax(linear_model: ExtractorClassifier) -> None:
    model = linear_model.eval()
    images, labels = torch.randn(4, 3, 16, 16), torch.tensor([0, 1, 2, 1])
    n = torch.tensor([6.0, 2.0, 5.0])
    exponentials = torch.exp(model(images)) * n
    balanced = -torch.log(exponentials[torch.arange(4), labels] / exponentials.sum(dim=1)).mean()
    found = local_of(LocalRobustDecoupling, "rod", model, UNEQUAL).loss(model, images, labels)
    torch.testing.assert_close(found, balanced + cross_entropy(model(images), labels))  # a new head adds nothing


def test_the_personal_loss_has_no_gradient_beyond_the_personal_head(linear_model: ExtractorClassifier) -> None:
    model, local = linear_model, local_of(LocalRobustDecoupling, "rod", linear_model, UNEQUAL)
    images, labels = torch.randn(4, 3, 16, 16), torch.tensor([0, 1, 2, 1])
    generic = local.task.loss(model(images).float() + local.shift, labels)
    model.eval()  # BatchNorm must not move between the two passes
    expected = torch.autograd.grad(local.task.loss(model(images) + local.shift, labels), list(model.parameters()))
    local.loss(model, images, labels).backward()
    for parameter, gradient in zip(model.parameters(), expected, strict=True):
        assert parameter.grad is not None
        torch.testing.assert_close(parameter.grad, gradient)
    assert all(parameter.grad is not None and bool(parameter.grad.any()) for parameter in local.parameters())
    assert bool(generic.isfinite())


def test_the_personal_head_is_trained_kept_and_found_again(model: ExtractorClassifier, batches: list[Batch]) -> None:
    local = local_of(LocalRobustDecoupling, "rod", model, UNEQUAL)
    own = [*model.parameters(), *local.parameters()]
    optimizer = torch.optim.SGD(own, lr=0.05)
    local.loss(model, *batches[0]).backward()
    optimizer.step()
    memory = local.memory(NO_UPDATE)
    assert any(bool(value.any()) for value in memory.values())
    assert {f"classifier.{name}" for name in memory} == set(model.head_names)
    later = replace(UNEQUAL, number=3, memory=memory)
    again = local_of(LocalRobustDecoupling, "rod", model, later)
    assert same_bits(again.memory(NO_UPDATE), memory)
    network = make_objective("rod").personal(model.eval(), {}, later).network
    features = model.features(batches[0][0])
    assert torch.equal(network(batches[0][0]), model.classifier(features) + again.head(features))


def test_loss_and_gradients_of_fedprox_are_as_defined(model: ExtractorClassifier, batches: list[Batch]) -> None:
    images, labels = batches[0]
    start = [parameter.detach().clone() for parameter in model.parameters()]
    local = local_of(LocalProximal, "prox", model, strength=0.3)
    model = moved(model.eval())
    squares = [(own - other).square().sum() for own, other in zip(model.parameters(), start, strict=True)]
    expected = cross_entropy(model(images), labels) + 0.3 * torch.stack(squares).sum() / 2
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
