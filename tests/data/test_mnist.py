# SPDX-License-Identifier: Apache-2.0
"""MNIST's four files: what torchvision reads is read, and every file that does not fit is refused by its name."""

import os
from pathlib import Path

import numpy as np
import pytest
import torch
from torchvision.datasets import MNIST

from fdg_plugins.data.mnist import read_mnist
from fdg_plugins.errors import DataError
from tests.data.idx_files import TEST, TRAIN, write_idx

RAW = Path("mnist", "MNIST", "raw")
FILES = [f"{part}-{kind}-ubyte" for part in ("train", "t10k") for kind in ("images-idx3", "labels-idx1")]


def test_the_training_part_comes_first_and_both_are_what_torchvision_reads(mnist_root: Path) -> None:
    images, labels = read_mnist(mnist_root, 28)
    train, test = (MNIST(root=mnist_root / "mnist", train=train, download=False) for train in (True, False))
    assert (images.shape, images.dtype, labels.dtype) == ((TRAIN + TEST, 28, 28), torch.uint8, torch.int64)
    assert torch.equal(images, torch.cat([train.data, test.data]))
    assert torch.equal(labels, torch.cat([train.targets, test.targets]))


@pytest.mark.parametrize("path", ["mnist", "mnist/MNIST", "mnist/MNIST/raw"])
def test_a_missing_folder_is_refused_with_the_files_expected_in_it(mnist_root: Path, path: str) -> None:
    (mnist_root / path).rename(mnist_root.parent / "away")
    with pytest.raises(DataError, match=r"mnist/MNIST/raw is not a folder; expected it to hold train-images-.*t10k-"):
        read_mnist(mnist_root, 28)


@pytest.mark.parametrize("name", FILES)
def test_a_missing_file_is_named_and_so_is_its_folder(mnist_root: Path, name: str) -> None:
    path = mnist_root / RAW / name
    path.rename(path.with_name(f"{name}.gz"))
    with pytest.raises(DataError, match=rf"folder .*raw lacks MNIST's file {name}; expected it uncompressed"):
        read_mnist(mnist_root, 28)


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("damage", ["empty", "text", "truncated", "longer", "floats"])
def test_a_broken_file_is_refused_in_one_sentence(mnist_root: Path, name: str, damage: str) -> None:
    path = mnist_root / RAW / name
    content = path.read_bytes()
    broken = {
        "empty": b"",
        "text": b"not an idx file",
        "truncated": content[:-5],
        "longer": content + b"12345",
        "floats": content[:2] + b"\x0d" + content[3:],
    }
    path.write_bytes(broken[damage])
    with pytest.raises(DataError, match=rf"^file .*{name} cannot be read .*expected MNIST's undamaged") as caught:
        read_mnist(mnist_root, 28)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("name", "values", "message"),
    [
        ("train-images-idx3-ubyte", np.zeros((TRAIN, 8, 8)), r"holds images of \[8, 8\]; expected \[28, 28\] pixels"),
        ("t10k-labels-idx1-ubyte", np.zeros(TEST - 1), f"holds {TEST - 1} labels; expected {TEST}, one per image"),
        ("train-labels-idx1-ubyte", np.full(TRAIN, 10), "holds the label 10; expected labels from 0 to 9"),
    ],
)
def test_files_that_do_not_fit_each_other_are_refused(
    mnist_root: Path, name: str, values: np.ndarray, message: str
) -> None:
    write_idx(mnist_root / RAW / name, values.astype(np.uint8))
    with pytest.raises(DataError, match=f"file .*{name} {message}"):
        read_mnist(mnist_root, 28)


@pytest.mark.parametrize("path", ["mnist", "mnist/MNIST", "mnist/MNIST/raw", f"mnist/MNIST/raw/{FILES[0]}"])
def test_a_link_out_of_the_data_root_is_refused_at_every_depth(mnist_root: Path, path: str) -> None:
    target = (mnist_root / path).rename(mnist_root.parent / "outside")
    (mnist_root / path).symlink_to(target)
    with pytest.raises(DataError, match="is a link out of the data root"):
        read_mnist(mnist_root, 28)


def test_what_is_no_regular_file_is_refused_before_anything_waits_on_it(mnist_root: Path) -> None:
    path = mnist_root / RAW / FILES[1]
    path.unlink()
    os.mkfifo(path)
    with pytest.raises(DataError, match=f"lacks MNIST's file {FILES[1]}"):
        read_mnist(mnist_root, 28)
