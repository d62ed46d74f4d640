# SPDX-License-Identifier: Apache-2.0
"""Pooled normalization statistics: those of the concatenated inputs, whatever the sites' shares and order."""

import torch

from fdg_plugins.core.batch_statistics import channel_sums, pooled

SHAPES = [(4, 3, 5, 5), (20, 3, 5, 5), (1, 3, 5, 5)]


def inputs(scale: float = 1.0, offset: float = 0.0) -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    return {
        f"site{number}": scale * torch.randn(shape, generator=generator) + offset + number
        for number, shape in enumerate(SHAPES)
    }


def test_pooled_statistics_are_those_of_the_concatenated_inputs() -> None:
    cases: list[tuple[float, float]] = [(1.0, 0.0), (1e-3, 10.0), (1e4, -1.0), (0.0, 2.0)]
    for scale, offset in cases:
        at_sites = inputs(scale, offset)
        mean, variance = pooled({site: channel_sums(value) for site, value in at_sites.items()}).mean_and_variance()
        everything = torch.cat(list(at_sites.values())).double()
        torch.testing.assert_close(mean, everything.mean((0, 2, 3)), rtol=1e-12, atol=1e-12)
        torch.testing.assert_close(variance, everything.var((0, 2, 3)), rtol=1e-9, atol=1e-12)


def test_the_bits_do_not_depend_on_the_order_in_which_sites_arrive() -> None:
    found = {site: channel_sums(value) for site, value in inputs().items()}
    one, other = pooled(found), pooled(dict(reversed(found.items())))
    assert torch.equal(one.sums, other.sums)
    assert torch.equal(one.squares, other.squares)
