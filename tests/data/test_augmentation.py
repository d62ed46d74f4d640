# SPDX-License-Identifier: Apache-2.0
"""Views and colours against torchvision's own: the same crop, flip and colours; and the view for judging."""

from collections.abc import Callable

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from PIL import Image
from torchvision.transforms import v2

from fdg_plugins.data.augmentation import (
    CHANGES,
    DRAWS,
    Augmentation,
    Change,
    augmentation_from,
    augmented,
    whole_view,
)
from fdg_plugins.randomness import numpy_generator

REPEATABLE = settings(derandomize=True, deadline=None)
IMAGES = arrays(np.uint8, st.tuples(st.just(3), st.integers(1, 6), st.integers(1, 6)))
BLENDS: list[Change] = ["brightness", "contrast", "saturation"]
TORCHVISIONS: dict[str, Callable[..., torch.Tensor]] = {
    name: getattr(v2.functional, f"adjust_{name}") for name in CHANGES
}
LEVEL = 1e-3  # of 255


def check_change(name: Change, image: np.ndarray, factor: float) -> None:
    found = image.astype(np.float32)
    CHANGES[name](found, factor)
    expected = TORCHVISIONS[name](torch.from_numpy(image.astype(np.float32)) / 255, factor) * 255
    np.testing.assert_allclose(found, expected.numpy(), atol=LEVEL)


@pytest.mark.parametrize("name", BLENDS)
@REPEATABLE
@given(image=IMAGES, factor=st.floats(0, 2))
def test_blends_are_torchvisions(name: Change, image: np.ndarray, factor: float) -> None:
    check_change(name, image, factor)


@pytest.mark.parametrize("turns", [-0.4, 0.0, 0.3])
def test_the_hue_is_torchvisions_for_every_colour_of_a_fine_grid(turns: float) -> None:
    levels = np.arange(0, 256, 15, dtype=np.uint8)
    check_change("hue", np.stack(np.meshgrid(levels, levels, levels)).reshape(3, len(levels), -1), turns)


def picture(height: int = 90, width: int = 120) -> np.ndarray:
    """Return smooth colours with some noise, as photographs have them, uint8 ``[H, W, 3]``."""
    generator = np.random.default_rng(0)
    y, x = np.mgrid[0:height, 0:width]
    waves = [np.sin(x / a + y / b) for a, b in ((17, 29), (31, 13), (23, 19))]
    values = 128 + 90 * np.stack(waves, axis=2) + generator.normal(0, 6, (height, width, 3))
    return values.clip(0, 255).astype(np.uint8)


def levels_apart(pixels: np.ndarray, drawn: Augmentation, size: int) -> float:
    """Return the difference from torchvision's view that 99 % of the values do not exceed, in levels of 255."""
    crop = drawn.crop
    image = v2.functional.resized_crop(
        Image.fromarray(pixels), crop.top, crop.left, crop.height, crop.width, [size, size]
    )
    image = v2.functional.horizontal_flip(image) if drawn.flipped else image
    for name, factor in drawn.changes:
        image = TORCHVISIONS[name](image, factor)
    image = v2.functional.to_grayscale(image, num_output_channels=3) if drawn.grey else image
    difference = augmented(pixels, drawn, size).astype(int) - np.asarray(image).transpose(2, 0, 1)
    return float(np.percentile(np.abs(difference), 99))


@pytest.mark.parametrize("size", [48, 160])
def test_views_are_those_of_pillow_up_to_its_rounding_of_every_step(size: int) -> None:
    pixels = picture()
    for row in numpy_generator(0, "views").random((40, DRAWS)):
        drawn = augmentation_from(row, *pixels.shape[:2])
        assert 0.79 <= drawn.crop.height * drawn.crop.width / pixels[..., 0].size <= 1.01
        assert levels_apart(pixels, drawn, size) <= 13  # Pillow has 8 bits for the hue
        same_hue = drawn._replace(changes=tuple(change for change in drawn.changes if change[0] != "hue"))
        assert levels_apart(pixels, same_hue, size) <= 4


def test_the_whole_view_is_pillows_resize_of_the_whole_image() -> None:
    pixels = picture()
    resized = np.asarray(Image.fromarray(pixels).resize((64, 64), Image.Resampling.BILINEAR)).transpose(2, 0, 1)
    assert np.abs(whole_view(pixels, 64).astype(int) - resized).max() <= 1
