# SPDX-License-Identifier: Apache-2.0
"""Batches of images: the same bits for any order and number of workers, and one sentence for a bad image."""

import tracemalloc
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
    AugmentationRanges,
    DomainData,
    DomainImages,
    ImageBatches,
    ImageFiles,
    TrainingView,
    evaluation_batches,
    open_domain,
    training_batches,
    training_epochs,
)
from fdg_plugins.data.images import ShuffledBatches
from fdg_plugins.data.transforms import normalised
from fdg_plugins.errors import DataError, SettingsError

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


def test_a_sample_is_the_same_in_any_order_of_reading(data: DomainData) -> None:
    forward = [augmented(data)[i][0] for i in range(len(data.train))]
    images = augmented(data)
    backward = [images[i][0] for i in reversed(range(len(data.train)))]
    assert all(torch.equal(a, b) for a, b in zip(forward, reversed(backward), strict=True))


@pytest.mark.parametrize(("seed", "scope"), [(2, ("site-1", 0)), (1, ("site-2", 0)), (1, ("site-1", 1))])
def test_seed_and_every_part_of_the_scope_change_the_augmentation(
    data: DomainData, seed: int, scope: tuple[str | int, ...]
) -> None:
    assert not torch.equal(augmented(data)[0][0], augmented(data, seed, scope)[0][0])


def test_reading_leaves_the_global_generator_as_it_was(data: DomainData) -> None:
    before = torch.get_rng_state()
    stacked(epoch(data))
    stacked(evaluation_batches(data, data.test, image_size=SIZE, batch_size=5))
    assert torch.equal(torch.get_rng_state(), before)


# --- batches for training ---------------------------------------------------------------------------


def test_workers_change_nothing(data: DomainData) -> None:
    images, labels = stacked(epoch(data))
    for workers in (1, 2):
        more_images, more_labels = stacked(epoch(data, workers=workers))
        assert torch.equal(images, more_images)
        assert torch.equal(labels, more_labels)


def test_augmentation_reaches_the_views_of_every_epoch(data: DomainData) -> None:
    weak = AugmentationRanges(crop_scale=1.0, color_jitter=0.0)

    def images(augmentation: AugmentationRanges, workers: int = 0) -> list[torch.Tensor]:
        epochs = training_epochs(
            data,
            image_size=SIZE,
            batch_size=4,
            seed=1,
            scope=("site-1", 0),
            epochs=2,
            augmentation=augmentation,
            workers=workers,
        )
        return [torch.cat([images for images, _ in epoch]) for epoch in epochs]

    usual, plain = images(AugmentationRanges()), images(weak)
    assert all(map(torch.equal, plain, images(weak, workers=2)))
    for number in range(2):
        assert not torch.equal(usual[number], plain[number])
        scope = ("site-1", 0, number)
        single = training_batches(data, image_size=SIZE, batch_size=4, seed=1, scope=scope, augmentation=weak)
        assert torch.equal(torch.cat([images for images, _ in single]), plain[number])


def test_an_epoch_holds_every_training_image_once_with_its_label(data: DomainData) -> None:
    images, labels = stacked(epoch(data))
    singles = [augmented(data)[i] for i in range(len(data.train))]
    assert Counter(labels.tolist()) == Counter(sample.label for sample in data.train)
    for image, label in zip(images, labels, strict=True):
        assert sum(torch.equal(image, normalised(single[None])[0]) and label == known for single, known in singles) == 1


def test_batches_have_declared_shapes_and_types(data: DomainData) -> None:
    images, labels = next(iter(epoch(data)))
    assert (images.shape, images.dtype) == ((4, 3, SIZE, SIZE), torch.float32)
    assert (labels.shape, labels.dtype) == ((4,), torch.int64)


def test_the_order_depends_on_seed_and_scope_and_repeats_itself(data: DomainData) -> None:
    def order(seed: int, scope: tuple[str | int, ...]) -> list[list[int]]:
        return list(ShuffledBatches(50, 4, seed=seed, scope=scope))

    assert order(1, ("a", 0)) == order(1, ("a", 0))
    assert (
        len({str(order(1, ("a", 0))), str(order(2, ("a", 0))), str(order(1, ("a", 1))), str(order(1, ("b", 0)))}) == 4
    )
    loader = epoch(data)
    assert torch.equal(stacked(loader)[0], stacked(loader)[0])


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


def test_a_single_sample_is_still_a_batch() -> None:
    assert list(ShuffledBatches(1, 8, seed=0, scope=())) == [[0]]


@pytest.mark.parametrize("memory", [24 * 20 * 3 * 5, 2**20])
@pytest.mark.parametrize("workers", [0, 2])
def test_images_kept_in_memory_change_no_bit(data: DomainData, memory: int, workers: int) -> None:
    keeping = replace(data, images=ImageFiles(files_of(data).folder, memory))
    for number in range(3):
        expected, kept = (stacked(epoch(which, scope=("a", number), workers=workers)) for which in (data, keeping))
        assert torch.equal(expected[0], kept[0])
        assert torch.equal(expected[1], kept[1])


@pytest.mark.parametrize("workers", [0, 2])
def test_kept_images_are_decoded_once(data: DomainData, workers: int) -> None:
    keeping = replace(data, images=ImageFiles(files_of(data).folder, 2**20))
    before = stacked(epoch(keeping, workers=workers))[0]
    for sample in data.train:
        (files_of(data).folder / sample.file).unlink()
    assert torch.equal(stacked(epoch(keeping, workers=workers))[0], before)
    evaluated = evaluation_batches(keeping, data.train, image_size=SIZE, batch_size=5, workers=workers)
    assert len(stacked(evaluated)[1]) == len(data.train)


@pytest.mark.parametrize("workers", [0, 2])
def test_epochs_in_one_go_are_those_one_by_one(data: DomainData, workers: int) -> None:
    epochs = training_epochs(data, image_size=SIZE, batch_size=4, seed=1, scope=("a", 7), epochs=3, workers=workers)
    for number, batches in zip(range(3), epochs, strict=True):
        expected = list(epoch(data, scope=("a", 7, number)))
        for (images, labels), (expected_images, expected_labels) in zip(batches, expected, strict=True):
            assert torch.equal(images, expected_images)
            assert torch.equal(labels, expected_labels)


@pytest.mark.parametrize("workers", [0, 1])
def test_nothing_of_an_epoch_is_made_before_its_turn(data: DomainData, workers: int) -> None:
    epochs = training_epochs(
        data, image_size=SIZE, batch_size=4, seed=1, scope=("a",), epochs=2_000_000, workers=workers
    )
    tracemalloc.start()
    first = next(iter(next(epochs)))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert torch.equal(first[0], next(iter(epoch(data, scope=("a", 0))))[0])
    assert peak < 2**21, "a table of draws for every epoch would take gigabytes"


# --- batches for evaluation -------------------------------------------------------------------------


@pytest.mark.parametrize("workers", [0, 2])
def test_evaluation_keeps_order_and_the_last_batch(data: DomainData, workers: int) -> None:
    batches = evaluation_batches(data, data.test, image_size=SIZE, batch_size=5, workers=workers)
    assert [len(labels) for _, labels in batches] == [5, 5, 5, 5, 1]
    assert stacked(batches)[1].tolist() == [sample.label for sample in data.test]


def test_no_samples_give_no_batches(data: DomainData) -> None:
    assert list(evaluation_batches(data, (), image_size=SIZE, batch_size=5)) == []


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
    assert str(caught.value).endswith("file.")
    assert caught.value.public == "an image of the split cannot be read."


@pytest.mark.parametrize(("batch_size", "workers", "name"), [(0, 0, "batch_size"), (4, -1, "workers")])
def test_impossible_settings_are_refused(data: DomainData, batch_size: int, workers: int, name: str) -> None:
    with pytest.raises(SettingsError, match=f"{name} is .*; expected"):
        training_batches(data, image_size=SIZE, batch_size=batch_size, seed=0, scope=(), workers=workers)
    with pytest.raises(SettingsError, match=f"{name} is .*; expected"):
        evaluation_batches(data, data.test, image_size=SIZE, batch_size=batch_size, workers=workers)
