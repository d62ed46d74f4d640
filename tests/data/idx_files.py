# SPDX-License-Identifier: Apache-2.0
"""Files in MNIST's idx format, written for the tests."""

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

TRAIN, TEST = 50, 16


def write_idx(path: Path, values: NDArray[np.uint8]) -> None:
    """Write bytes in the idx format: two zeros, 8 for uint8, the number of dimensions, and each size in four bytes."""
    header = bytes([0, 0, 8, values.ndim]) + b"".join(size.to_bytes(4, "big") for size in values.shape)
    path.write_bytes(header + values.tobytes())
