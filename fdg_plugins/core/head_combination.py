# SPDX-License-Identifier: Apache-2.0
r"""FedPAC's combination of heads: for each site the mixture of all heads that is expected to err least on its data.

Reference: Xu, Tong, Huang, "Personalized Federated Learning with Feature Alignment and Classifier Collaboration"
(FedPAC), ICLR 2023.

Equations, with mu_k a site's mean features of class k, pi_k its share of the samples, n their number:

- ``h_k = pi_k mu_k`` -> :func:`weighted_means`
- ``V = 1/n (E|z|^2 - sum_k |h_k|^2)`` >= 0, how uncertain h is -> :func:`uncertainty`
- of site i, the minimum over the simplex of ``alpha' (diag(V) + D_i) alpha``, where
  ``D_i[j, l] = <h_i - h_j, h_i - h_l>`` summed over classes -> :func:`head_mixtures`

D_i is a Gram matrix, so the problem is convex. Its minimum is that of the square root, which
:mod:`fdg_plugins.core.active_set` finds exactly by a few small linear systems.

Shapes: means and h ``[Y, D]`` of a site, ``[U, Y, D]`` of all; V ``[U]``; mixtures ``[U, U]``, a row for each site.

Degenerate cases: equal h give weights in proportion to 1 / V. A site without uncertainty keeps its own head, and so
does a single site. Weights of at most ``SMALLEST``, or of half the largest if that is less, are set to zero and the
others rescaled.
"""

from collections.abc import Sequence

import numpy as np
import torch

from fdg_plugins.core.active_set import minimise
from fdg_plugins.core.outliers import MAJORITY, MOST_TIMES

SMALLEST = 1e-3


def weighted_means(means: torch.Tensor, counts: torch.Tensor) -> torch.Tensor:
    """Return h, float64 ``[Y, D]``, for ``means [Y, D]`` and ``counts [Y]``; zero for a class without samples.

    >>> weighted_means(torch.tensor([[4.0], [8.0]]), torch.tensor([3, 1])).tolist()
    [[3.0], [2.0]]
    """
    shares = counts.double() / counts.sum()
    return torch.where(counts[:, None] > 0, means.double() * shares[:, None], 0.0)


def uncertainty(means: torch.Tensor, counts: torch.Tensor, mean_square: float) -> float:
    """Return V for ``means [Y, D]``, ``counts [Y]`` and E|z|^2 over all samples; never negative.

    >>> uncertainty(torch.tensor([[1.0], [3.0]]), torch.tensor([2, 2]), mean_square=6.0)
    0.875
    """
    explained = float(weighted_means(means, counts).square().sum())
    return max(mean_square - explained, 0.0) / int(counts.sum())


def limited_uncertainties(uncertainties: Sequence[float], samples: Sequence[int]) -> torch.Tensor:
    """Return V, float64 ``[U]``, of which none is too small, so that no site has most of every mixture by saying so.

    From three sites on, ``n V`` is at least the round's median over ``MOST_TIMES``.

    >>> limited_uncertainties([0.0, 1.0, 1.0], [10, 10, 10]).tolist()
    [0.1, 1.0, 1.0]
    """
    found, counts = torch.tensor(uncertainties, dtype=torch.float64), torch.tensor(samples)
    if len(samples) < MAJORITY:
        return found
    return found.maximum((found * counts).median() / MOST_TIMES / counts)  # torch's median is the lower one


def head_mixtures(means: torch.Tensor, uncertainties: torch.Tensor) -> torch.Tensor:
    """Return the weights of all heads for each site, float64 ``[U, U]``, for h ``[U, Y, D]`` and V ``[U]``."""
    h, v = means.double().flatten(1).numpy(), uncertainties.double().numpy()
    return torch.from_numpy(np.stack([_mixture(site, h, v) for site in range(len(h))]))


def _mixture(site: int, h: np.ndarray, v: np.ndarray) -> np.ndarray:
    own = np.zeros(len(h))
    own[site] = 1.0
    differences = h[site] - h
    matrix = np.diag(v) + differences @ differences.T
    largest = float(np.abs(matrix).max())
    found = minimise(matrix / largest, np.zeros(len(h)), kappa=1.0) if largest > 0 and v[site] > 0 else None
    if found is None:
        return own
    smallest = min(SMALLEST, found.weights.max() / 2)  # of a thousand equal sites, none has more than a thousandth
    kept = np.where(found.weights > smallest, found.weights, 0.0)
    return kept / kept.sum()
