# SPDX-License-Identifier: Apache-2.0
r"""The Gaussian mechanism on a whole update; what its releases cost is in :mod:`fdg_plugins.core.accounting`.

What is released is ``x min(1, C / |x|) + N(0, (sigma C)^2 I)``: the update, clipped as one vector, and noise. Its
privacy loss, for data that may be replaced *as a whole*, is that of a Gaussian mechanism whose sensitivity is 2C.

Shapes: an update is a mapping of names to tensors, P values in all. Everything is computed in float64. No sampling
of data enters, so nothing is amplified: the cost of sites that take part in every round.

Differences: textbooks often take sensitivity C, which compares a data set with none at all (a site that sends pure
noise). Two data sets give two points of a ball of radius C, which lie up to 2C apart; so that is what counts here.
Real numbers are floating-point numbers: see ``docs/privacy.md`` (Mironov, CCS 2012).
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

    There is no seed, so nobody who knows the run's seed, or sees one part of the noise, can compute it and take it
    off again. Box and Muller's transform of uniform numbers of 53 bits; none exceeds 8.6 in size (beyond lie 1e-17).
    """
    pairs = (count + 1) // 2
    words = np.frombuffer(os.urandom(16 * pairs), dtype=np.uint64).reshape(2, pairs) >> np.uint64(11)
    uniform = words.astype(np.float64) * 2.0**-53  # in [0, 1)
    radius = np.sqrt(-2.0 * np.log1p(-uniform[0]))
    angle = 2.0 * np.pi * uniform[1]
    return torch.from_numpy(np.concatenate([radius * np.cos(angle), radius * np.sin(angle)])[:count])


def clip_factor(norm: float, clip_norm: float) -> float:
    """Return ``min(1, C / |x|)``, the factor that brings a vector of length ``norm`` into the ball of radius C."""
    return 1.0 if norm <= clip_norm else clip_norm / norm


def privatize(
    update: Mapping[str, torch.Tensor], clip_norm: float, noise_multiplier: float, noise: Noise = secure_normal
) -> dict[str, torch.Tensor]:
    """Return the release: ``update`` clipped as one vector to the length C, plus noise of deviation sigma C.

    Args:
        update: floating-point tensors, finite, none beyond 1e140 in size.
        clip_norm: C > 0, in the units of the update.
        noise_multiplier: sigma > 0.
        noise: gives standard normal numbers. For tests; anything but the default voids the guarantee.

    The result has the update's dtypes. It is rounded to them after the noise is added in float64; what the narrower
    type cannot hold becomes its largest value.
    """
    factor = clip_factor(math.sqrt(inner_product(update, update)), clip_norm)
    release = {}
    for name in sorted(update):
        value = update[name]
        noisy = value.detach().cpu().to(torch.float64, copy=True).mul_(factor)
        noisy.add_(noise(value.numel()).reshape(value.shape), alpha=noise_multiplier * clip_norm)
        limits = torch.finfo(value.dtype)
        release[name] = noisy.clamp_(limits.min, limits.max).to(value.dtype).contiguous()
    return release
