# SPDX-License-Identifier: Apache-2.0
"""The 1,797 handwritten digits included in scikit-learn: real images that need no file from the user."""

from functools import lru_cache

import torch
from sklearn.datasets import load_digits
from torchvision.transforms.v2 import functional

BRIGHTEST = 16.0


@lru_cache(maxsize=1)  # 1.4 MB at 28 pixels, which all sites of a process share; reading scikit-learn's table is slow
def read_digits(size: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the images, bilinearly scaled from 8x8 to uint8 ``[1797, size, size]``, and the labels ``[1797]``.

    The tensors are shared: copy them before changing them.
    """
    digits = load_digits()
    images = torch.from_numpy(digits.images).float() / BRIGHTEST
    scaled = functional.resize(images, [size, size], antialias=True)
    return functional.to_dtype(scaled.clamp(0.0, 1.0), torch.uint8, scale=True), torch.from_numpy(digits.target).long()
