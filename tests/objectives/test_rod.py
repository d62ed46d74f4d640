# SPDX-License-Identifier: Apache-2.0
"""FedRoD: a balanced generic head, a personal head that acts on nothing else, and the prediction of both."""

from dataclasses import replace

import torch
from torch.nn.functional import cross_entropy

from fdg_plugins.methods.fedrod import LocalRobustDecoupling
from fdg_plugins.models import ExtractorClassifier
from fdg_plugins.objectives import SiteRound, Trained, make_objective
from fdg_plugins.testing.inputs import same_bits
from tests.objectives.local_steps import Batch

UNEQUAL = SiteRound("photo", 0, seed=1, learning_rate=0.05, class_counts=(6, 2, 5))
NO_UPDATE = Trained({}, 1, 1.0)


def local_of(model: ExtractorClassifier, site: SiteRound = UNEQUAL, balance: float = 1.0) -> LocalRobustDecoupling:
    made = make_objective({"name": "rod", "balance": balance}).local({}, model, site)
    assert isinstance(made, LocalRobustDecoupling)
    return made


def test_the_generic_loss_is_balanced_softmax(linear_model: ExtractorClassifier) -> None:
    model = linear_model.eval()
    images, labels = torch.randn(4, 3, 16, 16), torch.tensor([0, 1, 2, 1])
    n = torch.tensor([6.0, 2.0, 5.0])
    exponentials = torch.exp(model(images)) * n
    balanced = -torch.log(exponentials[torch.arange(4), labels] / exponentials.sum(dim=1)).mean()
    found = local_of(model).loss(model, images, labels)
    torch.testing.assert_close(found, balanced + cross_entropy(model(images), labels))  # a new head adds nothing


def test_the_personal_loss_has_no_gradient_beyond_the_personal_head(linear_model: ExtractorClassifier) -> None:
    model, local = linear_model, local_of(linear_model)
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
    local = local_of(model)
    own = [*model.parameters(), *local.parameters()]
    optimizer = torch.optim.SGD(own, lr=0.05)
    local.loss(model, *batches[0]).backward()
    optimizer.step()
    memory = local.memory(NO_UPDATE)
    assert any(bool(value.any()) for value in memory.values())
    assert {f"classifier.{name}" for name in memory} == set(model.head_names)
    later = replace(UNEQUAL, number=3, memory=memory)
    again = local_of(model, later)
    assert same_bits(again.memory(NO_UPDATE), memory)
    network = make_objective("rod").personal(model.eval(), {}, later).network
    features = model.features(batches[0][0])
    assert torch.equal(network(batches[0][0]), model.classifier(features) + again.head(features))
