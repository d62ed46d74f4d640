# SPDX-License-Identifier: Apache-2.0
"""Reference weights p ``[U]`` of a round's sites: non-negative, with sum one, in the order in which sites are given.

:func:`fisher_weights` are FedAS's (Yang, Huang, Ye, CVPR 2024): ``T_u / sum_v T_v``, with ``T = sum_b |grad_w L_b|^2``
over batches b of a site's training images, L_b the mean negative log-likelihood and w the site's trained model.
"""

from collections.abc import Iterable, Sequence

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


def squared_length(gradients: Iterable[torch.Tensor]) -> torch.Tensor:
    """Return the sum of squares over all gradients, a float64 scalar on their device.

    >>> squared_length([torch.tensor([3.0]), torch.tensor([[4.0]])]).item()
    25.0
    """
    squares = [gradient.detach().double().square().sum() for gradient in gradients]
    return torch.stack(squares).sum()


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
