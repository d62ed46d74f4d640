# SPDX-License-Identifier: Apache-2.0
"""Images that are kept: the same pixels as those read, decoded once, shared with forked processes, within the limit."""

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from fdg_plugins.data import ImageFiles

SHAPES = {"a.png": (8, 6), "b.png": (5, 9), "c.png": (8, 6)}
SIZES = {name: height * width * 3 for name, (height, width) in SHAPES.items()}
ALL = sum(SIZES.values())


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    generator = np.random.default_rng(0)
    for name, shape in SHAPES.items():
        Image.fromarray(generator.integers(0, 256, (*shape, 3), dtype=np.uint8)).save(tmp_path / name)
    return tmp_path


def replace_all(folder: Path) -> None:
    """Make every image black, in its old size: who reads a file again sees it."""
    for name, (height, width) in SHAPES.items():
        Image.new("RGB", (width, height)).save(folder / name)


def kept(images: ImageFiles, folder: Path) -> set[str]:
    """Return the names of the images that are not read again."""
    for name in SHAPES:
        images.read(name)
    replace_all(folder)
    return {name for name in SHAPES if images.read(name).any()}


@pytest.mark.parametrize("memory", [0, SIZES["a.png"], ALL, 10 * ALL])
def test_pixels_are_those_of_the_file_kept_or_not(folder: Path, memory: int) -> None:
    expected = {name: np.asarray(Image.open(folder / name)) for name in SHAPES}
    images = ImageFiles(folder, memory)
    images.reserve(SHAPES)
    for _ in range(2):
        for name, pixels in expected.items():
            assert np.array_equal(images.read(name), pixels)


@pytest.mark.parametrize(
    ("memory", "expected"),
    [
        (ALL, {"a.png", "b.png", "c.png"}),
        (ALL - 1, {"a.png", "b.png"}),
        (SIZES["a.png"] + SIZES["c.png"], {"a.png", "b.png"}),
        (SIZES["b.png"] - 1, set()),
        (0, set()),
    ],
)
def test_no_more_is_kept_than_the_memory_holds_the_first_ones_first(
    folder: Path, memory: int, expected: set[str]
) -> None:
    images = ImageFiles(folder, memory)
    images.reserve(SHAPES)
    assert kept(images, folder) == expected
