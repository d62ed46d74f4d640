# SPDX-License-Identifier: Apache-2.0
"""HarmoFL: collected once, averaged by the server, the same for every site from then on; off, it is FedAvg or SAM."""

import pytest
import torch

from fdg_plugins.core.spectrum import centred_band, mean_amplitude, replace_amplitude
from fdg_plugins.methods.harmofl import AmplitudeNormalization, AmplitudeNormalizedClassifier, HarmoFLObjective
from fdg_plugins.models import ExtractorClassifier
from tests.objectives.local_steps import Batch, trained


def adapted(objective: HarmoFLObjective, model: ExtractorClassifier) -> AmplitudeNormalizedClassifier:
    channels = next(model.extractor.parameters()).shape[1]
    made = objective.adapt(model, (channels, 16, 16), 0)
    assert isinstance(made, AmplitudeNormalizedClassifier)
    return made.train()


@pytest.mark.parametrize("radius", [0.0, 0.05])
def test_batch_is_collected_once(radius: float, model: ExtractorClassifier, batches: list[Batch]) -> None:
    objective = HarmoFLObjective(radius, amplitude_momentum=0.3, band=0.2)
    made = adapted(objective, model)
    trained(made, objective.local({}, made), batches)
    inside = centred_band(16, 16, 0.2)
    means = [mean_amplitude(images) * inside for images, _ in [*batches, *batches]]  # two epochs
    expected = means[0]
    for mean in means[1:]:
        expected = 0.7 * expected + 0.3 * mean
    torch.testing.assert_close(made.normalization.amplitude, expected)


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


def test_a_known_spectrum_takes_the_place_of_the_images_own_in_the_band() -> None:
    for training in [True, False]:
        for band in [0.0, 0.2, 0.5]:
            known, images = informed(band).train(training), noise()
            before = known.amplitude.clone()
            assert known.known
            assert torch.equal(known(images), replace_amplitude(images, before, centred_band(16, 16, band)))
            assert torch.equal(known.amplitude, before)
            known.freeze_if_known()
            known.collects = True
            known.train()(noise(seed=1))
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
