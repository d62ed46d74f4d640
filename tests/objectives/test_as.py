# SPDX-License-Identifier: Apache-2.0
"""FedAS at a site: alignment to its own class means, what it keeps, and the Fisher trace that it reports."""

import copy
from dataclasses import replace

import pytest
import torch

from fdg_plugins.methods.fedas import HELD, MEANS, MODEL, REPORT_FISHER_TRACE, ClassMeans, alignment_loss
from fdg_plugins.models import ExtractorClassifier
from fdg_plugins.objectives import LocalObjective, SiteRound, Trained, make_objective, see
from fdg_plugins.testing.inputs import same_bits
from fdg_plugins.testing.objectives import bits
from tests.objectives.local_steps import CLASSES, Batch, make_batches, train_steps

SITE = SiteRound("photo", 0, seed=1, learning_rate=0.05)
NOTHING = Trained({}, 1, 1.0)
COUNTER = "num_batches_tracked"


def trained(
    model: ExtractorClassifier, batches: list[Batch], site: SiteRound = SITE, epochs: int = 2, **settings: float
) -> LocalObjective:
    """Train ``model`` in place as a site does; return the local objective, which has seen the trained model."""
    local = make_objective({"name": "as", **settings}).local({}, model, site)
    local.observe_received(model, see(model, batches), CLASSES)
    train_steps(model, local, [batches] * epochs)
    local.observe_trained(model, see(model, batches), CLASSES)
    return local


def test_alignment_is_a_sum_of_mean_squared_distances(linear_model: ExtractorClassifier) -> None:
    # Three images of class 0, one of class 2, of which there is no mean, and two of class 1; D = 2.
    features = torch.tensor([[1.0, 0.0], [3.0, 0.0], [0.0, 2.0], [9.0, 9.0], [0.0, 1.0], [1.0, 0.0]])
    labels = torch.tensor([0, 0, 0, 2, 1, 1])
    to = ClassMeans(torch.tensor([[1.0, 0.0], [0.0, 0.0], [0.0, 0.0]]), torch.tensor([True, True, False]))
    first = (0 + 4 + (1 + 4)) / 3  # squared distances of class 0 to (1, 0)
    second = (1 + 1) / 2  # of class 1 to the origin
    assert float(alignment_loss(features, labels, to)) == pytest.approx((first + second) / 2)
    assert float(alignment_loss(features[3:4], labels[3:4], to)) == 0.0


def test_extractor_is_aligned_alone_and_then_all_trained(linear_model: ExtractorClassifier) -> None:
    model, batches = linear_model, make_batches(linear_model, sizes=(6,))
    other = copy.deepcopy(model)
    kept = trained(copy.deepcopy(model), make_batches(model, seed=3)).memory(NOTHING)
    local = make_objective({"name": "as", "align_lr": 0.25}).local({}, model, replace(SITE, memory=kept))
    train_steps(model, local, [batches])  # the epoch of the alignment, momentum and weight decay being those of others
    other.load_state_dict({**other.state_dict(), **{n: kept[f"{MODEL}{n}"] for n in other.head_names}})
    images, labels = batches[0]
    to = ClassMeans(kept[MEANS], kept[HELD])
    parameters = dict(other.train().extractor.named_parameters(prefix="extractor"))
    gradients = torch.autograd.grad(
        alignment_loss(other.features(images), labels, to), list(parameters.values()), allow_unused=True
    )
    with torch.no_grad():
        for parameter, gradient in zip(parameters.values(), gradients, strict=True):
            parameter.sub_(0 if gradient is None else 0.25 * gradient)
    found, expected = bits(model), bits(other)
    assert found.keys() == expected.keys()
    assert all(torch.equal(found[name], expected[name]) for name in model.head_names), "the head has no step"
    for name, value in expected.items():
        torch.testing.assert_close(found[name], value)
    before = bits(model)
    train_steps(model, local, [batches])  # the local objective counts on: the second epoch is of the cross entropy
    assert all(not torch.equal(before[name], value) for name, value in model.named_parameters())


def test_site_keeps_its_model_and_class_means(model: ExtractorClassifier, batches: list[Batch]) -> None:
    received = copy.deepcopy(model)
    memory = trained(model, batches).memory(NOTHING)
    floats = {name: value for name, value in bits(model).items() if COUNTER not in name}
    assert same_bits({name.removeprefix(MODEL): memory[name] for name in memory if name.startswith(MODEL)}, floats)
    images, labels = (torch.cat(parts) for parts in zip(*batches, strict=True))
    (seen,) = see(model, [(images, labels)])
    assert memory[HELD].tolist() == [True] * CLASSES
    means = [seen.features[seen.targets == label].mean(dim=0) for label in range(CLASSES)]
    torch.testing.assert_close(memory[MEANS], torch.stack(means))
    objective = make_objective("as")
    own = objective.personal(copy.deepcopy(received), {}, replace(SITE, number=5, memory=memory)).network
    assert same_bits({name: value for name, value in own.state_dict().items() if COUNTER not in name}, floats)
    fresh = objective.personal(copy.deepcopy(received), {}, SITE).network
    assert same_bits(dict(fresh.state_dict()), bits(received))


def test_trace_is_the_sum_of_squared_gradients(linear_model: ExtractorClassifier) -> None:
    model, ((images, labels),) = linear_model, make_batches(linear_model, sizes=(8,))
    total = 0.0
    model.eval()
    for part, targets in zip(images.split(2), labels.split(2), strict=True):
        model.zero_grad()
        torch.nn.functional.cross_entropy(model(part), targets).backward()
        total += sum(float(p.grad.double().square().sum()) for p in model.parameters() if p.grad is not None)
    model.train().zero_grad(set_to_none=True)
    local = make_objective({"name": "as", "fisher_batch": 2}).local({}, model, SITE)
    local.observe_trained(model, see(model, [(images, labels)]), CLASSES)
    assert local.report(NOTHING) == {REPORT_FISHER_TRACE: pytest.approx(total, rel=1e-5)}
    assert model.training
    assert all(parameter.grad is None for parameter in model.parameters())
