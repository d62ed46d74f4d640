# SPDX-License-Identifier: Apache-2.0
"""Lengths, cosines and distances of a round's updates and of the step made from them, for the record.

Shapes: U sites; their Gram matrix ``[U, U]`` and weights ``[U]``; inner products of the step with the updates ``[U]``.
All float64; lengths are L2 norms over the trainable parameters.
"""

from collections.abc import Sequence
from typing import Any

import torch

from fdg_plugins.core.gram import gram_matrix, inner_products
from fdg_plugins.core.linear import Update


def measure_step(
    updates: Sequence[Update], step: Update, weights: torch.Tensor, scale: float, gram: torch.Tensor | None = None
) -> dict[str, Any]:
    """Return the lengths of the updates, of their mean and of the direction, and the cosines of the updates with both.

    With them, the mean distance of two updates, :func:`divergence`.

    Args:
        updates: of the U sites, each ``[P]`` or a mapping by name.
        step: the change of the model, which is ``scale`` times the direction.
        weights: of the mean, ``[U]``.
        scale: the server's learning rate, above zero.
        gram: the Gram matrix of the updates ``[U, U]``, if known; otherwise it is computed together with the step's
            row.
    """
    count = len(updates)
    if gram is None:
        extended = gram_matrix([*updates, step])
        gram, products = extended[:count, :count], extended[count]
    else:
        products = inner_products(step, [*updates, step])
    lengths = gram.diagonal().clamp_min(0).sqrt()
    mean_norm = float((weights @ gram @ weights).clamp_min(0).sqrt())
    step_norm = float(products[count].clamp_min(0).sqrt())
    return {
        "update_norms": lengths.tolist(),
        "gradient_divergence": divergence(gram),
        "mean_norm": mean_norm,
        "direction_norm": step_norm / scale,
        "cosines_with_mean": cosines(gram @ weights, lengths, mean_norm),
        "cosines_with_direction": cosines(products[:count], lengths, step_norm),
    }


def divergence(gram: torch.Tensor) -> float:
    """Return the mean of ``|g_u - g_v|`` over all pairs of U updates, from their Gram matrix ``[U, U]``; 0 for one.

    With updates as gradients, it is how far the gradients of the sites' risks diverge, which FedOMG's bound of the risk
    on another domain contains.

    >>> divergence(torch.tensor([[9.0, 0.0], [0.0, 16.0]]))
    5.0
    """
    squares = gram.diagonal()
    distances = (squares[:, None] + squares[None, :] - 2 * gram).clamp_min(0).sqrt()
    pairs = len(gram) * (len(gram) - 1)
    return float(distances.triu(1).sum()) * 2 / pairs if pairs else 0.0


def cosines(products: torch.Tensor, lengths: torch.Tensor, length: float) -> list[float]:
    """Return ``products [U]`` divided by ``lengths [U]`` and by ``length``, in [-1, 1]; zero where a length is zero.

    >>> cosines(torch.tensor([2.0, 0.0]), torch.tensor([2.0, 0.0]), 2.0)
    [0.5, 0.0]
    """
    scale = lengths * length
    return (
        torch.where(scale > 0, products / scale.clamp_min(torch.finfo(torch.float64).tiny), 0.0).clamp(-1, 1).tolist()
    )
