# SPDX-License-Identifier: Apache-2.0
"""MNIST, EMNIST, CIFAR and rotated digits: read from their files, dealt, turned, stood in for, and refused."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from fdg_plugins.data import find_data_root, open_domain
from fdg_plugins.data.catalogue import ROTATED_MNIST, files_of
from fdg_plugins.data.image_files import ImageArray
from fdg_plugins.data.images import training_epochs
from fdg_plugins.data.published import deal, read_arrays, rotate
from fdg_plugins.lab.preparation.checks import count_images
from tests.data.conftest import move_out, refused
from tests.data.published import EACH, spec_of, write_arrays

SOURCES = ("mnist", "emnist", "cifar10", "cifar100")


@pytest.mark.parametrize("name", SOURCES)
def test_the_published_files_are_read_as_they_are_and_broken_ones_refused(name: str, tmp_path: Path) -> None:
    spec = spec_of(name)
    for domain, (pixels, labels) in write_arrays(tmp_path, name).items():
        images, listing = read_arrays(tmp_path, spec, domain)
        assert np.array_equal(images.pixels.numpy(), pixels)
        assert [sample.label for sample in listing.images] == labels.tolist()
    assert set(count_images(tmp_path, spec)["test"].values()) == {EACH}
    file = tmp_path / files_of(spec)[0]
    whole = file.read_bytes()
    for broken in (whole[:-1], whole + b"1"):
        file.write_bytes(broken)
        with refused("", file):
            read_arrays(tmp_path, spec, "train")
    file.unlink()
    with refused("image", file):
        read_arrays(tmp_path, spec, "train")


def test_images_in_folders_are_read_and_too_large_a_one_is_refused(tmp_path: Path) -> None:
    for name in spec_of("cifar10").classes:
        (tmp_path / "cifar10" / "train" / name).mkdir(parents=True)
        for number in range(2):
            Image.new("RGB", (32, 32)).save(tmp_path / "cifar10" / "train" / name / f"{number}.png")
    assert len(open_domain(tmp_path, "cifar10", "train", seed=0, max_pixels=1024).test) == 20
    Image.new("RGB", (40, 30)).save(tmp_path / "cifar10" / "train" / "cat" / "0.png")
    for most, field in ((1024, "image"), (1200, "size of image")):
        with refused(field, "0.png"):
            open_domain(tmp_path, "cifar10", "train", seed=0, max_pixels=most)


@pytest.mark.parametrize("name", SOURCES)
def test_without_a_data_root_digits_stand_in_for_every_class(name: str, tmp_path: Path) -> None:
    spec, root = spec_of(name), find_data_root(name, None, tmp_path)
    assert root.stand_in
    parts = {domain: read_arrays(root.path, spec, domain)[1].images for domain in spec.domains}
    assert sum(map(len, parts.values())) == 1797
    assert {sample.label for sample in parts["train"]} == set(range(len(spec.classes)))
    data = open_domain(root.path, name, "test", seed=0)
    batch, _ = next(next(training_epochs(data, image_size=spec.size, batch_size=4, seed=0, scope=("x",), epochs=1)))
    assert batch.shape == (4, spec.channels, spec.size, spec.size)


@pytest.mark.parametrize("path", ["mnist", "mnist/MNIST/raw/train-images-idx3-ubyte"])
def test_a_link_out_of_the_data_root_is_refused(tmp_path: Path, path: str) -> None:
    write_arrays(tmp_path / "root", "mnist")
    move_out(tmp_path / "root" / path, tmp_path / "root")
    with refused("link"):
        open_domain(tmp_path / "root", "rotatedmnist", "angle_0", seed=0)


@settings(derandomize=True, deadline=None)
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


def test_a_right_angle_turns_counter_clockwise_and_digits_stand_in() -> None:
    images = torch.zeros(2, 5, 5, dtype=torch.uint8)
    images[1, 2, 4] = 200  # in the middle of the right edge
    turned = rotate(images, 90)
    assert int(turned[1, 0, 2]) == int(turned.sum()) == 200
    data = open_domain(None, "rotateddigits", "angle_15", seed=1)
    for name in ("rotatedmnist", "rotatedmnist_7k"):
        opened = open_domain(None, name, "angle_15", seed=1)
        assert (opened.dataset, opened.name, opened.digest) == (name, "rotateddigits/90-10@1", data.digest)
        assert isinstance(opened.images, ImageArray)
        assert isinstance(data.images, ImageArray)
        assert torch.equal(opened.images.pixels, data.images.pixels)
