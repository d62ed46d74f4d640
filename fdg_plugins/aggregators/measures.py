# SPDX-License-Identifier: Apache-2.0
"""Figures of a round's updates for its report: norms, and cosines with the mean and the direction.

Shapes: all follow from the Gram matrix ``[U, U]`` and the coefficients ``[U]``, without reading the updates again.
Norms have the units of the parameters; cosines lie in [-1, 1] and are zero where a norm is zero.
"""

from typing import Any

import torch

from fdg_plugins.aggregators.base import cosines


def measures(
    gram: torch.Tensor, mean: torch.Tensor, direction: torch.Tensor, sites: int | None = None
) -> dict[str, Any]:
    """Return the lengths of the updates, of their mean and of the direction, and the cosines with these two.

    ``gram``: the Gram matrix of the updates, float64 ``[V, V]``; where ``sites`` is given, of as many, and after them
    of what else is needed for mean and direction. ``mean`` and ``direction``: coefficients ``[V]``.
    """
    lengths = gram.diagonal().clamp_min(0).sqrt()
    mean_norm, direction_norm = (float((c @ gram @ c).clamp_min(0).sqrt()) for c in (mean, direction))
    return {
        "update_norms": lengths[:sites].tolist(),
        "mean_norm": mean_norm,
        "direction_norm": direction_norm,
        "cosines_with_mean": cosines(gram @ mean, lengths, mean_norm)[:sites],
        "cosines_with_direction": cosines(gram @ direction, lengths, direction_norm)[:sites],
    }
