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

from fdg_plugins.data.augmentation import (
    adjust_brightness,
    adjust_contrast,
    adjust_hue,
    adjust_saturation,
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


@pytest.mark.parametrize("turns", [-0.4, 0.0, 0.3])
def test_the_hue_is_torchvisions_for_every_colour_of_a_fine_grid(turns: float) -> None:
    levels = np.arange(0, 256, 15, dtype=np.uint8)
    image = np.stack(np.meshgrid(levels, levels, levels)).reshape(3, len(levels), -1)
    np.testing.assert_allclose(
        changed(adjust_hue, image, turns), expected(functional.adjust_hue, image, turns), atol=LEVEL
    )
