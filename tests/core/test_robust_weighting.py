# SPDX-License-Identifier: Apache-2.0
"""ARFL's closed form: it solves its problem, by hand and by search, and its limits are known exactly."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fdg_plugins.core import sample_weights
from fdg_plugins.core.robust_weighting import risk_weights

REPEATABLE = settings(derandomize=True, deadline=None)
LOSSES = st.floats(0, 1e3)
SITES = st.lists(st.tuples(LOSSES, st.integers(1, 10**6)), min_size=1, max_size=8)
STRENGTHS = st.floats(1e-9, 1e9)


@REPEATABLE
@given(sites=SITES, strength=STRENGTHS)
def test_the_weights_lie_on_the_simplex_and_fulfil_the_conditions_of_the_optimum(
    sites: list[tuple[float, int]], strength: float
) -> None:
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
@given(sites=SITES, strength=STRENGTHS, data=st.data())
def test_permuting_the_sites_permutes_the_weights_to_the_bit(
    sites: list[tuple[float, int]], strength: float, data: st.DataObject
) -> None:
    order = data.draw(st.permutations(range(len(sites))))
    regularisation = strength * sum(count for _, count in sites)
    alpha = risk_weights([loss for loss, _ in sites], [count for _, count in sites], regularisation).tolist()
    permuted = risk_weights([sites[i][0] for i in order], [sites[i][1] for i in order], regularisation).tolist()
    assert permuted == [alpha[i] for i in order]


@REPEATABLE
@given(loss=LOSSES, samples=st.lists(st.integers(1, 10**9), min_size=1, max_size=8), strength=STRENGTHS)
def test_equal_losses_weigh_by_samples_to_the_bit(loss: float, samples: list[int], strength: float) -> None:
    alpha = risk_weights([loss] * len(samples), samples, strength * sum(samples))
    assert alpha.tolist() == sample_weights(samples).tolist()


@pytest.mark.parametrize("regularisation", [1e30, math.inf])
def test_a_lambda_beyond_all_losses_weighs_by_samples_to_the_bit(regularisation: float) -> None:
    samples = [100, 300, 601]
    assert risk_weights([0.2, 0.5, 5.0], samples, regularisation).tolist() == sample_weights(samples).tolist()
