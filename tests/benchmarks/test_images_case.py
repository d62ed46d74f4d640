# SPDX-License-Identifier: Apache-2.0
"""The case of the images: both sides give the same images of the training split, augmented alike."""

from pathlib import Path

import pytest
import torch
from cases.images import BATCH, PIXELS, opened, our_rounds, plain_epochs, rows, write_pictures

PER_CLASS = 12


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_pictures(tmp_path_factory.mktemp("pictures"), PER_CLASS)


def test_both_sides_give_every_training_image_once_in_the_same_batches(root: Path) -> None:
    data = opened(root)
    ours = [(images.shape, labels) for images, labels in our_rounds(data, 0, 1)()]
    plain = [(images.shape, labels) for images, labels in plain_epochs(data, 0)()]
    assert [shape for shape, _ in ours] == [shape for shape, _ in plain]
    assert ours[0][0] == (BATCH, 3, PIXELS, PIXELS)
    found = [torch.cat([labels for _, labels in side]).bincount().tolist() for side in (ours, plain)]
    assert found[0] == found[1]
    assert sum(found[0]) == len(data.train)


@pytest.mark.slow
def test_both_sides_augment_to_the_same_mean_and_deviation(root: Path) -> None:
    data = opened(root)
    torch.manual_seed(0)
    moments = []
    for epoch in (our_rounds(data, 0, 1), plain_epochs(data, 0)):
        pixels = torch.cat([images for _ in range(8) for images, _ in epoch()])
        moments.append(torch.stack([pixels.mean(dim=(0, 2, 3)), pixels.std(dim=(0, 2, 3))]))
    torch.testing.assert_close(moments[0], moments[1], atol=0.1, rtol=0)


def test_rows_are_measured() -> None:
    found = rows(quick=True)
    assert all(row.ratio is not None for row in found)
    assert [row.goal is not None for row in found] == [False, False, True]
