# SPDX-License-Identifier: Apache-2.0
"""AM: batches are mixed as often, and as, the seed says; never is FedAvg to the bit."""

from typing import Any

import torch
from torch.nn.functional import cross_entropy

from fdg_plugins.core.spectrum import mix_amplitudes
from fdg_plugins.methods.am import AMObjective, LocalAmplitudeMix
from fdg_plugins.models import ExtractorClassifier
from fdg_plugins.objectives import SiteRound
from fdg_plugins.randomness import torch_generator
from tests.objectives.local_steps import make_batches

SITE = SiteRound("a", 3, seed=1)


def images_of(count: int = 6, seed: int = 0) -> torch.Tensor:
    return torch.randn(count, 3, 16, 16, generator=torch.Generator().manual_seed(seed))


def mix_of(probability: float = 1.0, site: SiteRound = SITE) -> LocalAmplitudeMix:
    local = AMObjective(probability).local({}, unread_model(), site)
    assert isinstance(local, LocalAmplitudeMix)
    return local


def unread_model() -> Any:
    """What stands for a model where none is looked at."""
    return None


def test_loss_is_of_mixed_images_with_their_labels(linear_model: ExtractorClassifier) -> None:
    linear_model.eval()
    images, labels = make_batches(linear_model)[0]
    loss = mix_of().loss(linear_model, images, labels)
    assert torch.equal(loss, cross_entropy(linear_model(mix_of().augmented(images)), labels))


def test_a_batch_is_mixed_as_often_and_with_what_the_seed_says() -> None:
    local, generator = mix_of(0.5), torch_generator(SITE.seed, SITE.site, SITE.number, "amplitude mix")
    mixed = 0
    for seed in range(20):
        images = images_of(seed=seed)
        expected = images
        if float(torch.rand((), generator=generator)) < 0.5:
            partners = torch.randperm(6, generator=generator)
            expected, mixed = mix_amplitudes(images, partners, torch.rand(6, generator=generator)), mixed + 1
        assert torch.equal(local.augmented(images), expected)
    assert 0 < mixed < 20
