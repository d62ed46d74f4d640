# SPDX-License-Identifier: Apache-2.0
"""HarmoFL collects amplitudes once, the same for every site from then on; AM mixes them as the seed says."""

from typing import Any

import pytest
import torch
from torch.nn.functional import cross_entropy

from fdg_plugins.core.spectrum import centred_band, mean_amplitude, mix_amplitudes, replace_amplitude
from fdg_plugins.methods.am import AMObjective, LocalAmplitudeMix
from fdg_plugins.methods.harmofl import AmplitudeNormalization, AmplitudeNormalizedClassifier, HarmoFLObjective
from fdg_plugins.models import ExtractorClassifier
from fdg_plugins.objectives import SiteRound
from fdg_plugins.randomness import torch_generator
from fdg_plugins.testing.objectives import channels_of
from tests.objectives.local_steps import Batch, make_batches, trained
from tests.random_tensors import normal


@pytest.mark.parametrize("radius", [0.0, 0.05])
def test_batch_is_collected_once(radius: float, model: ExtractorClassifier, batches: list[Batch]) -> None:
    objective = HarmoFLObjective(radius, amplitude_momentum=0.3, band=0.2)
    made = objective.adapt(model, (channels_of(model), 16, 16), 0).train()
    assert isinstance(made, AmplitudeNormalizedClassifier)
    trained(made, objective.local({}, made), batches)
    inside = centred_band(16, 16, 0.2)
    means = [mean_amplitude(images) * inside for images, _ in [*batches, *batches]]  # two epochs
    expected = means[0]
    for mean in means[1:]:
        expected = 0.7 * expected + 0.3 * mean
    torch.testing.assert_close(made.normalization.amplitude, expected)


SHAPE = (3, 16, 16)


def layer(band: float = 0.2, momentum: float = 0.1, collects: bool = False) -> AmplitudeNormalization:
    made = AmplitudeNormalization(SHAPE, band, momentum).train()
    made.collects = collects
    return made


def test_a_known_spectrum_takes_the_place_of_the_images_own_in_the_band() -> None:
    for training in [True, False]:
        for band in [0.0, 0.2, 0.5]:
            known, images = layer(band).train(training), normal(0, 4, *SHAPE)
            known.amplitude.copy_(mean_amplitude(normal(9, 5, *SHAPE)))
            before = known.amplitude.clone()
            assert known.known
            assert torch.equal(known(images), replace_amplitude(images, before, centred_band(16, 16, band)))
            assert torch.equal(known.amplitude, before)
            known.freeze_if_known()
            known.collects = True
            known.train()(normal(1, 4, *SHAPE))
            assert torch.equal(known.amplitude, before)


@pytest.mark.parametrize("momentum", [0.0, 0.1, 1.0])
def test_collecting_takes_the_first_batch_and_then_moves_by_the_momentum(momentum: float) -> None:
    collecting = layer(momentum=momentum, collects=True)
    expected = torch.zeros(())
    for number in range(4):
        images = normal(number, 3 + number, *SHAPE)
        mean = mean_amplitude(images) * collecting.band
        expected = mean if number == 0 else (1 - momentum) * expected + momentum * mean
        replaced = collecting(images)
        torch.testing.assert_close(collecting.amplitude, expected)
        # The batch itself is normalised with what it has just moved.
        assert torch.equal(replaced, replace_amplitude(images, collecting.amplitude, collecting.band))


SITE = SiteRound("a", 3, seed=1)


def mix_of(probability: float = 1.0, site: SiteRound = SITE) -> LocalAmplitudeMix:
    unread: Any = None  # the model, which is not looked at
    local = AMObjective(probability).local({}, unread, site)
    assert isinstance(local, LocalAmplitudeMix)
    return local


def test_loss_is_of_mixed_images_with_their_labels(linear_model: ExtractorClassifier) -> None:
    linear_model.eval()
    images, labels = make_batches(linear_model)[0]
    loss = mix_of().loss(linear_model, images, labels)
    assert torch.equal(loss, cross_entropy(linear_model(mix_of().augmented(images)), labels))


def test_a_batch_is_mixed_as_often_and_with_what_the_seed_says() -> None:
    local, generator = mix_of(0.5), torch_generator(SITE.seed, SITE.site, SITE.number, "amplitude mix")
    mixed = 0
    for seed in range(20):
        images = normal(seed, 6, 3, 16, 16)
        expected = images
        if float(torch.rand((), generator=generator)) < 0.5:
            partners = torch.randperm(6, generator=generator)
            expected, mixed = mix_amplitudes(images, partners, torch.rand(6, generator=generator)), mixed + 1
        assert torch.equal(local.augmented(images), expected)
    assert 0 < mixed < 20
