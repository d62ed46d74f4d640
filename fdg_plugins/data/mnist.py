# SPDX-License-Identifier: Apache-2.0
"""MNIST from its four files below the data root, as torchvision stores them; nothing is downloaded."""

from pathlib import Path

import torch

from fdg_plugins.data.folders import is_folder, refuse_outside, resolved
from fdg_plugins.data.published_files import Arrays, read_idx
from fdg_plugins.errors import DataError

FOLDER = "mnist/MNIST/raw"
PARTS = ("train", "t10k")
KINDS = ("images-idx3-ubyte", "labels-idx1-ubyte")
FILES = tuple(f"{part}-{kind}" for part in PARTS for kind in KINDS)
CLASSES = 10


def read_mnist(data_root: Path, size: int) -> Arrays:
    """Return all images uint8 ``[N, size, size]`` and labels int64 ``[N]``: the training part, then the test part.

    These are the files that ``torchvision.datasets.MNIST(<data root>/mnist, download=False)`` reads, usually 70,000
    images. Raises DataError, naming folder or file, for missing or broken files and for links out of the root.
    """
    root = resolved(data_root)
    folder = root / FOLDER
    if not is_folder(folder):
        raise DataError(
            f"folder of MNIST {folder} is not a folder; expected it to hold {', '.join(FILES)}.",
            public=f"MNIST is not in its data root; expected {FOLDER}/ to hold {', '.join(FILES)}.",
        )
    refuse_outside(root, folder)
    parts = [read_part(root, part, size) for part in PARTS]
    return torch.cat([images for images, _ in parts]), torch.cat([labels for _, labels in parts])


def read_part(root: Path, part: str, size: int) -> Arrays:
    """Return images uint8 ``[N, size, size]`` and labels int64 ``[N]`` of one of ``PARTS`` below a resolved data root.

    Raises DataError as ``read_mnist`` does.
    """
    names = tuple(f"{FOLDER}/{part}-{kind}" for kind in KINDS)
    return read_idx(root, "MNIST", names, size, CLASSES)
