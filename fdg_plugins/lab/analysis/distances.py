# SPDX-License-Identifier: Apache-2.0
"""Distances between the outlines of two masks, by MONAI (the extra ``medical``)."""

import math
from collections.abc import Sequence
from warnings import catch_warnings, filterwarnings

import torch

from fdg_plugins.extras import load_extra

PERCENTILE = 95


def hausdorff95(prediction: torch.Tensor, truth: torch.Tensor, spacing: Sequence[float] | None = None) -> float:
    """Return the 95 % Hausdorff distance between two masks of one class, bool ``[*S]``.

    It is the larger of two numbers: the 95th percentiles of the distances from each outline to the other. ``spacing``:
    the size of a pixel or voxel along each axis in mm, which is then the unit of the result; None: the unit is a pixel.

    If both masks are empty, the distance is 0. If one is, it is the length of the image's diagonal, so that a mean over
    images contains all of them, and a model does not gain by missing one.
    """
    sizes = [1.0] * truth.ndim if spacing is None else [float(one) for one in spacing]
    if not bool(prediction.any()) or not bool(truth.any()):
        both = bool(prediction.any()) is bool(truth.any())
        return 0.0 if both else math.hypot(*(size * side for size, side in zip(sizes, truth.shape, strict=True)))
    metrics = load_extra("monai.metrics", "the Hausdorff distance")
    with catch_warnings():
        filterwarnings("ignore", ".*always_return_as_numpy", FutureWarning)  # MONAI's about its own call
        found = metrics.compute_hausdorff_distance(
            prediction.bool()[None, None],
            truth.bool()[None, None],
            include_background=True,
            percentile=PERCENTILE,
            spacing=sizes,
        )
    return float(found)
