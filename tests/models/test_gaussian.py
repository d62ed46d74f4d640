# SPDX-License-Identifier: Apache-2.0
"""The Gaussian layer: mean and scale are two halves of a linear layer, the output is the mean, the scale positive."""

import math

import pytest
import torch
from torch.nn.functional import softplus

from fdg_plugins.models.gaussian import SMALLEST_SCALE, GaussianLayer, positive
from fdg_plugins.randomness import seeded


@pytest.fixture
def layer() -> GaussianLayer:
    """From 5 features to 3 coordinates."""
    with seeded(0):
        return GaussianLayer(5, 3)


def features(count: int = 4) -> torch.Tensor:
    return torch.randn(count, 5, generator=torch.Generator().manual_seed(1))


def test_mean_and_scale_are_the_two_halves_of_a_linear_layer(layer: GaussianLayer) -> None:
    mean, scale = layer.distribution(features())
    weight, bias = layer.linear.weight, layer.linear.bias
    assert layer.out_features == 3
    torch.testing.assert_close(mean, features() @ weight[:3].T + bias[:3])
    torch.testing.assert_close(scale, softplus(features() @ weight[3:].T + bias[3:]))
    assert {name: tuple(value.shape) for name, value in layer.state_dict().items()} == {
        "linear.weight": (6, 5),
        "linear.bias": (6,),
    }


@pytest.mark.parametrize("training", [True, False])
def test_the_output_is_the_mean_in_either_mode_and_nothing_is_drawn(layer: GaussianLayer, training: bool) -> None:
    before = torch.get_rng_state()
    assert torch.equal(layer.train(training)(features()), layer.distribution(features())[0])
    assert torch.equal(torch.get_rng_state(), before)


def test_autocast_changes_neither_mean_nor_scale(layer: GaussianLayer) -> None:
    exact = layer.distribution(features())
    with torch.autocast("cpu", torch.bfloat16):
        assert all(map(torch.equal, exact, layer.distribution(features())))
        assert layer.distribution(features().bfloat16())[1].dtype == torch.float32


def test_a_raw_scale_of_one_is_softplus_of_one() -> None:
    assert positive(torch.ones(())).item() == pytest.approx(math.log(1 + math.e))
    assert positive(torch.ones(())).item() == pytest.approx(1.3133, abs=5e-5)


def test_a_scale_is_positive_and_its_logarithm_has_a_finite_gradient() -> None:
    for raw in [-1e30, -200.0, -20.0, -1.0, 0.0, 50.0, 1e10]:
        value = torch.tensor(raw, requires_grad=True)
        scale = positive(value)
        torch.log(scale).backward()
        assert scale.item() > 0.999 * SMALLEST_SCALE
        assert value.grad is not None
        assert math.isfinite(value.grad.item())
        assert (value.grad.item() == 0.0) == (raw < math.log(SMALLEST_SCALE))
