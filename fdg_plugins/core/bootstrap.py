# SPDX-License-Identifier: Apache-2.0
"""Bootstrap intervals of scores that are known as counts of images by outcome, at each site.

Source: Efron, Tibshirani, "An Introduction to the Bootstrap", 1993, chapter 13 (percentile intervals). To draw n images
with replacement is to draw their outcomes from a multinomial distribution, so no site needs to send single images.

Shapes: S sites, K outcomes; counts int ``[S, K]``, values ``[K]``.
"""

from collections.abc import Sequence

import numpy as np

from fdg_plugins.randomness import numpy_generator

RIGHT_OR_WRONG = (1.0, 0.0)
PAIRED = (0.0, -1.0, 1.0, 0.0)
"""What a second model gains over a first on an image: both are right, only the first, only the second, neither."""
GAINS = tuple(step / 200 - 1 for step in range(401))
"""The same where the score of an image lies between 0 and 1: their difference, to the nearest 0.005."""
LEVEL = 0.95
DRAWS = 10_000


def interval_of(counts: Sequence[Sequence[int]], values: Sequence[float]) -> tuple[float, float]:
    """Return the 95 % interval of the mean over all images of the value of their outcome, from 10,000 draws.

    Each site's images are drawn from its own, as many as it has. The same counts give the same interval. It has no
    width if all images have one outcome, of which other images may still have another.

    >>> interval_of([[50, 0, 0, 50]], PAIRED)
    (0.0, 0.0)
    >>> low, high = interval_of([[40, 10, 30, 20]], PAIRED)
    >>> 0 < low < 0.2 < high < 0.4
    True
    """
    generator = numpy_generator(0, "bootstrap")
    totals, images = np.zeros(DRAWS), 0
    for row in counts:
        size = sum(row)
        totals += generator.multinomial(size, np.asarray(row) / max(size, 1), size=DRAWS) @ np.asarray(values)
        images += size
    low, high = np.quantile(totals / images, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    return float(low), float(high)
