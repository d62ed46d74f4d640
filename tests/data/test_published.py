# SPDX-License-Identifier: Apache-2.0
"""MNIST, EMNIST and CIFAR as published: what is read of their files, what is refused, and the stand-in."""

from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from fdg_plugins.data import DATASETS, PublishedSpec, find_data_root, open_domain, training_batches
from fdg_plugins.data.published import published_domain
from fdg_plugins.data.specs import FILES_OF, files_of
from fdg_plugins.errors import DataError
from fdg_plugins.lab.preparation.counts import count_images
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


def test_batches_of_colour_are_the_pixels_in_order_between_zero_and_one(tmp_path: Path) -> None:
    pixels, labels = written(tmp_path, "cifar10")["test"]
    data = open_domain(tmp_path, "cifar10", "test", seed=0)
    images, targets = data.images.evaluation(data.test, 32).__getitems__([0, 7])
    assert images.shape == (2, 3, 32, 32)
    assert torch.equal(images, torch.from_numpy(pixels[[0, 7]]).float() / 255)
    assert targets.tolist() == labels[[0, 7]].tolist()


def test_cifar10_may_be_folders_of_images_in_place_of_the_binary_files(tmp_path: Path) -> None:
    spec = spec_of("cifar10")
    for name in spec.classes:
        (tmp_path / "cifar10" / "test" / name).mkdir(parents=True)
        Image.new("RGB", (32, 32), (200, 10, 30)).save(tmp_path / "cifar10" / "test" / name / "1.png")
    images, samples = published_domain(tmp_path, spec, "test")
    assert [sample.label for sample in samples] == list(range(10))
    assert images.pixels[0, :, 5, 5].tolist() == [200, 10, 30]
    (tmp_path / "cifar10" / "test" / "cat" / "1.png").unlink()
    (tmp_path / "cifar10" / "test" / "cat").rmdir()
    with pytest.raises(DataError, match=r"folder .*cat is missing; expected one for each class of CIFAR-10"):
        published_domain(tmp_path, spec, "test")


def test_an_image_file_with_more_pixels_than_the_site_opens_is_refused_before_it_is_decoded(tmp_path: Path) -> None:
    for name in spec_of("cifar10").classes:
        (tmp_path / "cifar10" / "train" / name).mkdir(parents=True)
        Image.new("RGB", (40, 30)).save(tmp_path / "cifar10" / "train" / name / "1.png")
    with pytest.raises(DataError, match=r"has 1,200 pixels; expected at most 1,024 \(max_image_pixels\)"):
        open_domain(tmp_path, "cifar10", "train", seed=0, max_pixels=1024)


def test_folders_of_grey_images_are_read_in_grey(tmp_path: Path) -> None:
    spec = spec_of("mnist")
    for number, name in enumerate(spec.classes):
        (tmp_path / "mnist" / "test" / name).mkdir(parents=True)
        Image.new("RGB" if number else "L", (28, 28), (number,) * 3 if number else 0).save(
            tmp_path / "mnist" / "test" / name / "1.png"
        )
    images, _ = published_domain(tmp_path, spec, "test")
    assert images.pixels.shape == (10, 28, 28)
    assert images.pixels[:, 3, 4].tolist() == list(range(10))


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


def test_a_label_that_the_data_set_does_not_have_is_refused(tmp_path: Path) -> None:
    written(tmp_path, "cifar10")
    file = tmp_path / "cifar10/cifar-10-batches-bin/test_batch.bin"
    content = bytearray(file.read_bytes())
    content[0] = 10
    file.write_bytes(content)
    with pytest.raises(DataError, match=r"file .*test_batch\.bin holds the label 10; expected labels from 0 to 9"):
        published_domain(tmp_path, spec_of("cifar10"), "test")


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
