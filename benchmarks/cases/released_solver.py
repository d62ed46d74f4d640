# SPDX-License-Identifier: Apache-2.0
"""Eq. 15 of FedOMG as the authors' code solves it, written anew from its description: descent on a softmax.

With ``s = mean_u sqrt(|g_u|^2 + 1e-4)``, ``G = gram / s^2``, ``q`` the row means of G and
``c = kappa sqrt(mean(q) + 1e-4)``, minimise ``w' q + c sqrt(w' G w + 1e-4)`` over ``w = softmax(v)`` from ``v = 0``.
"""

import torch

EVALUATIONS = 21  # 20 updates lie between them; the best w evaluated is kept
LEARNING_RATE = 25.0
MOMENTUM = 0.5
EPSILON = 1e-4


def released_weights(gram: torch.Tensor, kappa: float) -> torch.Tensor:
    """Return the weights ``[U]``, float64, for the Gram matrix ``[U, U]`` and uniform reference weights."""
    scale = (gram.diagonal() + EPSILON).sqrt().mean()
    scaled = gram / scale**2
    linear = scaled.mean(dim=1)
    radius = kappa * (linear.mean() + EPSILON).sqrt()
    free = torch.zeros(len(gram), dtype=gram.dtype, requires_grad=True)
    optimizer = torch.optim.SGD([free], lr=LEARNING_RATE, momentum=MOMENTUM)
    best, lowest = torch.full_like(gram[0], 1 / len(gram)), float("inf")
    for evaluation in range(EVALUATIONS):
        weights = free.softmax(dim=0)
        objective = weights @ linear + radius * (weights @ scaled @ weights + EPSILON).sqrt()
        if objective.item() < lowest:
            best, lowest = weights.detach().clone(), objective.item()
        if evaluation < EVALUATIONS - 1:
            optimizer.zero_grad()
            objective.backward()
            optimizer.step()
    return best
