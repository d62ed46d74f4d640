# SPDX-License-Identifier: Apache-2.0
"""Batches of images: the same bits for any order and number of workers, and one sentence for a bad image."""

from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from fdg_plugins.data import (
    PACS,
    DomainData,
    DomainImages,
    ImageBatches,
    ImageFiles,
    TrainingView,
    open_domain,
    training_batches,
)
from fdg_plugins.data.images import ShuffledBatches
from fdg_plugins.data.transforms import normalised
from fdg_plugins.errors import DataError

REPEATABLE = settings(derandomize=True, deadline=None)
SIZE = 16


@pytest.fixture
def data(tmp_path: Path) -> DomainData:
    """The domain photo with three random images in each of the seven classes, two of them for training."""
    generator = np.random.default_rng(0)
    for name in PACS.classes:
        folder = tmp_path / "pacs" / "photo" / name
        folder.mkdir(parents=True)
        for number in range(3):
            pixels = generator.integers(0, 256, (24, 20, 3), dtype=np.uint8)
            Image.fromarray(pixels).save(folder / f"{number}.png")
    return open_domain(tmp_path, "pacs", "photo", seed=1)


def epoch(
    data: DomainData, *, seed: int = 1, scope: tuple[str | int, ...] = ("site-1", 0), workers: int = 0
) -> ImageBatches:
    return training_batches(data, image_size=SIZE, batch_size=4, seed=seed, scope=scope, workers=workers)


def stacked(batches: ImageBatches) -> tuple[torch.Tensor, torch.Tensor]:
    """Return all images ``[B, 3, S, S]`` and labels ``[B]`` in the order in which they come."""
    images, labels = zip(*batches, strict=True)
    return torch.cat(images), torch.cat(labels)


def files_of(data: DomainData) -> ImageFiles:
    assert isinstance(data.images, ImageFiles)
    return data.images


def augmented(data: DomainData, seed: int = 1, scope: tuple[str | int, ...] = ("site-1", 0)) -> DomainImages:
    view = TrainingView(SIZE, len(data.train), seed=seed, scope=scope)
    return DomainImages(files_of(data), data.train, [view])


# --- single samples ---------------------------------------------------------------------------------


# --- batches for training ---------------------------------------------------------------------------


def test_workers_change_nothing(data: DomainData) -> None:
    images, labels = stacked(epoch(data))
    for workers in (1, 2):
        more_images, more_labels = stacked(epoch(data, workers=workers))
        assert torch.equal(images, more_images)
        assert torch.equal(labels, more_labels)


@REPEATABLE
@given(count=st.integers(0, 70), batch_size=st.integers(1, 20))
def test_batches_hold_every_index_once_and_never_one_left_over(count: int, batch_size: int) -> None:
    sampler = ShuffledBatches(count, batch_size, seed=0, scope=())
    batches = list(sampler)
    assert sorted(index for batch in batches for index in batch) == list(range(count))
    assert len(batches) == len(sampler)
    assert all(len(batch) == batch_size for batch in batches[:-1])
    if len(batches) > 1 and batch_size > 1:
        assert 2 <= len(batches[-1]) <= batch_size + 1


@pytest.mark.parametrize("memory", [24 * 20 * 3 * 5, 2**20])
@pytest.mark.parametrize("workers", [0, 2])
def test_images_kept_in_memory_change_no_bit(data: DomainData, memory: int, workers: int) -> None:
    keeping = replace(data, images=ImageFiles(files_of(data).folder, memory))
    for number in range(3):
        expected, kept = (stacked(epoch(which, scope=("a", number), workers=workers)) for which in (data, keeping))
        assert torch.equal(expected[0], kept[0])
        assert torch.equal(expected[1], kept[1])


# --- batches for evaluation -------------------------------------------------------------------------


# --- refusals ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("damage", ["truncated", "text", "missing"])
def test_a_bad_image_is_one_sentence_with_or_without_workers(data: DomainData, workers: int, damage: str) -> None:
    bad = files_of(data).folder / data.train[5].file
    content = {"truncated": bad.read_bytes()[:400], "text": b"not an image"}.get(damage)
    bad.unlink()
    if content is not None:
        bad.write_bytes(content)
    with pytest.raises(DataError, match=f"^image .*{data.train[5].file} cannot be read") as caught:
        stacked(epoch(data, workers=workers))
    assert "\n" not in str(caught.value)
    assert caught.value.public == "an image of the split cannot be read."


def test_a_sample_is_the_same_in_any_order_of_reading(data: DomainData) -> None:
    forward = [augmented(data)[i][0] for i in range(len(data.train))]
    images = augmented(data)
    backward = [images[i][0] for i in reversed(range(len(data.train)))]
    assert all(torch.equal(a, b) for a, b in zip(forward, reversed(backward), strict=True))


def test_an_epoch_holds_every_training_image_once_with_its_label(data: DomainData) -> None:
    images, labels = stacked(epoch(data))
    singles = [augmented(data)[i] for i in range(len(data.train))]
    assert Counter(labels.tolist()) == Counter(sample.label for sample in data.train)
    for image, label in zip(images, labels, strict=True):
        assert sum(torch.equal(image, normalised(single[None])[0]) and label == known for single, known in singles) == 1
