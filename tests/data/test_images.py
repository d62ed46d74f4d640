# SPDX-License-Identifier: Apache-2.0
"""Batches of images: the same bits for any number of workers and any memory, and one sentence for a bad image."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fdg_plugins.core.steps import batches_per_epoch
from fdg_plugins.data import DomainData, open_domain
from fdg_plugins.data.augmentation import Epochs, normalised
from fdg_plugins.data.image_files import Example, ImageFiles
from fdg_plugins.data.images import shuffled_batches, training_epochs
from fdg_plugins.errors import DataError

SIZE = 12
ONE = 16 * 16 * 3  # bytes of an image


@pytest.fixture
def data(own_data_root: Path) -> DomainData:
    """The domain photo with four images in each of the seven classes, three of them for training."""
    return open_domain(own_data_root, "pacs", "photo", seed=1)


def epoch(data: DomainData, number: int = 0, workers: int = 0) -> Iterable[Example]:
    scope = ("site-1", number)
    return next(training_epochs(data, image_size=SIZE, batch_size=4, seed=1, scope=scope, epochs=1, workers=workers))


def stacked(batches: Iterable[Example]) -> tuple[torch.Tensor, torch.Tensor]:
    """Return all images ``[B, 3, S, S]`` and labels ``[B]`` in the order in which they come."""
    images, labels = zip(*batches, strict=True)
    return torch.cat(images), torch.cat(labels)


def folder_of(data: DomainData) -> Path:
    assert isinstance(data.images, ImageFiles)
    return data.images.folder


@settings(derandomize=True, deadline=None)
@given(count=st.integers(0, 70), batch_size=st.integers(1, 20))
def test_batches_hold_every_index_once_and_never_one_left_over(count: int, batch_size: int) -> None:
    batches = shuffled_batches(count, batch_size, 0, ())
    assert sorted(index for batch in batches for index in batch) == list(range(count))
    assert len(batches) == batches_per_epoch(count, batch_size)
    assert all(len(batch) == batch_size for batch in batches[:-1])
    if len(batches) > 1 and batch_size > 1:
        assert 2 <= len(batches[-1]) <= batch_size + 1


@pytest.mark.parametrize(("workers", "memory"), [(1, 0), (2, 0), (0, 5 * ONE), (2, 2**20)])
def test_workers_and_memory_change_no_bit(data: DomainData, workers: int, memory: int) -> None:
    other = replace(data, images=ImageFiles(folder_of(data), memory))
    for number in range(2):
        for one, same in zip(stacked(epoch(data, number)), stacked(epoch(other, number, workers)), strict=True):
            assert torch.equal(one, same)


def test_an_epoch_holds_every_training_image_once_with_its_label(data: DomainData) -> None:
    images, labels = stacked(epoch(data))
    dataset = data.images.dataset(data.train, SIZE, "training", Epochs(1, ("site-1", 0), 1))
    singles = [dataset[i] for i in reversed(range(len(data.train)))]  # in any order of reading
    assert Counter(labels.tolist()) == Counter(sample.label for sample in data.train)
    for image, label in zip(images, labels, strict=True):
        assert sum(torch.equal(image, normalised(single[None])[0]) and label == known for single, known in singles) == 1


def test_the_first_are_kept_as_far_as_the_memory_goes(data: DomainData) -> None:
    images = ImageFiles(folder_of(data), 2 * ONE + ONE // 2)
    dataset = images.dataset(data.train, SIZE, "training", Epochs(1, ()))
    assert images.memory == ONE // 2
    for sample in data.train:
        (images.folder / sample.file).unlink()
    _ = dataset[0], dataset[1]
    with pytest.raises(DataError):
        _ = dataset[2]
