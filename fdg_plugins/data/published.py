# SPDX-License-Identifier: Apache-2.0
"""Data sets that are published as files of many images, a training and a test file: MNIST, EMNIST, CIFAR-10, CIFAR-100.

The files are those of the publishers, uncompressed, in the folders that torchvision gives them; nothing is downloaded.
CIFAR's Python batches are pickles, which this package never reads: the *binary* version is read instead. Folders of
images, ``<data set>/{train,test}/<class>/*``, are read in place of either.

References: LeCun, Bottou, Bengio, Haffner, "Gradient-Based Learning Applied to Document Recognition", 1998; Cohen,
Afshar, Tapson, van Schaik, "EMNIST: an extension of MNIST to handwritten letters", 2017; Krizhevsky, "Learning Multiple
Layers of Features from Tiny Images", 2009.
"""

from collections.abc import Callable
from functools import lru_cache
from pathlib import Path

import numpy as np
import torch

from fdg_plugins.data.catalogue import DATASETS
from fdg_plugins.data.decoding import MOST_PIXELS, read_image
from fdg_plugins.data.folders import image_names, is_folder, refuse_outside, resolved
from fdg_plugins.data.image_array import ImageArray
from fdg_plugins.data.published_files import Arrays, check_labels, read_file, read_idx, unfit_file
from fdg_plugins.data.specs import FILES_OF, PublishedSpec, Sample
from fdg_plugins.errors import DataError
from fdg_plugins.randomness import numpy_generator

STAND_IN_TEST = 297  # of the 1,797 digits of the stand-in


def published_domain(
    data_root: Path | None, spec: PublishedSpec, domain: str, max_pixels: int = MOST_PIXELS
) -> tuple[ImageArray, tuple[Sample, ...]]:
    """Return the images of one part, ``train`` or ``test``, and their samples, named by position in the files.

    Without a data root, these are the stand-in's. ``max_pixels``: of an image in a file of its own. Raises DataError,
    naming the file, for missing or broken files, files of other sizes, labels that the data set does not have, and
    links out of the root.
    """
    if data_root is None:
        images, labels = stand_in_part(spec.name, domain)
    else:
        images, labels = _read(resolved(data_root), spec, domain, max_pixels)
    files = [f"{position:05d}" for position in range(len(labels))]
    samples = tuple(Sample(file, label) for file, label in zip(files, labels.tolist(), strict=True))
    return ImageArray(images, {file: row for row, file in enumerate(files)}), samples


def _read(root: Path, spec: PublishedSpec, domain: str, max_pixels: int) -> Arrays:
    """Return images uint8 ``[N, S, S]`` or ``[N, 3, S, S]``, labels int64 ``[N]`` of a part below a resolved root."""
    if is_folder(root / spec.folder / domain):
        return _in_folders(root, spec, domain, max_pixels)
    parts = [_READERS[spec.source](root, spec, names) for names in FILES_OF[spec.source][domain]]
    return torch.cat([images for images, _ in parts]), torch.cat([labels for _, labels in parts])


def _idx(root: Path, spec: PublishedSpec, names: tuple[str, ...]) -> Arrays:
    """Read a file of images and its file of labels, in MNIST's idx format."""
    return read_idx(root, spec.title, names, spec.size, len(spec.classes))


def _binary(root: Path, spec: PublishedSpec, names: tuple[str, ...]) -> Arrays:
    """Read one file of records: labels of a byte each, of which the last counts, then red, green and blue planes."""
    of_labels = 2 if spec.source == "cifar100" else 1
    length = of_labels + 3 * spec.size**2
    content = read_file(root, spec.title, names[0], lambda path: np.fromfile(path, dtype=np.uint8))
    if len(content) == 0 or len(content) % length:
        found, expected = f"has {len(content):,} bytes", f"a multiple of {length:,}, records of one image"
        raise unfit_file(root / names[0], spec.title, found, expected)
    records = torch.from_numpy(content).view(-1, length)
    images = records[:, of_labels:].reshape(-1, 3, spec.size, spec.size).contiguous()
    labels = records[:, of_labels - 1].long()
    check_labels(root / names[0], spec.title, labels, len(spec.classes))
    return images, labels


_READERS: dict[str, Callable[[Path, PublishedSpec, tuple[str, ...]], Arrays]] = {
    "mnist": _idx,
    "emnist": _idx,
    "cifar10": _binary,
    "cifar100": _binary,
}


def _in_folders(root: Path, spec: PublishedSpec, domain: str, max_pixels: int) -> Arrays:
    """Read image files in one folder per class, in the order of the classes and of the names."""
    images, labels = [], []
    for label, name in enumerate(spec.classes):
        folder = root / spec.folder / domain / name
        if not is_folder(folder):
            raise DataError(
                f"folder {folder} is missing; expected one for each class of {spec.title}.",
                public=f"{spec.title} lacks the folder of a class.",
            )
        refuse_outside(root, folder)
        for file in sorted(image_names(root, folder, f"class {name!r} of {spec.title}")):
            images.append(_pixels(folder / file, spec, max_pixels))
            labels.append(label)
    if not images:
        raise DataError(f"folder {root / spec.folder / domain} has no image.", public=f"{spec.title} has no image.")
    return torch.stack(images), torch.tensor(labels)


def _pixels(path: Path, spec: PublishedSpec, max_pixels: int) -> torch.Tensor:
    """Return the pixels of an image file, uint8 ``[3, S, S]``; of a data set in grey ``[S, S]``."""
    picture = read_image(path, max_pixels)
    pixels = torch.from_numpy(np.asarray(picture.convert("L") if spec.channels == 1 else picture).copy())
    if pixels.shape[:2] != (spec.size, spec.size):
        raise unfit_file(path, spec.title, f"has {list(pixels.shape[:2])} pixels", f"{[spec.size, spec.size]}")
    return pixels if spec.channels == 1 else pixels.permute(2, 0, 1).contiguous()


@lru_cache(maxsize=8)
def stand_in_part(name: str, domain: str) -> Arrays:
    """Return the stand-in of a part of the data set ``name``: the 1,797 digits of scikit-learn, in colour where it is.

    The class is the digit; with 100 classes, ten times the colour plus the digit. The tensors are shared.
    """
    from fdg_plugins.data.digits import read_digits

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
