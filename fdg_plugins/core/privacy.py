# SPDX-License-Identifier: Apache-2.0
r"""The Gaussian mechanism on a whole update; its privacy cost is computed in :mod:`fdg_plugins.core.accounting`.

Equation: the release is ``x min(1, C / |x|) + N(0, (sigma C)^2 I)``, the update clipped as one vector plus noise
-> :func:`privatize`. If a site's data may be replaced *as a whole*, its privacy loss is that of a
Gaussian mechanism with sensitivity 2C.

Shapes: an update maps names to tensors of any shape, P values in all; its release has the same shapes. Everything is
computed in float64. There is no subsampling, hence no amplification: the cost is that of a site that takes part in
every round.

Differences: textbooks often use sensitivity C, which compares a data set with no data at all (a site that sends pure
noise). Two data sets give two points in a ball of radius C, which are up to 2C apart, and that is the sensitivity used
here. The mathematics assumes real numbers, but computers use floating point: see ``docs/privacy.md`` (Mironov, "On
Significance of the Least Significant Bits for Differential Privacy", CCS 2012).
"""

import math
import os
from collections.abc import Callable, Mapping

import numpy as np
import torch

from fdg_plugins.core.linear import inner_product

SENSITIVITY = 2.0  # of a clipped update, in units of the clip norm: the diameter of the ball

Noise = Callable[[int], torch.Tensor]


def secure_normal(count: int) -> torch.Tensor:
    """Return ``[count]`` standard normal numbers, float64, from the operating system's cryptographic source.

    There is no seed, so the noise cannot be reproduced and subtracted by someone who knows the run's seed or sees part
    of the noise. Uses the Box-Muller transform of 53-bit uniform numbers; values are at most 8.6 in magnitude, beyond
    which lies a probability of 1e-17.
    """
    pairs = (count + 1) // 2
    words = np.frombuffer(os.urandom(16 * pairs), dtype=np.uint64).reshape(2, pairs) >> np.uint64(11)
    uniform = words.astype(np.float64) * 2.0**-53  # in [0, 1)
    radius = np.sqrt(-2.0 * np.log1p(-uniform[0]))
    angle = 2.0 * np.pi * uniform[1]
    return torch.from_numpy(np.concatenate([radius * np.cos(angle), radius * np.sin(angle)])[:count])


def privatize(
    update: Mapping[str, torch.Tensor], clip_norm: float, noise_multiplier: float, noise: Noise = secure_normal
) -> dict[str, torch.Tensor]:
    """Return the release: ``update`` clipped as one vector to length C, plus noise of standard deviation sigma C.

    Args:
        update: finite floating-point tensors by name, with values of at most 1e140 in magnitude.
        clip_norm: C > 0, in the units of the update.
        noise_multiplier: sigma > 0.
        noise: returns standard normal numbers. For tests only; any value but the default voids the guarantee.

    The result has the update's dtypes. The noise is added in float64 and the sum is then rounded; values that do not
    fit into the narrower type are clamped to its range.
    """
    norm = math.sqrt(inner_product(update, update))
    factor = 1.0 if norm <= clip_norm else clip_norm / norm
    release = {}
    for name in sorted(update):
        value = update[name]
        noisy = value.detach().cpu().to(torch.float64, copy=True).mul_(factor)
        noisy.add_(noise(value.numel()).reshape(value.shape), alpha=noise_multiplier * clip_norm)
        limits = torch.finfo(value.dtype)
        release[name] = noisy.clamp_(limits.min, limits.max).to(value.dtype).contiguous()
    return release
