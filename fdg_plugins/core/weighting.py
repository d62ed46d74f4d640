# SPDX-License-Identifier: Apache-2.0
"""Reference weights p ``[U]`` of a round's sites: non-negative, with sum one, in the order in which sites are given."""

from collections.abc import Sequence

import torch

from fdg_plugins.core.outliers import MOST_TIMES

SUM_TOLERANCE = 1e-6


def uniform_weights(count: int) -> torch.Tensor:
    """Return ``1/U`` for each of ``count`` sites, float64 ``[U]``; ``ValueError`` without sites.

    >>> uniform_weights(4).tolist()
    [0.25, 0.25, 0.25, 0.25]
    """
    if count < 1:
        raise ValueError(f"Weights need at least one site, got {count}.")
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
    if values.shape != (count,):
        raise ValueError(f"Expected one weight for each of {count} sites, got shape {list(values.shape)}.")
    if not is_on_simplex(values):
        raise ValueError(f"Weights must be non-negative and sum to one, got {values.tolist()}.")
    return values


def is_on_simplex(weights: torch.Tensor) -> bool:
    """Return whether ``weights [U]`` are non-negative numbers with sum one, up to rounding.

    >>> is_on_simplex(torch.tensor([0.25, 0.75])), is_on_simplex(torch.tensor([1.25, -0.25]))
    (True, False)
    """
    return bool((weights >= 0).all()) and abs(float(weights.sum()) - 1.0) <= SUM_TOLERANCE
