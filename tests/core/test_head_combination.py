# SPDX-License-Identifier: Apache-2.0
"""FedPAC's mixtures of heads: a point of the simplex for each site, closed forms, and no better one on a grid."""

import pytest
import torch

from fdg_plugins.core.head_combination import SMALLEST, head_mixtures, uncertainty, weighted_means


def drawn(sites: int, seed: int = 0, scale: float = 1.0) -> tuple[torch.Tensor, torch.Tensor]:
    """Return h ``[U, 3, 4]`` and V ``[U]``."""
    generator = torch.Generator().manual_seed(seed)
    h = scale * torch.randn(sites, 3, 4, generator=generator, dtype=torch.float64)
    return h, scale**2 * (0.1 + torch.rand(sites, generator=generator, dtype=torch.float64))


def value(alpha: torch.Tensor, site: int, h: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    """Return alpha' (diag(V) + D_i) alpha, written out."""
    difference = (alpha.view(-1, 1, 1) * (h[site] - h)).sum(dim=0)
    return (v * alpha.square()).sum() + difference.square().sum()


@pytest.mark.parametrize("scale", [1e-6, 1.0, 1e6])
def test_no_point_of_the_simplex_is_better(scale: float) -> None:
    h, v = drawn(3, scale=scale)
    steps = torch.linspace(0, 1, 21, dtype=torch.float64)
    grid = [torch.stack([a, b, 1 - a - b]) for a in steps for b in steps if a + b <= 1 + 1e-12]
    for site, alpha in enumerate(head_mixtures(h, v)):
        assert bool((alpha >= 0).all())
        assert float(alpha.sum()) == pytest.approx(1)
        best = min(float(value(point, site, h, v)) for point in grid)
        assert float(value(alpha, site, h, v)) <= best * (1 + 1e-2 * SMALLEST)


def test_equal_means_give_weights_in_proportion_to_certainty() -> None:
    h, v = torch.ones(3, 2, 2, dtype=torch.float64), torch.tensor([1.0, 2.0, 4.0], dtype=torch.float64)
    expected = (1 / v) / (1 / v).sum()
    for alpha in head_mixtures(h, v):
        torch.testing.assert_close(alpha, expected)


def test_far_sites_get_no_weight_and_permuting_the_sites_permutes_the_mixtures() -> None:
    h, v = drawn(4)
    h[3] += 1e4
    mixtures = head_mixtures(h, v)
    assert mixtures[0, 3] == 0
    assert mixtures[3].tolist() == [0, 0, 0, 1]
    order = torch.tensor([2, 0, 3, 1])
    torch.testing.assert_close(head_mixtures(h[order], v[order]), mixtures[order][:, order])


def test_the_uncertainty_is_the_variance_that_the_class_means_do_not_explain() -> None:
    features = torch.tensor([[1.0, 0.0], [3.0, 0.0], [0.0, 2.0], [0.0, 2.0]])
    means, counts = torch.tensor([[2.0, 0.0], [0.0, 2.0], [0.0, 0.0]]), torch.tensor([2, 2, 0])
    h = weighted_means(means, counts)
    assert h.tolist() == [[1.0, 0.0], [0.0, 1.0], [0.0, 0.0]]
    mean_square = float(features.square().sum(dim=1).mean())  # 4.5
    assert uncertainty(means, counts, mean_square) == pytest.approx((4.5 - 2.0) / 4)
    assert uncertainty(means, counts, 1.0) == 0, "never negative, whatever a site says"
