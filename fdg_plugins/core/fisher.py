# SPDX-License-Identifier: Apache-2.0
r"""Weights of sites by the trace of the empirical Fisher information of their models (FedAS).

Reference: Yang, Huang, Ye, "FedAS: Bridging Inconsistency in Personalized Federated Learning", CVPR 2024.

Equations, with L_b the mean negative log-likelihood of batch b of a site's training images, w the site's trained model:

- ``T = sum_b |grad_w L_b|^2``, a sum over batches -> :func:`squared_length` of one batch's gradients
- ``T_u / sum_v T_v``, the weight of site u -> :func:`fisher_weights`

Shapes: gradients by parameter, each of its parameter's shape; traces T ``[U]`` of the sites of the round.

Degenerate cases: equal traces weigh all sites alike. If all are zero, which no network reaches but a saturated one, the
weights are those by samples. One site has all the weight.
"""

from collections.abc import Iterable, Sequence

import torch

from fdg_plugins.core.weighting import sample_weights


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
