# SPDX-License-Identifier: Apache-2.0
"""Data sets that are published in few files: MNIST, EMNIST, CIFAR, and MNIST's digits, rotated by domain.

They are read from their publishers' files, uncompressed, in the folders that torchvision gives them; of CIFAR, the
*binary* version, as the Python batches are pickles. Folders of images, ``<data set>/{train,test}/<class>/*``, are read
in place of either.

Rotated digits are one set of grey images distributed over the domains; each domain rotates its images by its angle.
References: Ghifary, Kleijn, Zhang, Balduzzi, "Domain Generalization for Object Recognition with Multi-task
Autoencoders", ICCV 2015; Gulrajani, Lopez-Paz, "In Search of Lost Domain Generalization" (DomainBed), ICLR
2021, whose data set this is: all images in one random order, every sixth to the same domain.
Differences: DomainBed rotates each image with Pillow; here, all are rotated at once as tensors, which rounds some
pixels differently. DomainBed takes the order from the run's seed; here, it is the same in all runs.
"""

from collections.abc import Callable, Sequence
from functools import lru_cache
from pathlib import Path
from typing import TypeVar

import numpy as np
import torch

from fdg_plugins.data.catalogue import DATASETS
from fdg_plugins.data.decoding import MOST_PIXELS, decoding, read_image
from fdg_plugins.data.folders import image_names, is_folder, refuse_outside, resolved
from fdg_plugins.data.image_files import ImageArray
from fdg_plugins.data.specs import FILES_OF, Listing, PublishedSpec, RotatedSpec, Sample
from fdg_plugins.errors import DataError, load_extra
from fdg_plugins.randomness import numpy_generator

STAND_IN_TEST = 297  # of the 1,797 digits of the stand-in
MNIST_PARTS = ("train", "test")

Arrays = tuple[torch.Tensor, torch.Tensor]
Read = TypeVar("Read")


def published_domain(
    data_root: Path | None, spec: PublishedSpec, domain: str, max_pixels: int = MOST_PIXELS
) -> tuple[ImageArray, Listing]:
    """Return the images of one part, ``train`` or ``test``, named by position in the files.

    Without a data root, these are the stand-in's. ``max_pixels``: of an image in a separate file.
    """
    if data_root is None:
        images, labels = stand_in_part(spec.name, domain)
    elif is_folder((root := resolved(data_root)) / spec.folder / domain):
        images, labels = _in_folders(root, spec, domain, max_pixels)
    else:
        images, labels = _in_files(root, spec, domain)
    return _in_memory(images, labels, [f"{position:05d}" for position in range(len(labels))])


def _in_memory(images: torch.Tensor, labels: torch.Tensor, names: Sequence[str]) -> tuple[ImageArray, Listing]:
    samples = tuple(Sample(name, label) for name, label in zip(names, labels.tolist(), strict=True))
    return ImageArray(images, {name: row for row, name in enumerate(names)}), Listing(samples)


def _in_files(root: Path, spec: PublishedSpec, domain: str) -> Arrays:
    files = FILES_OF[spec.source][domain]
    if spec.channels == 1:
        return read_idx(root, files[0], spec.size, len(spec.classes))
    of_labels = 2 if spec.source == "cifar100" else 1
    shape = (-1, of_labels + 3 * spec.size**2)

    parts = []
    for (name,) in files:
        records = _read(root, name, lambda path: torch.from_numpy(np.fromfile(path, dtype=np.uint8)).view(shape))
        labels = records[:, of_labels - 1].long()
        _check_labels(root / name, labels, len(spec.classes))
        parts.append((records[:, of_labels:].reshape(-1, 3, spec.size, spec.size).contiguous(), labels))
    return _together(parts)


def _together(parts: Sequence[Arrays]) -> Arrays:
    return torch.cat([images for images, _ in parts]), torch.cat([labels for _, labels in parts])


def _in_folders(root: Path, spec: PublishedSpec, domain: str, max_pixels: int) -> Arrays:
    images, labels = [], []
    for label, name in enumerate(spec.classes):
        folder = root / spec.folder / domain / name
        for path in sorted(folder / file for file in image_names(root, folder)):
            picture = read_image(path, max_pixels)
            pixels = torch.from_numpy(np.asarray(picture.convert("L") if spec.channels == 1 else picture).copy())
            if pixels.shape[:2] != (spec.size, spec.size):
                raise DataError(field=f"size of image {path}", value=[*pixels.shape[:2]], expected=f"{[spec.size] * 2}")
            images.append(pixels if spec.channels == 1 else pixels.permute(2, 0, 1).contiguous())
            labels.append(label)
    if not images:
        raise DataError(f"folder {root / spec.folder / domain} has no image.", public=f"{spec.title} has no image.")
    return torch.stack(images), torch.tensor(labels)


@lru_cache(maxsize=8)
def stand_in_part(name: str, domain: str) -> Arrays:
    """Return the stand-in of a part of the data set ``name``: the 1,797 digits of scikit-learn, in colour where it is.

    The class is the digit; with 100 classes, ten times the colour plus the digit. The tensors are shared.
    """
    spec = DATASETS.get(name)
    assert isinstance(spec, PublishedSpec)
    digits, labels = read_digits(spec.size)
    generator = numpy_generator(0, "stand-in", spec.name)
    order = generator.permutation(len(labels))
    chosen = torch.from_numpy(order[:STAND_IN_TEST] if domain == "test" else order[STAND_IN_TEST:])
    if spec.channels == 1:
        return digits[chosen], labels[chosen]
    inks = torch.from_numpy(generator.integers(0, 256, size=(10, 2, 3)).astype(np.float32))
    colours = torch.from_numpy(generator.permutation(len(labels)) % 10)[chosen]
    paper, ink = inks[colours, 0, :, None, None], inks[colours, 1, :, None, None]
    shade = digits[chosen].unsqueeze(1).float() / 255
    images = (paper + (ink - paper) * shade).round().to(torch.uint8)
    return images, labels[chosen] + (10 * colours if len(spec.classes) == 100 else 0)


@lru_cache(maxsize=1)  # all sites of a process share it; reading scikit-learn's table is slow
def read_digits(size: int) -> Arrays:
    """Return the 1,797 digits included in scikit-learn, bilinearly scaled from 8x8 to uint8 ``[1797, size, size]``, and
    their labels ``[1797]``. The tensors are shared: copy them before changing them.
    """
    # torchvision takes longer to import than everything else in a site's process; few sites open these data sets.
    from torchvision.transforms.v2 import functional

    digits = load_extra("sklearn.datasets", "the stand-in of digits", "lab").load_digits()
    scaled = functional.resize(torch.from_numpy(digits.images).float() / 16.0, [size, size], antialias=True)
    return functional.to_dtype(scaled.clamp(0.0, 1.0), torch.uint8, scale=True), torch.from_numpy(digits.target).long()


def read_mnist_part(root: Path, part: str, size: int) -> Arrays:
    """Return images uint8 ``[N, size, size]`` and labels int64 ``[N]`` of one of ``MNIST_PARTS``, as ``read_idx``."""
    return read_idx(root, FILES_OF["mnist"][part][0], size, 10)


def read_idx(root: Path, names: tuple[str, ...], size: int, num_classes: int) -> Arrays:
    """Return images uint8 ``[N, size, size]`` and labels int64 ``[N]`` of a file of images and its file of labels.

    ``names`` are their paths below the resolved ``root``.
    """
    from torchvision.datasets.mnist import read_image_file, read_label_file

    images = _read(root, names[0], lambda path: read_image_file(str(path)))
    labels = _read(root, names[1], lambda path: read_label_file(str(path)))
    if images.shape != (expected := (len(labels), size, size)):
        raise DataError(field=f"shape of file {root / names[0]}", value=[*images.shape], expected=f"{[*expected]}")
    _check_labels(root / names[1], labels, num_classes)
    return images, labels


def _check_labels(path: Path, labels: torch.Tensor, num_classes: int) -> None:
    if len(labels) and int(labels.max()) >= num_classes:
        raise DataError(field=f"a label of file {path}", value=int(labels.max()), expected=f"0 to {num_classes - 1}")


def _read(root: Path, name: str, reader: Callable[[Path], Read]) -> Read:
    refuse_outside(root, root / name)
    with decoding(root / name):
        return reader(root / name)


def rotated_domain(data_root: Path | None, spec: RotatedSpec, domain: str) -> tuple[ImageArray, Listing]:
    """Return the rotated images of a domain, in the order of distribution.

    MNIST has its training part first. Without a data root, the digits of scikit-learn are rotated.
    """
    if data_root is None:
        images, labels = read_digits(spec.size)
    else:
        images, labels = _together([read_mnist_part(resolved(data_root), part, spec.size) for part in MNIST_PARTS])
    dealt = deal(len(images), spec, domain)
    chosen = list(dealt.values())
    turned = rotate(images[chosen], spec.angles[spec.domains.index(domain)])
    return _in_memory(turned, labels[chosen], list(dealt))


def deal(count: int, spec: RotatedSpec, domain: str) -> dict[str, int]:
    """Return the images of a domain, out of ``count``: a map from the name of each to its index in [0, count).

    Names are positions in an order that depends only on the data set's source and on ``count``; of the first
    ``spec.limit`` images in it, every sixth (with six domains) goes to the same domain.
    """
    order = numpy_generator(0, "rotated", spec.source).permutation(count)[: spec.limit].tolist()
    positions = range(spec.domains.index(domain), len(order), len(spec.domains))
    return {f"{position:05d}": order[position] for position in positions}


def rotate(images: torch.Tensor, angle: int) -> torch.Tensor:
    """Return ``images: uint8 [N, S, S]``, rotated counter-clockwise by ``angle`` degrees; new corners are black."""
    if len(images) == 0:
        return images
    from torchvision.transforms import InterpolationMode
    from torchvision.transforms.v2 import functional

    # As the channels of one image, all use the same grid. Without ``fill``, pixels from outside are zero.
    return functional.rotate(images, angle, interpolation=InterpolationMode.BILINEAR)
