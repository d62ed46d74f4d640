# SPDX-License-Identifier: Apache-2.0
"""Data sets that are published as files of many images, a training and a test file: MNIST, EMNIST, CIFAR-10, CIFAR-100.

The files are those of the publishers, uncompressed, in the folders that torchvision gives them; nothing is downloaded.
CIFAR's Python batches are pickles, which this package never reads: the *binary* version is read instead, or, for
CIFAR-10, folders of images ``cifar10/{train,test}/<class>/*``.

References: LeCun, Bottou, Bengio, Haffner, "Gradient-Based Learning Applied to Document Recognition", 1998; Cohen,
Afshar, Tapson, van Schaik, "EMNIST: an extension of MNIST to handwritten letters", 2017; Krizhevsky, "Learning Multiple
Layers of Features from Tiny Images", 2009.
"""

from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from typing import TypeVar

import numpy as np
import torch

from fdg_plugins.data.catalogue import DATASETS
from fdg_plugins.data.decoding import read_image
from fdg_plugins.data.folders import image_names, is_file, is_folder, refuse_outside
from fdg_plugins.data.image_array import ImageArray
from fdg_plugins.data.specs import FILES_OF, PublishedSpec, Sample
from fdg_plugins.errors import DataError
from fdg_plugins.randomness import numpy_generator

Arrays = tuple[torch.Tensor, torch.Tensor]
Read = TypeVar("Read")

STAND_IN_TEST = 297  # of the 1,797 digits of the stand-in


def published_domain(data_root: Path | None, spec: PublishedSpec, domain: str) -> tuple[ImageArray, tuple[Sample, ...]]:
    """Return the images of one part, ``train`` or ``test``, and their samples, named by position in the files.

    Without a data root, these are the stand-in's. Raises DataError, naming the file, for missing or broken files, files
    of other sizes, labels that the data set does not have, and links out of the root.
    """
    images, labels = (
        stand_in_part(spec.name, domain) if data_root is None else _read(_resolved(data_root), spec, domain)
    )
    files = [f"{position:05d}" for position in range(len(labels))]
    samples = tuple(Sample(file, label) for file, label in zip(files, labels.tolist(), strict=True))
    return ImageArray(images, {file: row for row, file in enumerate(files)}), samples


def _resolved(data_root: Path) -> Path:
    return data_root.resolve() if is_folder(data_root) else data_root


def _read(root: Path, spec: PublishedSpec, domain: str) -> Arrays:
    """Return images uint8 ``[N, S, S]`` or ``[N, 3, S, S]``, labels int64 ``[N]`` of a part below a resolved root."""
    if is_folder(root / spec.folder / domain):
        return _in_folders(root, spec, domain)
    parts = [_READERS[spec.source](root, spec, names) for names in FILES_OF[spec.source][domain]]
    images, labels = torch.cat([one for one, _ in parts]), torch.cat([one for _, one in parts])
    if len(labels) and not 0 <= int(labels.min()) <= int(labels.max()) < len(spec.classes):
        raise DataError(
            f"the {domain} files of {spec.title} below {root} have the label {int(labels.max())}; expected labels from "
            f"0 to {len(spec.classes) - 1}.",
            public=f"a file of {spec.title} has a label that is not from 0 to {len(spec.classes) - 1}.",
        )
    return images, labels


def _idx(root: Path, spec: PublishedSpec, names: tuple[str, ...]) -> Arrays:
    """Read a file of images and its file of labels, in MNIST's idx format."""
    from torchvision.datasets.mnist import read_image_file, read_label_file

    images = _parsed(root, names[0], spec, lambda path: read_image_file(str(path)))
    labels = _parsed(root, names[1], spec, lambda path: read_label_file(str(path)))
    if images.shape[1:] != (spec.size, spec.size):
        raise _unfit(names[0], spec, f"holds images of {list(images.shape[1:])}", f"{[spec.size, spec.size]} pixels")
    if len(labels) != len(images):
        raise _unfit(names[1], spec, f"holds {len(labels)} labels", f"{len(images)}, one per image")
    return images, labels


def _binary(root: Path, spec: PublishedSpec, names: tuple[str, ...]) -> Arrays:
    """Read one file of records: labels of a byte each, of which the last counts, then red, green and blue planes."""
    of_labels = 2 if spec.source == "cifar100" else 1
    length = of_labels + 3 * spec.size**2
    content = _parsed(root, names[0], spec, lambda path: np.fromfile(path, dtype=np.uint8))
    if len(content) == 0 or len(content) % length:
        raise _unfit(names[0], spec, f"has {len(content):,} bytes", f"a multiple of {length:,}, records of one image")
    records = torch.from_numpy(content).view(-1, length)
    images = records[:, of_labels:].reshape(-1, 3, spec.size, spec.size).contiguous()
    return images, records[:, of_labels - 1].long()


_READERS: dict[str, Callable[[Path, PublishedSpec, tuple[str, ...]], Arrays]] = {
    "mnist": _idx,
    "emnist": _idx,
    "cifar10": _binary,
    "cifar100": _binary,
}


def _in_folders(root: Path, spec: PublishedSpec, domain: str) -> Arrays:
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
            images.append(_pixels(folder / file, spec))
            labels.append(label)
    if not images:
        raise DataError(f"folder {root / spec.folder / domain} has no image.", public=f"{spec.title} has no image.")
    return torch.stack(images), torch.tensor(labels)


def _pixels(path: Path, spec: PublishedSpec) -> torch.Tensor:
    image = torch.from_numpy(np.asarray(read_image(path)).copy()).permute(2, 0, 1)
    if image.shape[1:] != (spec.size, spec.size):
        raise _unfit(str(path), spec, f"has {list(image.shape[1:])} pixels", f"{[spec.size, spec.size]}")
    return image.contiguous()


def _parsed(root: Path, name: str, spec: PublishedSpec, reader: Callable[[Path], Read]) -> Read:
    path = root / name
    if not is_file(path):
        raise DataError(
            f"file {path} of {spec.title} is missing; expected it uncompressed.",
            public=f"its data root lacks {name} of {spec.title}; expected it uncompressed.",
        )
    refuse_outside(root, path)
    try:
        return reader(path)
    except (AssertionError, IndexError, KeyError, OSError, RuntimeError, TypeError, ValueError) as error:
        raise _unfit(name, spec, f"cannot be read ({type(error).__name__})", "the undamaged file") from error


def _unfit(name: str, spec: PublishedSpec, found: str, expected: str) -> DataError:
    return DataError(
        f"file {name} of {spec.title} {found}; expected {expected}.",
        public=f"a file of {spec.title} {found}; expected {expected}.",
    )


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
