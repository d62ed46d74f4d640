# SPDX-License-Identifier: Apache-2.0
"""What is drawn for a view: the ranges that were published, and the distributions that torchvision draws from."""

import numpy as np
import pytest
from scipy import stats
from torchvision.transforms import v2

from fdg_plugins.data.augmentation import DRAWS, ORDERS, USUAL, Augmentation, AugmentationRanges, augmentation_from
from fdg_plugins.randomness import numpy_generator, seeded

COUNT = 3000
SHAPES = [(128, 128), (227, 180), (60, 400), (400, 60), (9, 7)]
SAME = 1e-3  # p of the same distribution below which two samples of it are called different; seeds are fixed


def drawn(height: int, width: int, ranges: AugmentationRanges = USUAL) -> list[Augmentation]:
    table = numpy_generator(0, "test").random((COUNT, DRAWS))
    return [augmentation_from(row, height, width, ranges) for row in table]


@pytest.mark.parametrize("crop_scale", [0.7, 0.8, 1.0])
@pytest.mark.parametrize(("height", "width"), SHAPES)
def test_crops_are_distributed_as_torchvisions(height: int, width: int, crop_scale: float) -> None:
    found = drawn(height, width, AugmentationRanges(crop_scale=crop_scale))
    ours = np.array([[d.crop.top, d.crop.left, d.crop.height, d.crop.width] for d in found])
    transform = v2.RandomResizedCrop(16, scale=(crop_scale, 1.0))
    image = v2.functional.to_image(np.zeros((height, width, 1), dtype=np.uint8))
    with seeded(0, "torchvision"):
        params = [transform.make_params([image]) for _ in range(COUNT)]
    theirs = np.array([[p["top"], p["left"], p["height"], p["width"]] for p in params])
    for ours_, theirs_ in zip(ours.T, theirs.T, strict=True):
        assert stats.ks_2samp(ours_, theirs_).pvalue > SAME


@pytest.mark.parametrize(("height", "width"), [*SHAPES, (1, 1), (2, 1)])
def test_every_crop_lies_in_the_image(height: int, width: int) -> None:
    for crop in (d.crop for d in drawn(height, width)):
        assert 0 <= crop.top <= crop.top + crop.height <= height
        assert 0 <= crop.left <= crop.left + crop.width <= width
        assert crop.height >= 1
        assert crop.width >= 1


def test_a_crop_covers_80_to_100_percent_of_the_area_in_a_ratio_of_3_to_4_at_most() -> None:
    for crop in (d.crop for d in drawn(200, 200)):
        assert 0.79 <= crop.height * crop.width / 200**2 <= 1
        assert 0.74 <= crop.width / crop.height <= 1.35


@pytest.mark.parametrize(("height", "width", "expected"), [(60, 400, (60, 80)), (400, 60, (80, 60))])
def test_where_no_crop_fits_the_middle_is_taken(height: int, width: int, expected: tuple[int, int]) -> None:
    crops = {d.crop for d in drawn(height, width)}
    assert {(crop.height, crop.width) for crop in crops} == {expected}
    assert {(crop.top, crop.left) for crop in crops} == {((height - expected[0]) // 2, (width - expected[1]) // 2)}


def test_half_are_flipped_and_a_tenth_are_grey() -> None:
    found = drawn(32, 32)
    assert stats.binomtest(sum(d.flipped for d in found), COUNT, 0.5).pvalue > SAME
    assert stats.binomtest(sum(d.grey for d in found), COUNT, 0.1).pvalue > SAME


@pytest.mark.parametrize("largest", [0.1, 0.4])
@pytest.mark.parametrize(("name", "middle"), [("brightness", 1), ("contrast", 1), ("saturation", 1), ("hue", 0)])
def test_factors_are_uniform(name: str, middle: float, largest: float) -> None:
    found = drawn(32, 32, AugmentationRanges(color_jitter=largest))
    factors = [factor for d in found for changed, factor in d.changes if changed == name]
    assert stats.kstest(factors, stats.uniform(middle - largest, 2 * largest).cdf).pvalue > SAME


def test_ranges_change_how_far_a_view_is_changed_and_none_of_its_other_draws() -> None:
    narrow = AugmentationRanges(crop_scale=0.9, color_jitter=0.1)
    for usual, other in zip(drawn(200, 200), drawn(200, 200, narrow), strict=True):
        assert (usual.flipped, usual.grey) == (other.flipped, other.grey)
        assert [name for name, _ in usual.changes] == [name for name, _ in other.changes]
        for (name, factor), (_, less) in zip(usual.changes, other.changes, strict=True):
            middle = 0 if name == "hue" else 1
            assert less - middle == pytest.approx((factor - middle) / 4)


def test_no_jitter_is_no_change_of_colour() -> None:
    assert all(d.changes == () for d in drawn(32, 32, AugmentationRanges(color_jitter=0.0)))


def test_every_order_of_the_changes_is_as_likely() -> None:
    orders = [tuple(name for name, _ in d.changes) for d in drawn(32, 32)]
    assert len(ORDERS) == 24
    assert stats.chisquare([orders.count(order) for order in ORDERS]).pvalue > SAME


def test_what_is_drawn_is_independent() -> None:
    found = drawn(100, 100)
    columns = np.array(
        [[d.crop.left, d.flipped, d.grey, *dict(sorted(d.changes)).values()] for d in found], dtype=float
    )
    correlation = np.corrcoef(columns.T) - np.eye(columns.shape[1])
    assert np.abs(correlation).max() < 0.08
