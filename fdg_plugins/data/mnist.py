# SPDX-License-Identifier: Apache-2.0
"""MNIST from its four files below the data root, as torchvision stores them; nothing is downloaded."""

from collections.abc import Callable
from pathlib import Path

import torch
from torchvision.datasets.mnist import read_image_file, read_label_file

from fdg_plugins.data.folders import is_file, is_folder, refuse_outside
from fdg_plugins.errors import DataError

FOLDER = "mnist/MNIST/raw"
PARTS = ("train", "t10k")
FILES = tuple(f"{part}-{kind}" for part in PARTS for kind in ("images-idx3-ubyte", "labels-idx1-ubyte"))
CLASSES = 10

# Exceptions of torchvision's readers for files that are not in the idx format or end too early.
_FORMAT_ERRORS = (AssertionError, IndexError, KeyError, OSError, RuntimeError, TypeError, ValueError)


def read_mnist(data_root: Path, size: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Return all images uint8 ``[N, size, size]`` and labels int64 ``[N]``: the training part, then the test part.

    These are the files that ``torchvision.datasets.MNIST(<data root>/mnist, download=False)`` reads, usually 70,000
    images. Raises DataError, naming folder or file, for missing or broken files and for links out of the root.
    """
    root = data_root.resolve() if is_folder(data_root) else data_root
    folder = root / FOLDER
    if not is_folder(folder):
        raise DataError(
            f"folder of MNIST {folder} is not a folder; expected it to hold {', '.join(FILES)}.",
            public=f"MNIST is not in its data root; expected {FOLDER}/ to hold {', '.join(FILES)}.",
        )
    refuse_outside(root, folder)
    parts = [read_part(root, part, size) for part in PARTS]
    return torch.cat([images for images, _ in parts]), torch.cat([labels for _, labels in parts])


def read_part(root: Path, part: str, size: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Return images uint8 ``[N, size, size]`` and labels int64 ``[N]`` of one of ``PARTS`` below a resolved data root.

    Raises DataError as ``read_mnist`` does.
    """
    folder = root / FOLDER
    images_file, labels_file = folder / f"{part}-images-idx3-ubyte", folder / f"{part}-labels-idx1-ubyte"
    images = _read(root, images_file, read_image_file)
    labels = _read(root, labels_file, read_label_file)
    if images.shape[1:] != (size, size):
        raise DataError(
            f"file {images_file} holds images of {list(images.shape[1:])}; expected {[size, size]} pixels.",
            public=f"a file of MNIST holds images of {list(images.shape[1:])}; expected {[size, size]} pixels.",
        )
    _check_labels(labels, len(images), labels_file)
    return images, labels


def _check_labels(labels: torch.Tensor, expected: int, file: Path) -> None:
    if len(labels) != expected:
        raise DataError(
            f"file {file} holds {len(labels)} labels; expected {expected}, one per image.",
            public=f"a file of MNIST holds {len(labels)} labels; expected {expected}, one per image.",
        )
    if len(labels) and int(labels.max()) >= CLASSES:
        raise DataError(
            f"file {file} holds the label {int(labels.max())}; expected labels from 0 to 9.",
            public="a file of MNIST holds a label that is not from 0 to 9.",
        )


def _read(root: Path, path: Path, reader: Callable[[str], torch.Tensor]) -> torch.Tensor:
    if not is_file(path):
        raise DataError(
            f"folder {path.parent} lacks MNIST's file {path.name}; expected it uncompressed.",
            public=f"its data root lacks MNIST's file {path.name}; expected it uncompressed.",
        )
    refuse_outside(root, path)
    try:
        return reader(str(path))
    except _FORMAT_ERRORS as error:
        raise DataError(
            f"file {path} cannot be read ({type(error).__name__}); expected MNIST's undamaged, uncompressed file.",
            public=f"MNIST's file {path.name} cannot be read; expected it undamaged and uncompressed.",
        ) from error
