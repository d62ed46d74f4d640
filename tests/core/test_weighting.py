# SPDX-License-Identifier: Apache-2.0
"""Weights of sites: on the simplex, in the order given, and for ARFL and FedAS solutions with known limits."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fdg_plugins.core import sample_weights
from fdg_plugins.core.weighting import fisher_weights, risk_weights

REPEATABLE = settings(derandomize=True, deadline=None)
LOSSES = st.floats(0, 1e3)
SITES = st.lists(st.tuples(LOSSES, st.integers(1, 10**6)), min_size=1, max_size=8)
STRENGTHS = st.floats(1e-9, 1e9)
SAMPLES = [60, 10, 30]


@REPEATABLE
@given(sites=SITES, strength=STRENGTHS)
def test_arfl_weights_are_optimal(sites: list[tuple[float, int]], strength: float) -> None:
    losses, samples = [loss for loss, _ in sites], [count for _, count in sites]
    regularisation = strength * sum(samples)
    alpha = risk_weights(losses, samples, regularisation)
    assert alpha.dtype == torch.float64
    assert alpha.shape == (len(sites),)
    assert bool((alpha >= 0).all())
    assert alpha.sum().item() == pytest.approx(1.0, abs=1e-12)
    # Where a site has weight, loss + lambda alpha / n is one value eta; elsewhere the loss alone is not below it.
    slopes = [loss + regularisation * a / n for loss, n, a in zip(losses, samples, alpha.tolist(), strict=True)]
    eta = min(slopes)
    tolerance = 1e-9 * (1 + max(losses) + strength)
    for slope, a in zip(slopes, alpha.tolist(), strict=True):
        assert slope >= eta
        assert slope <= eta + tolerance or a == 0


@REPEATABLE
@given(loss=LOSSES, samples=st.lists(st.integers(1, 10**9), min_size=1, max_size=8), strength=STRENGTHS)
def test_equal_losses_weigh_by_samples_to_the_bit(loss: float, samples: list[int], strength: float) -> None:
    alpha = risk_weights([loss] * len(samples), samples, strength * sum(samples))
    assert alpha.tolist() == sample_weights(samples).tolist()


def test_weights_are_in_proportion_to_the_traces_whatever_their_scale() -> None:
    for scale in [1e-300, 1e-10, 1.0, 1e10, 1e300]:
        weights = fisher_weights([3 * scale, 1 * scale, 4 * scale], SAMPLES)
        assert weights.dtype == torch.float64
        torch.testing.assert_close(weights, torch.tensor([3, 1, 4], dtype=torch.float64) / 8, rtol=1e-12, atol=0)


def test_equal_traces_weigh_alike_whatever_the_samples_and_none_weigh_by_samples() -> None:
    torch.testing.assert_close(fisher_weights([0.7] * 3, SAMPLES), torch.full((3,), 1 / 3, dtype=torch.float64))
    assert fisher_weights([0.0] * 3, SAMPLES).tolist() == [0.6, 0.1, 0.3]
