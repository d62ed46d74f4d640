# SPDX-License-Identifier: Apache-2.0
"""Every change of colour against torchvision's own on floats, and what each leaves as it is."""

from collections.abc import Callable

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from torchvision.transforms.v2 import functional

from fdg_plugins.data.colours import (
    adjust_brightness,
    adjust_contrast,
    adjust_hue,
    adjust_saturation,
    grey_of,
    remove_colour,
)

REPEATABLE = settings(derandomize=True, deadline=None)
IMAGES = arrays(np.uint8, st.tuples(st.just(3), st.integers(1, 6), st.integers(1, 6)))
PAIRS = [
    (adjust_brightness, functional.adjust_brightness),
    (adjust_contrast, functional.adjust_contrast),
    (adjust_saturation, functional.adjust_saturation),
]
LEVEL = 1e-3  # of 255

Change = Callable[[np.ndarray, float], None]
Reference = Callable[[torch.Tensor, float], torch.Tensor]


def changed(change: Change, image: np.ndarray, factor: float) -> np.ndarray:
    result = image.astype(np.float32)
    change(result, factor)
    return result


def expected(reference: Reference, image: np.ndarray, factor: float) -> np.ndarray:
    values = torch.from_numpy(image.astype(np.float32)) / 255
    return (reference(values, factor) * 255).numpy()


@pytest.mark.parametrize(("change", "reference"), PAIRS)
@REPEATABLE
@given(image=IMAGES, factor=st.floats(0, 2))
def test_blends_are_torchvisions(change: Change, reference: Reference, image: np.ndarray, factor: float) -> None:
    np.testing.assert_allclose(changed(change, image, factor), expected(reference, image, factor), atol=LEVEL)


@REPEATABLE
@given(image=IMAGES, turns=st.floats(-0.5, 0.5))
def test_the_hue_is_torchvisions(image: np.ndarray, turns: float) -> None:
    np.testing.assert_allclose(
        changed(adjust_hue, image, turns), expected(functional.adjust_hue, image, turns), atol=LEVEL
    )


@pytest.mark.parametrize("turns", [-0.4, 0.0, 0.3])
def test_the_hue_is_torchvisions_for_every_colour_of_a_fine_grid(turns: float) -> None:
    levels = np.arange(0, 256, 15, dtype=np.uint8)
    image = np.stack(np.meshgrid(levels, levels, levels)).reshape(3, len(levels), -1)
    np.testing.assert_allclose(
        changed(adjust_hue, image, turns), expected(functional.adjust_hue, image, turns), atol=LEVEL
    )


@REPEATABLE
@given(image=IMAGES, turns=st.floats(-1, 1))
def test_turning_the_hue_keeps_the_largest_and_the_smallest_value_of_a_pixel(image: np.ndarray, turns: float) -> None:
    turned = changed(adjust_hue, image, turns)
    np.testing.assert_allclose(turned.max(axis=0), image.max(axis=0), atol=LEVEL)
    np.testing.assert_allclose(turned.min(axis=0), image.min(axis=0), atol=LEVEL)


@REPEATABLE
@given(image=IMAGES, turns=st.floats(-0.5, 0.5))
def test_turning_there_and_back_gives_the_image(image: np.ndarray, turns: float) -> None:
    there = image.astype(np.float32)
    adjust_hue(there, turns)
    adjust_hue(there, -turns)
    np.testing.assert_allclose(there, image, atol=0.02)


def test_a_third_of_a_turn_makes_red_green_and_green_blue() -> None:
    image = np.array([200, 60, 30], dtype=np.uint8).reshape(3, 1, 1)
    np.testing.assert_allclose(changed(adjust_hue, image, 1 / 3).ravel(), [30, 200, 60], atol=LEVEL)


@REPEATABLE
@given(image=IMAGES, factor=st.floats(0, 3))
def test_no_change_leaves_the_range(image: np.ndarray, factor: float) -> None:
    for change in (adjust_brightness, adjust_contrast, adjust_saturation):
        result = changed(change, image, factor)
        assert result.min() >= -LEVEL
        assert result.max() <= 255 + LEVEL


def test_grey_is_torchvisions() -> None:
    image = np.random.default_rng(0).integers(0, 256, (3, 5, 4), dtype=np.uint8)
    values = torch.from_numpy(image.astype(np.float32)) / 255
    np.testing.assert_allclose(
        grey_of(image.astype(np.float32)), functional.rgb_to_grayscale(values)[0] * 255, atol=LEVEL
    )
    result = image.astype(np.float32)
    remove_colour(result)
    np.testing.assert_allclose(result, functional.rgb_to_grayscale(values, num_output_channels=3) * 255, atol=LEVEL)
