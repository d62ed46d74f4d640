# SPDX-License-Identifier: Apache-2.0
"""What is drawn for a view: the ranges that were published, and the distributions that torchvision draws from."""

from fdg_plugins.data.augmentation import DRAWS, USUAL, Augmentation, AugmentationRanges, augmentation_from
from fdg_plugins.randomness import numpy_generator

COUNT = 3000


def drawn(height: int, width: int, ranges: AugmentationRanges = USUAL) -> list[Augmentation]:
    table = numpy_generator(0, "test").random((COUNT, DRAWS))
    return [augmentation_from(row, height, width, ranges) for row in table]


def test_a_crop_covers_80_to_100_percent_of_the_area_in_a_ratio_of_3_to_4_at_most() -> None:
    for crop in (d.crop for d in drawn(200, 200)):
        assert 0.79 <= crop.height * crop.width / 200**2 <= 1
        assert 0.74 <= crop.width / crop.height <= 1.35
