# SPDX-License-Identifier: Apache-2.0
"""FedADG: three steps in order, each of which moves what it should; D stays at the site, G travels."""

import copy
from typing import cast

import pytest
import torch
from torch.nn.functional import cross_entropy

from fdg_plugins.methods.fedadg import WEIGHT_DECAY, FedADGObjective, GeneratingClassifier, LocalAdversarial, class_code
from fdg_plugins.models import ExtractorClassifier
from fdg_plugins.objectives import SiteRound, make_objective
from fdg_plugins.randomness import torch_generator
from fdg_plugins.testing.inputs import same_bits
from tests.objectives.local_steps import CLASSES, local_of, make_batches, train_steps

SITE = SiteRound("photo", 3, seed=7, learning_rate=0.05, momentum=0.9)


@pytest.fixture
def network(linear_model: ExtractorClassifier) -> GeneratingClassifier:
    made = FedADGObjective().adapt(copy.deepcopy(linear_model), (3, 16, 16), 1)
    return cast("GeneratingClassifier", made.train())


def test_training_is_the_three_steps_written_out(network: GeneratingClassifier) -> None:
    by_hand = copy.deepcopy(network)
    batches = make_batches(network)
    settings = {"classification_weight": 0.6, "smoothing": 0.1, "adversary_rate": 0.5}
    local = local_of(LocalAdversarial, "adg", network, SITE, **settings)
    d = copy.deepcopy(local.discriminator)
    train_steps(network, local, [batches, batches])

    f_and_c = [*by_hand.extractor.parameters(), *by_hand.classifier.parameters()]
    of_network = torch.optim.SGD(f_and_c, lr=0.05, momentum=0.9, weight_decay=5e-4)
    of_d = torch.optim.SGD(d.parameters(), lr=0.025, momentum=0.9, weight_decay=WEIGHT_DECAY)
    of_g = torch.optim.SGD(by_hand.generator.parameters(), lr=0.025, momentum=0.9, weight_decay=WEIGHT_DECAY)
    noise = torch_generator(7, "photo", 3, "adg")
    for images, labels in [*batches, *batches]:
        code = class_code(labels, CLASSES)
        u = torch.rand(len(code), 128, generator=noise)  # one draw for the steps of D and G

        def g(code: torch.Tensor = code, u: torch.Tensor = u) -> torch.Tensor:
            return by_hand.generator(u, code)

        z = by_hand.features(images)
        step(of_d, ((1 - d(g().detach(), code)) ** 2 + d(z.detach(), code) ** 2).mean())
        smoothed = torch.where(labels[:, None] == torch.arange(CLASSES), 0.9, 0.1 / (CLASSES - 1))
        classification = cross_entropy(by_hand.classifier(z), smoothed)
        step(of_network, 0.6 * classification + 0.4 * ((1 - d(z, code)) ** 2).mean())
        step(of_g, (d(g(), code) ** 2).mean())
    for found, expected in ((network, by_hand), (local.discriminator, d)):
        torch.testing.assert_close(dict(found.state_dict()), dict(expected.state_dict()), rtol=1e-4, atol=1e-5)


def step(optimizer: torch.optim.Optimizer, loss: torch.Tensor) -> None:
    parameters = optimizer.param_groups[0]["params"]
    optimizer.zero_grad(set_to_none=True)
    for parameter, gradient in zip(parameters, torch.autograd.grad(loss, parameters), strict=True):
        parameter.grad = gradient
    optimizer.step()


@pytest.mark.parametrize("smoothing", [0.0, 0.2])
def test_warmup_trains_neither_g_nor_d(
    network: GeneratingClassifier, linear_model: ExtractorClassifier, smoothing: float
) -> None:
    batches = make_batches(network)
    site = SiteRound("photo", 3, seed=7, learning_rate=0.05, momentum=0.9, epochs=2)
    local = local_of(LocalAdversarial, "adg", network, site, warmup=1.0, smoothing=smoothing)
    trained_later = (local.discriminator, network.generator)
    before = [copy.deepcopy(module.state_dict()) for module in trained_later]
    train_steps(network, local, [batches, batches])
    assert all(same_bits(module.state_dict(), kept) for module, kept in zip(trained_later, before, strict=True))
    spec = {"name": "adg", "classification_weight": 1, "smoothing": smoothing}
    alone = make_objective(spec).local({}, linear_model, site)
    train_steps(linear_model, alone, [batches, batches])
    assert same_bits(network.extractor.state_dict(), linear_model.extractor.state_dict())
