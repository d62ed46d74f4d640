# SPDX-License-Identifier: Apache-2.0
"""Rotated digits: who gets which images, how they are turned, and the batches made of them."""

import subprocess
import sys
from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.datasets import load_digits

from fdg_plugins.data import (
    ROTATED_DIGITS,
    ROTATED_MNIST,
    ROTATED_MNIST_7K,
    DomainData,
    ImageArray,
    RotatedSpec,
    check_images,
    dataset_spec,
    evaluation_batches,
    open_domain,
    training_batches,
)
from fdg_plugins.data.digits import read_digits
from fdg_plugins.data.image_array import ArrayImages
from fdg_plugins.data.images import ImageBatches
from fdg_plugins.data.mnist import read_mnist
from fdg_plugins.data.rotated import deal, rotate
from fdg_plugins.errors import DataError, SettingsError
from tests.data.idx_files import TEST, TRAIN

REPEATABLE = settings(derandomize=True, deadline=None)
SPECS = (ROTATED_DIGITS, ROTATED_MNIST, ROTATED_MNIST_7K)
DIGITS = 1797


@pytest.fixture(scope="module")
def data() -> DomainData:
    return open_domain(None, "rotateddigits", "angle_15", seed=1)


def pixels_of(data: DomainData) -> torch.Tensor:
    assert isinstance(data.images, ImageArray)
    return data.images.pixels


def epoch(
    data: DomainData, *, seed: int = 1, scope: tuple[str | int, ...] = ("site-1", 0), image_size: int = 28
) -> ImageBatches:
    return training_batches(data, image_size=image_size, batch_size=32, seed=seed, scope=scope)


def stacked(batches: ImageBatches) -> tuple[torch.Tensor, torch.Tensor]:
    """Return all images ``[B, 1, S, S]`` and labels ``[B]`` in the order in which they come."""
    images, labels = zip(*batches, strict=True)
    return torch.cat(images), torch.cat(labels)


# --- the data sets ----------------------------------------------------------------------------------


@pytest.mark.parametrize("spec", SPECS, ids=lambda spec: spec.name)
def test_rotated_data_sets_have_six_angles_ten_digits_and_one_channel(spec: RotatedSpec) -> None:
    assert dataset_spec(spec.name) == spec
    assert spec.domains == ("angle_0", "angle_15", "angle_30", "angle_45", "angle_60", "angle_75")
    assert spec.domains == tuple(f"angle_{angle}" for angle in spec.angles)
    assert (spec.classes, spec.channels, spec.size) == (tuple("0123456789"), 1, 28)
    assert spec.needs_data_root == (spec is not ROTATED_DIGITS)


# --- dealing ----------------------------------------------------------------------------------------


@REPEATABLE
@given(count=st.integers(0, 300), limit=st.none() | st.integers(0, 400))
def test_dealing_is_a_partition_of_what_the_limit_leaves_and_even(count: int, limit: int | None) -> None:
    spec = replace(ROTATED_MNIST, limit=limit)
    hands = [deal(count, spec, domain) for domain in spec.domains]
    indices = [index for hand in hands for index in hand.values()]
    used = count if limit is None else min(count, limit)
    assert len(set(indices)) == len(indices) == used
    assert set(indices) <= set(range(count))
    assert sorted(name for hand in hands for name in hand) == [f"{position:05d}" for position in range(used)]
    assert max(map(len, hands)) - min(map(len, hands)) <= 1


def test_the_smaller_data_set_is_the_start_of_the_larger_one() -> None:
    for domain in ROTATED_MNIST.domains:
        all_images, first = deal(70_000, ROTATED_MNIST, domain), deal(70_000, ROTATED_MNIST_7K, domain)
        assert list(first.items()) == list(all_images.items())[: len(first)]
        assert len(all_images) in (11_666, 11_667)
        assert len(first) in (1_166, 1_167)


def test_dealing_follows_no_order_of_the_source() -> None:
    indices = list(deal(600, ROTATED_MNIST, "angle_0").values())
    assert indices != sorted(indices)
    assert Counter(index < 300 for index in indices)[True] in range(30, 71)


# --- turning ----------------------------------------------------------------------------------------


def test_no_angle_leaves_every_image_as_it_was() -> None:
    images, _ = read_digits(28)
    assert torch.equal(rotate(images, 0), images)


def test_a_right_angle_turns_counter_clockwise() -> None:
    images = torch.zeros(2, 5, 5, dtype=torch.uint8)
    images[1, 2, 4] = 200  # in the middle of the right edge
    turned = rotate(images, 90)
    assert turned[1, 0, 2] == 200
    assert turned.sum() == 200


def test_what_is_turned_in_from_outside_is_black() -> None:
    turned = rotate(torch.full((1, 28, 28), 255, dtype=torch.uint8), 45)
    assert turned[0, [0, 0, -1, -1], [0, -1, 0, -1]].tolist() == [0, 0, 0, 0]
    assert turned[0, 14, 14] == 255


def test_images_are_turned_one_by_one_though_all_at_once() -> None:
    images, _ = read_digits(28)
    together = rotate(images[:5], 30)
    assert all(torch.equal(together[i : i + 1], rotate(images[i : i + 1], 30)) for i in range(5))
    assert not torch.equal(together, images[:5])
    assert rotate(images[:0], 30).shape == (0, 28, 28)


# --- the sources ------------------------------------------------------------------------------------


def test_digits_are_those_of_scikit_learn_scaled_to_all_of_a_byte() -> None:
    images, labels = read_digits(28)
    source = load_digits()
    assert (images.shape, images.dtype, labels.dtype) == ((DIGITS, 28, 28), torch.uint8, torch.int64)
    assert labels.tolist() == source.target.tolist()
    assert (int(images.min()), int(images.max())) == (0, 255)
    means = images.float().mean(dim=(1, 2)).numpy() / 255.0
    np.testing.assert_allclose(means, source.images.mean(axis=(1, 2)) / 16.0, atol=0.03)


@pytest.mark.slow
def test_scikit_learn_is_imported_only_when_its_digits_are_opened() -> None:
    code = (
        "import sys; from fdg_plugins.data import open_domain; assert 'sklearn' not in sys.modules; "
        "open_domain(None, 'rotateddigits', 'angle_0', seed=0); assert 'sklearn' in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


# --- opening a domain -------------------------------------------------------------------------------


def test_the_domains_of_mnist_hold_each_image_once_turned_by_their_angle(mnist_root: Path) -> None:
    images, labels = read_mnist(mnist_root, 28)
    files: list[str] = []
    for domain, angle in zip(ROTATED_MNIST.domains, ROTATED_MNIST.angles, strict=True):
        data = open_domain(mnist_root, "rotatedmnist", domain, seed=0)
        dealt = deal(len(images), ROTATED_MNIST, domain)
        assert [sample.file for sample in data.test] == list(dealt)
        assert [sample.label for sample in data.test] == labels[list(dealt.values())].tolist()
        assert torch.equal(pixels_of(data), rotate(images[list(dealt.values())], angle))
        assert (data.dataset, data.domain, data.classes) == ("rotatedmnist", domain, ROTATED_MNIST.classes)
        assert (data.split, data.skipped) == ("rotatedmnist/90-10@0", ())
        files += dealt
    assert len(set(files)) == TRAIN + TEST


def test_the_smaller_mnist_has_splits_of_its_own_name(mnist_root: Path) -> None:
    data = open_domain(mnist_root, "rotatedmnist_7k", "angle_75", seed=2, max_samples=10)
    assert data.split == "rotatedmnist_7k/90-10@2/max10"
    assert len(data.test) == 10


@pytest.mark.parametrize("name", ["rotatedmnist", "rotatedmnist_7k"])
def test_without_a_data_root_digits_stand_in_and_the_split_says_so(name: str, data: DomainData) -> None:
    opened = open_domain(None, name, "angle_15", seed=1)
    assert (opened.dataset, opened.split) == (name, "rotateddigits/90-10@1")
    assert (opened.test, opened.split_hash) == (data.test, data.split_hash)
    assert torch.equal(pixels_of(opened), pixels_of(data))


def test_a_data_root_without_mnist_is_refused_and_nothing_stands_in(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="mnist/MNIST/raw is not a folder"):
        open_domain(tmp_path, "rotatedmnist", "angle_0", seed=0)


def test_digits_need_no_data_root_and_look_into_none(tmp_path: Path, data: DomainData) -> None:
    opened = open_domain(tmp_path / "nowhere", "rotateddigits", "angle_15", seed=1)
    assert (opened.train, opened.split_hash) == (data.train, data.split_hash)


def test_every_class_gives_a_tenth_to_validation(data: DomainData) -> None:
    everything, validation = (Counter(s.label for s in part) for part in (data.test, data.validation))
    assert len(data.test) == len(data.train) + len(data.validation) == 300
    assert all(abs(validation[label] - everything[label] / 10) <= 0.5 for label in range(10))


def test_seed_and_domain_change_the_split_but_not_what_the_domain_holds(data: DomainData) -> None:
    again, other_seed = (open_domain(None, "rotateddigits", "angle_15", seed=seed) for seed in (1, 2))
    assert again.split_hash == data.split_hash
    assert other_seed.split_hash != data.split_hash
    assert other_seed.test == data.test
    assert torch.equal(pixels_of(other_seed), pixels_of(data))
    other_domain = open_domain(None, "rotateddigits", "angle_30", seed=1)
    assert not {s.file for s in other_domain.test} & {s.file for s in data.test}


def test_sites_of_a_domain_divide_its_images(data: DomainData) -> None:
    parts = [open_domain(None, "rotateddigits", "angle_15", seed=1, part=(number, 10)) for number in range(1, 11)]
    assert sorted(s.file for part in parts for s in part.train) == [s.file for s in data.train]
    assert sorted(s.file for part in parts for s in part.validation) == [s.file for s in data.validation]
    assert parts[2].split == f"rotateddigits/90-10@1/equal@1-{data.split_hash}/part3of10"
    with pytest.raises(
        SettingsError, match=r"domain 'angle_15' has .* validation images; expected at least 40 of each"
    ):
        open_domain(None, "rotateddigits", "angle_15", seed=1, part=(1, 40))


def test_a_domain_that_is_no_angle_is_refused() -> None:
    with pytest.raises(SettingsError, match=r"domain 'angle_90' is unknown in data set rotateddigits; .*angle_75"):
        open_domain(None, "rotateddigits", "angle_90", seed=0)


# --- batches ----------------------------------------------------------------------------------------


def test_batches_have_declared_shapes_types_and_values_from_0_to_1(data: DomainData) -> None:
    check_images(data)
    images, labels = next(iter(epoch(data)))
    assert (images.shape, images.dtype) == ((32, 1, 28, 28), torch.float32)
    assert (labels.shape, labels.dtype) == ((32,), torch.int64)
    assert 0.0 <= images.min() < images.max() <= 1.0
    assert isinstance(data.images, ImageArray)
    image, label = ArrayImages(data.images, data.train, 28)[3]
    assert (image.shape, int(label)) == ((1, 28, 28), data.train[3].label)


def test_an_epoch_holds_every_training_image_once_with_its_label_and_unchanged(data: DomainData) -> None:
    images, labels = stacked(epoch(data))
    rows = {file: row for row, file in enumerate(sample.file for sample in data.test)}
    expected = Counter((pixels_of(data)[rows[s.file]].numpy().tobytes(), s.label) for s in data.train)
    bytes_ = (images * 255).round().to(torch.uint8)
    assert Counter((i.numpy().tobytes(), int(label)) for i, label in zip(bytes_, labels, strict=True)) == expected


def test_the_order_depends_on_seed_and_scope_alone(data: DomainData) -> None:
    images, labels = stacked(epoch(data))
    again_images, again_labels = stacked(epoch(data))
    assert torch.equal(images, again_images)
    assert torch.equal(labels, again_labels)
    for seed, scope in ((2, ("site-1", 0)), (1, ("site-2", 0)), (1, ("site-1", 1))):
        assert not torch.equal(images, stacked(epoch(data, seed=seed, scope=scope))[0])


def test_evaluation_keeps_the_order_and_workers_are_not_needed(data: DomainData) -> None:
    batches = evaluation_batches(data, data.validation, image_size=28, batch_size=16, workers=3)
    assert batches.num_workers == 0
    images, labels = stacked(batches)
    assert labels.tolist() == [sample.label for sample in data.validation]
    rows = [int(sample.file) // 6 for sample in data.validation]  # every sixth image was dealt to this domain
    assert torch.equal(images[:, 0], pixels_of(data)[rows].float() / 255)
    assert list(evaluation_batches(data, (), image_size=28, batch_size=16)) == []


def test_another_size_is_resized_to(data: DomainData) -> None:
    images, larger = (stacked(epoch(data, image_size=size))[0] for size in (28, 56))
    assert larger.shape == (len(data.train), 1, 56, 56)
    torch.testing.assert_close(larger.mean(dim=(1, 2, 3)), images.mean(dim=(1, 2, 3)), atol=0.01, rtol=0.0)
    with pytest.raises(SettingsError, match="image_size is 0; expected at least 1 pixel"):
        epoch(data, image_size=0)


def test_batches_leave_the_images_and_the_global_generator_as_they_were(data: DomainData) -> None:
    pixels, state = pixels_of(data).clone(), torch.get_rng_state()
    stacked(epoch(data))
    assert torch.equal(pixels_of(data), pixels)
    assert torch.equal(torch.get_rng_state(), state)
