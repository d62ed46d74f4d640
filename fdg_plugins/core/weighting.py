# SPDX-License-Identifier: Apache-2.0
"""Reference weights p ``[U]`` of a round's sites: non-negative, with sum one, in the order in which sites are given.

:func:`fisher_weights` are FedAS's (Yang, Huang, Ye, CVPR 2024): ``T_u / sum_v T_v``, with ``T = sum_b |grad_w L_b|^2``
over batches b of a site's training images, L_b the mean negative log-likelihood and w the site's trained model.

:func:`risk_weights` are ARFL's (Li, Ngai, Ye, Voigt, "Auto-weighted Robust Federated Learning with Corrupted Data
Sources", ACM Transactions on Intelligent Systems and Technology, 2022). With ``L_u`` the mean loss of one model on the
``n_u`` samples of site u, ``alpha_u = n_u max(eta - L_u, 0) / lambda`` minimises ``sum_u alpha_u L_u + lambda/2 sum_u
alpha_u^2 / n_u`` over the simplex. With the losses in ascending order, ``eta`` is the last of
``eta_p = (sum_{i<=p} n_i L_i + lambda) / sum_{i<=p} n_i`` before the first one that is below ``L_p``. Equal losses, or
a lambda far above all of them, give ``n_u / sum_v n_v`` to the bit; as lambda goes to zero, all weight goes to the
sites with the smallest loss.
"""

import math
from collections.abc import Sequence

import torch

from fdg_plugins.core.outliers import MOST_TIMES

SUM_TOLERANCE = 1e-6


def uniform_weights(count: int) -> torch.Tensor:
    """Return ``1/U`` for each of ``count`` sites, at least one, float64 ``[U]``.

    >>> uniform_weights(4).tolist()
    [0.25, 0.25, 0.25, 0.25]
    """
    return torch.full((count,), 1.0 / count, dtype=torch.float64)


def sample_weights(counts: Sequence[int]) -> torch.Tensor:
    """Return ``n_u / sum_v n_v`` over the round's sites, float64 ``[U]``, from their numbers of training samples.

    Raises ``ValueError`` unless every site has at least one sample.

    >>> sample_weights([100, 300]).tolist()
    [0.25, 0.75]
    """
    values = torch.as_tensor(list(counts), dtype=torch.float64)
    if values.numel() == 0 or not bool((values > 0).all()) or not bool(values.isfinite().all()):
        raise ValueError(f"Weights by samples need a positive number of samples from every site, got {list(counts)}.")
    return values / values.sum()


def limited_weights(weights: torch.Tensor, counts: Sequence[int | None]) -> torch.Tensor:
    """Return ``weights [U]`` in which no site has more than ``MOST_TIMES`` the odds of its share, whatever it reports.

    The share r is that of the samples ``counts``, if all are known, or ``1/U`` if that is more: ``w / (1 - w)`` is at
    most ten times ``r / (1 - r)``. What is above goes to the other sites, by samples. Weights within the limit, as
    those by samples and uniform ones always are, stay as they are to the bit.

    >>> [round(weight, 3) for weight in limited_weights(torch.tensor([0.98, 0.01, 0.01]), [50, 50, 50]).tolist()]
    [0.833, 0.083, 0.083]
    """
    known = [count for count in counts if count]
    shares = sample_weights(known) if len(known) == len(counts) else uniform_weights(len(counts))
    reference = shares.clamp_min(1 / len(counts))
    limits = MOST_TIMES * reference / (1 - reference + MOST_TIMES * reference)
    above = weights > limits
    if not bool(above.any()):
        return weights
    others = torch.where(above, 0.0, shares)
    excess = (weights - limits)[above].sum()
    return torch.where(above, limits, weights + excess * others / others.sum())


def check_weights(weights: torch.Tensor | Sequence[float], count: int) -> torch.Tensor:
    """Return ``weights`` as float64 ``[count]``; raise ``ValueError`` unless they lie on the simplex.

    >>> check_weights([0.25, 0.75], 2).tolist()
    [0.25, 0.75]
    """
    values = torch.as_tensor(weights, dtype=torch.float64, device="cpu").detach()
    if values.shape != (count,) or not bool((values >= 0).all()) or abs(float(values.sum()) - 1.0) > SUM_TOLERANCE:
        raise ValueError(f"Expected {count} weights, non-negative and with sum one, got {values.tolist()}.")
    return values


def fisher_weights(traces: Sequence[float], samples: Sequence[int]) -> torch.Tensor:
    """Return ``T_u / sum_v T_v``, float64 ``[U]``, from traces of at least 0; weights by samples if all are zero.

    >>> fisher_weights([1.0, 3.0], [10, 10]).tolist()
    [0.25, 0.75]
    """
    values = torch.tensor(traces, dtype=torch.float64)
    if not bool(values.any()):
        return sample_weights(samples)
    scores = values / values.max()  # whose sum is finite, and not a denormal number, at any scale
    return scores / scores.sum()


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
    # (eta - L) / (eta - min L): one at the smallest loss, even if lambda underflows.
    activity = [1 - above / threshold if above < threshold else float(above == 0) for above in excess]
    scores = [count * active for count, active in zip(samples, activity, strict=True)]
    return torch.tensor(scores, dtype=torch.float64) / math.fsum(scores)


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
