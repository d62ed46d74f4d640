# SPDX-License-Identifier: Apache-2.0
r"""ARFL's weights in closed form: sites with a high loss lose weight.

Reference: Li, Ngai, Ye, Voigt, "Auto-weighted Robust Federated Learning with Corrupted Data Sources" (ARFL), ACM
Transactions on Intelligent Systems and Technology, 2022.

Equations. With ``L_u`` the mean loss of one model on the ``n_u`` samples of site u, over the simplex

    minimise  sum_u alpha_u L_u + lambda/2 sum_u alpha_u^2 / n_u

The solution is ``alpha_u = n_u max(eta - L_u, 0) / lambda`` -> :func:`risk_weights`. With the losses in ascending
order, ``eta`` is the last of ``eta_p = (sum_{i<=p} n_i L_i + lambda) / sum_{i<=p} n_i`` before the first one that is
below ``L_p``.

Shapes: losses, samples and alpha have shape ``[N]``, for N known sites; alpha lies on the simplex, in float64.

Degenerate cases: equal losses, or a lambda far above all of them, give ``n_u / sum_v n_v`` to the bit. As lambda goes
to zero, all weight goes to the sites with the smallest loss.
"""

import math
from collections.abc import Sequence

import torch


def risk_weights(losses: Sequence[float], samples: Sequence[int], regularisation: float) -> torch.Tensor:
    """Return alpha, float64 ``[N]`` on the simplex, in the order of the sites given.

    ``losses``: finite; alpha depends on their scale. ``samples``: above zero. ``regularisation``: lambda > 0, in units
    of a loss times a number of samples. Sites with equal losses have the same weight per sample.

    >>> risk_weights([0.25, 0.75], [100, 100], regularisation=100.0).tolist()
    [0.75, 0.25]
    """
    lowest, total = min(losses), math.fsum(samples)
    excess = [loss - lowest for loss in losses]
    shares = [count / total for count in samples]  # used instead of counts, to avoid products of large numbers
    threshold = _threshold(excess, shares, regularisation / total)
    scores = [count * _activity(above, threshold) for count, above in zip(samples, excess, strict=True)]
    alpha = torch.tensor(scores, dtype=torch.float64)
    return alpha / math.fsum(scores)


def _threshold(excess: Sequence[float], shares: Sequence[float], regularisation: float) -> float:
    """Return ``eta - min L``.

    ``excess``: losses minus the smallest loss. ``shares`` and ``regularisation``: samples and lambda, each divided by
    the total number of samples.
    """
    products: list[float] = []
    masses: list[float] = []
    threshold = math.inf
    for above, share in sorted(zip(excess, shares, strict=True)):
        products.append(share * above)
        masses.append(share)
        candidate = (math.fsum(products) + regularisation) / math.fsum(masses)
        if candidate < above:
            break
        threshold = candidate
    return threshold


def _activity(above: float, threshold: float) -> float:
    """Return ``max(eta - L, 0) / (eta - min L)``: one at the smallest loss, even if lambda underflows."""
    return 1 - above / threshold if above < threshold else float(above == 0)
