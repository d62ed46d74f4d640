# SPDX-License-Identifier: Apache-2.0
"""What a round's report says of updates that were combined one by one: lengths, and cosines with mean and direction."""

from collections.abc import Mapping, Sequence
from typing import Any

import torch

from fdg_plugins.aggregators.base import cosines, norm
from fdg_plugins.core.linear import combine, inner_product
from fdg_plugins.core.stored import Values

Vector = Mapping[str, Values]


def combine_updates(coefficients: torch.Tensor, updates: Sequence[Vector]) -> dict[str, torch.Tensor]:
    """Return ``sum_u coefficients[u] * updates[u]``, by name, of one or more updates."""
    return {name: combine(coefficients, [update[name] for update in updates]) for name in updates[0]}


def measure_updates(updates: Sequence[Vector], mean: Vector, direction: Vector) -> dict[str, Any]:
    """Return the lengths of the updates, of their mean and of the direction, and the cosines with these two."""
    lengths = torch.tensor([norm(update) for update in updates], dtype=torch.float64)
    mean_norm, with_mean = _against(mean, updates, lengths)
    direction_norm, with_direction = (
        (mean_norm, with_mean) if direction is mean else _against(direction, updates, lengths)
    )
    return {
        "update_norms": lengths.tolist(),
        "mean_norm": mean_norm,
        "direction_norm": direction_norm,
        "cosines_with_mean": with_mean,
        "cosines_with_direction": with_direction,
    }


def _against(vector: Vector, updates: Sequence[Vector], lengths: torch.Tensor) -> tuple[float, list[float]]:
    """Return the length of ``vector``, and its cosines with the updates."""
    products = torch.tensor([inner_product(update, vector) for update in updates], dtype=torch.float64)
    length = norm(vector)
    return length, cosines(products, lengths, length)
