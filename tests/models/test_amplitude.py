# SPDX-License-Identifier: Apache-2.0
"""Amplitude normalization: nothing until a spectrum is known, collected in training alone, then the same for all."""

import copy

import pytest
import torch

from fdg_plugins.core.spectrum import amplitude_and_phase, centred_band, mean_amplitude, replace_amplitude
from fdg_plugins.errors import SettingsError
from fdg_plugins.models import HEADS, ExtractorClassifier, build_model, input_channels, parameter_kinds
from fdg_plugins.models.amplitude import AmplitudeNormalization, AmplitudeNormalizedClassifier

SHAPE = (3, 16, 16)
AMPLITUDE = "normalization.amplitude"


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


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("band", [0.0, 0.2, 0.5])
def test_a_known_spectrum_takes_the_place_of_the_images_own_in_the_band(band: float, training: bool) -> None:
    known, images = informed(band).train(training), noise()
    before = known.amplitude.clone()
    assert known.known
    assert torch.equal(known(images), replace_amplitude(images, before, centred_band(16, 16, band)))
    assert torch.equal(known.amplitude, before)


def test_without_width_every_channel_gets_the_mean_of_the_spectrum_and_keeps_its_sign() -> None:
    known, images = informed(0.0), noise()
    replaced = known(images).mean(dim=(2, 3))
    torch.testing.assert_close(replaced.abs(), known.amplitude[:, 0, 0].expand(4, 3))
    assert torch.equal(replaced.sign(), images.mean(dim=(2, 3)).sign())


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


@pytest.mark.parametrize("band", [0.0, 0.2, 0.5])
def test_nothing_is_kept_of_what_lies_outside_the_band(band: float) -> None:
    collecting = layer(band, collects=True)
    for seed in range(3):
        collecting(noise(seed=seed))
    assert torch.equal(collecting.amplitude > 0, centred_band(16, 16, band).expand(3, 16, 9))


def test_in_evaluation_mode_nothing_is_collected_even_if_it_was_told_to() -> None:
    told = layer(collects=True).eval()
    told(noise())
    assert not told.known
    told.train()(noise())
    kept = told.amplitude.clone()
    told.eval()(noise(seed=1))
    assert torch.equal(told.amplitude, kept)


def test_one_image_of_the_spectrum_itself_stays() -> None:
    image = noise(1)
    known = layer(0.5)
    known.amplitude.copy_(amplitude_and_phase(image)[0][0])
    torch.testing.assert_close(known(image), image, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("shape", [(3, 16, 17), (3, 32, 32), (1, 16, 16)])
def test_images_of_another_size_are_refused_in_one_sentence(shape: tuple[int, int, int]) -> None:
    for made in (layer(), informed()):
        with pytest.raises(
            SettingsError, match=rf"^images of shape \[{shape[0]}, .* of \[3, 16, 16\], expected those\.$"
        ):
            made(noise(shape=shape))


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


def test_names_and_parameters_are_kept_and_one_float_buffer_is_added(plain: ExtractorClassifier) -> None:
    before, made = dict(plain.state_dict()), normalized(plain)
    after = dict(made.state_dict())
    assert set(after) == {*before, AMPLITUDE}
    assert all(after[name].data_ptr() == value.data_ptr() for name, value in before.items() if value.numel())
    assert parameter_kinds(made) == {**parameter_kinds(plain), AMPLITUDE: "float_buffer"}
    assert [name for name, _ in made.named_parameters()] == [name for name, _ in plain.named_parameters()]


def test_what_is_known_of_a_network_is_known_of_the_normalized_one(plain: ExtractorClassifier) -> None:
    made = normalized(plain)
    assert made.feature_size == plain.feature_size
    assert made.last_layer is plain.last_layer
    assert made.last_weight_name == plain.last_weight_name
    assert made.last_layer_names == plain.last_layer_names
    assert made.state_dict()[made.last_weight_name].data_ptr() == made.last_layer.weight.data_ptr()


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


def test_the_spectrum_of_colour_and_grey_has_half_the_columns_of_an_image() -> None:
    for name in ("convnet", "groupnorm_convnet"):
        channels = input_channels(name)
        assert channels is not None
        made = AmplitudeNormalization((channels, 28, 28), 0.0, 0.1)
        assert {key: tuple(value.shape) for key, value in made.state_dict().items()} == {
            "amplitude": (channels, 28, 15)
        }
