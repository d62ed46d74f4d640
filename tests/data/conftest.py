# SPDX-License-Identifier: Apache-2.0
"""A small MNIST in idx files, as torchvision reads it."""

from pathlib import Path

import numpy as np
import pytest

from tests.data.idx_files import TEST, TRAIN, write_idx


@pytest.fixture
def mnist_root(tmp_path: Path) -> Path:
    """A data root with 50 training and 16 test images of noise, which the test may damage."""
    root = tmp_path / "root"
    folder = root / "mnist" / "MNIST" / "raw"
    folder.mkdir(parents=True)
    generator = np.random.default_rng(0)
    for part, count in (("train", TRAIN), ("t10k", TEST)):
        images = generator.integers(0, 256, size=(count, 28, 28), dtype=np.uint8)
        write_idx(folder / f"{part}-images-idx3-ubyte", images)
        write_idx(folder / f"{part}-labels-idx1-ubyte", (np.arange(count) % 10).astype(np.uint8))
    return root
