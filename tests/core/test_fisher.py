# SPDX-License-Identifier: Apache-2.0
"""Weights by Fisher traces: on the simplex at every scale, in the order of the sites, by samples without any trace."""

import torch

from fdg_plugins.core.fisher import fisher_weights, squared_length

SAMPLES = [60, 10, 30]


def test_weights_are_in_proportion_to_the_traces_whatever_their_scale() -> None:
    for scale in [1e-300, 1e-10, 1.0, 1e10, 1e300]:
        weights = fisher_weights([3 * scale, 1 * scale, 4 * scale], SAMPLES)
        assert weights.dtype == torch.float64
        torch.testing.assert_close(weights, torch.tensor([3, 1, 4], dtype=torch.float64) / 8, rtol=1e-12, atol=0)


def test_permuting_the_sites_permutes_the_weights() -> None:
    traces = [0.1, 0.2, 0.3]
    forward, backward = fisher_weights(traces, SAMPLES), fisher_weights(traces[::-1], SAMPLES[::-1])
    torch.testing.assert_close(forward, backward.flip(0), rtol=1e-15, atol=0)


def test_equal_traces_weigh_alike_whatever_the_samples_and_none_weigh_by_samples() -> None:
    torch.testing.assert_close(fisher_weights([0.7] * 3, SAMPLES), torch.full((3,), 1 / 3, dtype=torch.float64))
    assert fisher_weights([0.0] * 3, SAMPLES).tolist() == [0.6, 0.1, 0.3]


def test_a_squared_length_is_that_of_all_gradients_as_one_vector_in_float64() -> None:
    generator = torch.Generator().manual_seed(0)
    gradients = [1e20 * torch.randn(shape, generator=generator) for shape in ((3, 2), (4,), ())]
    whole = torch.cat([gradient.double().reshape(-1) for gradient in gradients])
    torch.testing.assert_close(squared_length(gradients), whole @ whole)
