# SPDX-License-Identifier: Apache-2.0
"""Amplitude normalization: nothing until a spectrum is known, collected in training alone, then the same for all."""

import copy

import pytest
import torch

from fdg_plugins.core.spectrum import centred_band, mean_amplitude, replace_amplitude
from fdg_plugins.models import HEADS, ExtractorClassifier, build_model
from fdg_plugins.models.amplitude import AmplitudeNormalization, AmplitudeNormalizedClassifier

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


@pytest.mark.parametrize("training", [True, False])
def test_before_anything_is_known_images_pass_as_they_are(training: bool) -> None:
    fresh, images = layer().train(training), noise()
    assert not fresh.known
    assert torch.equal(fresh(images), images)
    assert not fresh.known


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


def test_in_evaluation_mode_nothing_is_collected_even_if_it_was_told_to() -> None:
    told = layer(collects=True).eval()
    told(noise())
    assert not told.known
    told.train()(noise())
    kept = told.amplitude.clone()
    told.eval()(noise(seed=1))
    assert torch.equal(told.amplitude, kept)


def test_under_autocast_the_spectrum_is_that_of_float32() -> None:
    images, plain, low = noise(), layer(collects=True), layer(collects=True)
    expected = plain(images)
    with torch.autocast("cpu", torch.bfloat16):
        replaced = low(images)
    assert torch.equal(replaced, expected)
    assert torch.equal(low.amplitude, plain.amplitude)
    assert low.amplitude.dtype == torch.float32


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


def test_features_penultimate_and_logits_are_those_of_the_normalised_images(plain: ExtractorClassifier) -> None:
    made, images = normalized(plain), images_of(plain)
    assert torch.equal(made(images), plain(images))
    made.normalization.amplitude.copy_(mean_amplitude(3 * images + 1))
    replaced = made.normalization(images)
    assert not torch.allclose(made(images), plain(images))
    assert torch.equal(made(images), plain(replaced))
    assert torch.equal(made.features(images), plain.features(replaced))
    assert torch.equal(made.penultimate(images), plain.penultimate(replaced))


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
