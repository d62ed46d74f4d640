# SPDX-License-Identifier: Apache-2.0
"""Views against torchvision's own on Pillow images: the same crop, flip and colours; and the view for judging."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from PIL import Image
from torchvision.transforms import v2

from fdg_plugins.data import WholeView
from fdg_plugins.data.augmentation import DRAWS, Augmentation, augmentation_from
from fdg_plugins.data.transforms import IMAGENET_DEVIATION, IMAGENET_MEAN, augmented, normalised
from fdg_plugins.randomness import numpy_generator

NAMES = {
    "brightness": v2.functional.adjust_brightness,
    "contrast": v2.functional.adjust_contrast,
    "saturation": v2.functional.adjust_saturation,
    "hue": v2.functional.adjust_hue,
}


def picture(height: int = 90, width: int = 120) -> np.ndarray:
    """Return smooth colours with some noise, as photographs have them, uint8 ``[H, W, 3]``."""
    generator = np.random.default_rng(0)
    y, x = np.mgrid[0:height, 0:width]
    waves = [np.sin(x / a + y / b) for a, b in ((17, 29), (31, 13), (23, 19))]
    values = 128 + 90 * np.stack(waves, axis=2) + generator.normal(0, 6, (height, width, 3))
    return values.clip(0, 255).astype(np.uint8)


def by_pillow(pixels: np.ndarray, drawn: Augmentation, size: int) -> np.ndarray:
    """Return the same view as torchvision makes it of a Pillow image."""
    crop = drawn.crop
    image = Image.fromarray(pixels)
    image = v2.functional.resized_crop(image, crop.top, crop.left, crop.height, crop.width, [size, size])
    if drawn.flipped:
        image = v2.functional.horizontal_flip(image)
    for name, factor in drawn.changes:
        image = NAMES[name](image, factor)
    if drawn.grey:
        image = v2.functional.to_grayscale(image, num_output_channels=3)
    return np.asarray(image).transpose(2, 0, 1)


def levels_apart(pixels: np.ndarray, drawn: Augmentation, size: int) -> float:
    """Return the difference of both views that 99 % of the values do not exceed, in levels of 255."""
    difference = augmented(pixels, drawn, size).astype(int) - by_pillow(pixels, drawn, size)
    return float(np.percentile(np.abs(difference), 99))


@pytest.mark.parametrize("size", [48, 100, 160])
def test_views_are_those_of_pillow_up_to_its_rounding_of_every_step(size: int) -> None:
    pixels = picture()
    for row in numpy_generator(0, "views").random((40, DRAWS)):
        drawn = augmentation_from(row, *pixels.shape[:2])
        assert levels_apart(pixels, drawn, size) <= 13  # Pillow has 8 bits for the hue
        same_hue = replace(drawn, changes=tuple(change for change in drawn.changes if change[0] != "hue"))
        assert levels_apart(pixels, same_hue, size) <= 4


def test_the_whole_view_is_pillows_resize_of_the_whole_image() -> None:
    pixels = picture()
    resized = np.asarray(Image.fromarray(pixels).resize((64, 64), Image.Resampling.BILINEAR)).transpose(2, 0, 1)
    assert np.abs(WholeView(64)(pixels, 0).astype(int) - resized).max() <= 1


def test_normalised_values_have_imagenets_mean_and_deviation() -> None:
    image = torch.tensor([51, 102, 204], dtype=torch.uint8).view(1, 3, 1, 1).expand(2, 3, 4, 4).contiguous()
    expected = (torch.tensor([0.2, 0.4, 0.8]) - torch.tensor(IMAGENET_MEAN)) / torch.tensor(IMAGENET_DEVIATION)
    torch.testing.assert_close(normalised(image), expected.view(1, 3, 1, 1).expand(2, 3, 4, 4))
