# SPDX-License-Identifier: Apache-2.0
"""MNIST, EMNIST and CIFAR as published: what is read of their files, what is refused, and the stand-in."""

from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from torchvision.datasets import MNIST

from fdg_plugins.data import DATASETS, PublishedSpec, find_data_root, open_domain, training_batches
from fdg_plugins.data.published import published_domain, read_mnist_part
from fdg_plugins.data.specs import FILES_OF, files_of
from fdg_plugins.errors import DataError
from fdg_plugins.lab.preparation.checks import count_images
from tests.data.idx_files import write_idx

SOURCES = ("mnist", "emnist", "cifar10", "cifar100")
EACH = 3  # images of a class in a file


def spec_of(name: str) -> PublishedSpec:
    spec = DATASETS.get(name)
    assert isinstance(spec, PublishedSpec)
    return spec


def written(root: Path, name: str) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Write small files of a data set; return images and labels of each part, as they are to be read."""
    spec, generator = spec_of(name), np.random.default_rng(1)
    found: dict[str, tuple[np.ndarray, np.ndarray]] = {}
    for domain, parts in FILES_OF[name].items():
        images, labels = [], []
        for names in parts:
            own = np.repeat(np.arange(len(spec.classes)), EACH).astype(np.uint8)
            shape = (len(own), spec.size, spec.size) if spec.channels == 1 else (len(own), 3, spec.size, spec.size)
            pixels = generator.integers(0, 256, size=shape, dtype=np.uint8)
            (root / names[0]).parent.mkdir(parents=True, exist_ok=True)
            if spec.channels == 1:
                write_idx(root / names[0], pixels)
                write_idx(root / names[1], own)
            else:
                head = [own[:, None]] if name == "cifar10" else [own[:, None] // 5, own[:, None]]
                np.concatenate([*head, pixels.reshape(len(own), -1)], axis=1).tofile(root / names[0])
            images.append(pixels)
            labels.append(own)
        found[domain] = np.concatenate(images), np.concatenate(labels)
    return found


@pytest.mark.parametrize("name", SOURCES)
def test_the_published_files_are_read_as_they_are(name: str, tmp_path: Path) -> None:
    for domain, (pixels, labels) in written(tmp_path, name).items():
        images, samples = published_domain(tmp_path, spec_of(name), domain)
        assert np.array_equal(images.pixels.numpy(), pixels)
        assert [sample.label for sample in samples] == labels.tolist()
    counted = count_images(tmp_path, spec_of(name))
    assert set(counted["test"].values()) == {EACH}


def test_an_image_file_with_more_pixels_than_the_site_opens_is_refused_before_it_is_decoded(tmp_path: Path) -> None:
    for name in spec_of("cifar10").classes:
        (tmp_path / "cifar10" / "train" / name).mkdir(parents=True)
        Image.new("RGB", (40, 30)).save(tmp_path / "cifar10" / "train" / name / "1.png")
    with pytest.raises(DataError, match=r"has 1,200 pixels; expected at most 1,024 \(max_image_pixels\)"):
        open_domain(tmp_path, "cifar10", "train", seed=0, max_pixels=1024)


@pytest.mark.parametrize("name", SOURCES)
def test_a_missing_a_cut_and_a_wrong_file_are_refused_by_name_and_not_in_public(name: str, tmp_path: Path) -> None:
    written(tmp_path, name)
    file = tmp_path / files_of(spec_of(name))[0]
    domain = "train"
    content = file.read_bytes()
    file.write_bytes(content[:-1])
    with pytest.raises(DataError, match=rf"{file.name} .*expected") as cut:
        published_domain(tmp_path, spec_of(name), domain)
    assert str(tmp_path) not in str(cut.value.public)
    file.unlink()
    with pytest.raises(DataError, match=rf"lacks .*'s file {file.name}; expected it uncompressed"):
        published_domain(tmp_path, spec_of(name), domain)


@pytest.mark.parametrize("name", SOURCES)
def test_without_a_data_root_digits_stand_in_for_every_class(name: str, tmp_path: Path) -> None:
    spec, root = spec_of(name), find_data_root(name, None, tmp_path)
    assert root.stand_in
    parts = {domain: published_domain(root.path, spec, domain) for domain in spec.domains}
    assert sum(len(samples) for _, samples in parts.values()) == 1797
    assert {sample.label for sample in parts["train"][1]} == set(range(len(spec.classes)))
    images, again = parts["test"][0].pixels, published_domain(None, spec, "test")[0].pixels
    assert torch.equal(images, again)
    assert images.shape[1:] == ((28, 28) if spec.channels == 1 else (3, 32, 32))
    data = open_domain(root.path, name, "test", seed=0)
    batch, _ = next(iter(training_batches(data, image_size=spec.size, batch_size=4, seed=0, scope=("x",))))
    assert batch.shape == (4, spec.channels, spec.size, spec.size)


# --- MNIST's files, as rotated digits read them -----------------------------------------------------

RAW = Path("mnist", "MNIST", "raw")


def test_mnist_is_what_torchvision_reads(mnist_root: Path) -> None:
    for part, is_train in (("train", True), ("test", False)):
        images, labels = read_mnist_part(mnist_root, part, 28)
        expected = MNIST(root=mnist_root / "mnist", train=is_train, download=False)
        assert (images.dtype, labels.dtype) == (torch.uint8, torch.int64)
        assert torch.equal(images, expected.data)
        assert torch.equal(labels, expected.targets)


@pytest.mark.parametrize("name", ["train-images-idx3-ubyte", "t10k-labels-idx1-ubyte"])
def test_a_broken_file_is_refused_in_one_sentence(mnist_root: Path, name: str) -> None:
    path = mnist_root / RAW / name
    content = path.read_bytes()
    floats = content[:2] + b"\x0d" + content[3:]
    for broken in (b"", b"not an idx file", content[:-5], content + b"12345", floats):
        path.write_bytes(broken)
        with pytest.raises(DataError, match=name) as caught:
            open_domain(mnist_root, "rotatedmnist", "angle_0", seed=0)
        assert "\n" not in str(caught.value)


@pytest.mark.parametrize("path", ["mnist", "mnist/MNIST/raw", "mnist/MNIST/raw/train-images-idx3-ubyte"])
def test_a_link_out_of_the_data_root_is_refused(mnist_root: Path, path: str) -> None:
    target = (mnist_root / path).rename(mnist_root.parent / "outside")
    (mnist_root / path).symlink_to(target)
    with pytest.raises(DataError, match="is a link out of the data root"):
        open_domain(mnist_root, "rotatedmnist", "angle_0", seed=0)
