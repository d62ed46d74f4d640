# SPDX-License-Identifier: Apache-2.0
"""Amplitude normalization: nothing until a spectrum is known, collected in training alone, then the same for all."""

import copy

import pytest
import torch

from fdg_plugins.core.spectrum import centred_band, mean_amplitude, replace_amplitude
from fdg_plugins.methods.harmofl import AmplitudeNormalization, AmplitudeNormalizedClassifier
from fdg_plugins.models import HEADS, ExtractorClassifier, build_model

SHAPE = (3, 16, 16)


def noise(count: int = 4, seed: int = 0, shape: tuple[int, int, int] = SHAPE) -> torch.Tensor:
    return torch.randn(count, *shape, generator=torch.Generator().manual_seed(seed))


def layer(band: float = 0.2, momentum: float = 0.1, collects: bool = False) -> AmplitudeNormalization:
    made = AmplitudeNormalization(SHAPE, band, momentum).train()
    made.collects = collects
    return made


def informed(band: float = 0.2) -> AmplitudeNormalization:
    made = layer(band)
    made.amplitude.copy_(mean_amplitude(noise(5, seed=9)))
    return made


# --- the layer ---


def test_a_known_spectrum_takes_the_place_of_the_images_own_in_the_band() -> None:
    for training in [True, False]:
        for band in [0.0, 0.2, 0.5]:
            known, images = informed(band).train(training), noise()
            before = known.amplitude.clone()
            assert known.known
            assert torch.equal(known(images), replace_amplitude(images, before, centred_band(16, 16, band)))
            assert torch.equal(known.amplitude, before)


@pytest.mark.parametrize("momentum", [0.0, 0.1, 1.0])
def test_collecting_takes_the_first_batch_and_then_moves_by_the_momentum(momentum: float) -> None:
    collecting = layer(momentum=momentum, collects=True)
    expected = torch.zeros(())
    for number in range(4):
        images = noise(3 + number, seed=number)
        mean = mean_amplitude(images) * collecting.band
        expected = mean if number == 0 else (1 - momentum) * expected + momentum * mean
        replaced = collecting(images)
        torch.testing.assert_close(collecting.amplitude, expected)
        # The batch itself is normalised with what it has just moved.
        assert torch.equal(replaced, replace_amplitude(images, collecting.amplitude, collecting.band))


# --- the network ---


@pytest.fixture(params=[(name, head) for name in ("convnet", "groupnorm_convnet") for head in HEADS], ids=" ".join)
def plain(request: pytest.FixtureRequest) -> ExtractorClassifier:
    """A network as the registry builds it."""
    name, head = request.param
    return build_model(name, 7, seed=1, head=head).eval()


def normalized(plain: ExtractorClassifier, band: float = 0.2) -> AmplitudeNormalizedClassifier:
    channels = next(plain.extractor.parameters()).shape[1]
    normalization = AmplitudeNormalization((channels, 16, 16), band, 0.1)
    return AmplitudeNormalizedClassifier(plain, normalization).eval()


def images_of(plain: ExtractorClassifier) -> torch.Tensor:
    return noise(shape=(next(plain.extractor.parameters()).shape[1], 16, 16))


def test_a_state_and_a_deep_copy_carry_the_spectrum(plain: ExtractorClassifier) -> None:
    made, images = normalized(plain), images_of(plain)
    made.normalization.amplitude.copy_(mean_amplitude(images))
    other = normalized(copy.deepcopy(plain))
    other.load_state_dict(made.state_dict())
    twin = copy.deepcopy(made)
    assert other.normalization.known
    assert torch.equal(other(images), made(images))
    twin.normalization.amplitude.zero_()
    assert made.normalization.known
