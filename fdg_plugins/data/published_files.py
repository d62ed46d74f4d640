# SPDX-License-Identifier: Apache-2.0
"""Files of many images as their publishers give them, read below a data root: MNIST's idx format, and any other."""

from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import torch

from fdg_plugins.data.folders import is_file, refuse_outside
from fdg_plugins.errors import DataError

Arrays = tuple[torch.Tensor, torch.Tensor]
Read = TypeVar("Read")

# What readers raise for files that have another format or end too early.
_FORMAT_ERRORS = (AssertionError, IndexError, KeyError, OSError, RuntimeError, TypeError, ValueError)


def read_idx(root: Path, title: str, names: tuple[str, ...], size: int, num_classes: int) -> Arrays:
    """Return images uint8 ``[N, size, size]`` and labels int64 ``[N]`` of a file of images and its file of labels.

    ``names`` are their paths below the resolved ``root``, ``title`` is that of the data set. Raises DataError, naming
    the file, for missing or broken files, images of another size, and other labels than those of the classes.
    """
    from torchvision.datasets.mnist import read_image_file, read_label_file

    images = read_file(root, title, names[0], lambda path: read_image_file(str(path)))
    labels = read_file(root, title, names[1], lambda path: read_label_file(str(path)))
    if images.shape[1:] != (size, size):
        found = f"holds images of {list(images.shape[1:])}"
        raise unfit_file(root / names[0], title, found, f"{[size, size]} pixels")
    if len(labels) != len(images):
        raise unfit_file(root / names[1], title, f"holds {len(labels)} labels", f"{len(images)}, one per image")
    check_labels(root / names[1], title, labels, num_classes)
    return images, labels


def check_labels(path: Path, title: str, labels: torch.Tensor, num_classes: int) -> None:
    """Raise DataError, naming the file, unless all labels are those of ``num_classes`` classes."""
    if len(labels) and int(labels.max()) >= num_classes:
        raise unfit_file(path, title, f"holds the label {int(labels.max())}", f"labels from 0 to {num_classes - 1}")


def read_file(root: Path, title: str, name: str, reader: Callable[[Path], Read]) -> Read:
    """Return what ``reader`` makes of the file ``name`` below the resolved ``root``.

    Raises DataError for a file that is missing, out of the root, or not what the reader expects.
    """
    path = root / name
    if not is_file(path):
        raise DataError(
            f"folder {path.parent} lacks {title}'s file {path.name}; expected it uncompressed.",
            public=f"its data root lacks {title}'s file {path.name}; expected it uncompressed.",
        )
    refuse_outside(root, path)
    try:
        return reader(path)
    except _FORMAT_ERRORS as error:
        raise DataError(
            f"file {path} cannot be read ({type(error).__name__}); expected {title}'s undamaged, uncompressed file.",
            public=f"{title}'s file {path.name} cannot be read; expected it undamaged and uncompressed.",
        ) from error


def unfit_file(path: Path, title: str, found: str, expected: str) -> DataError:
    """Return the error for a file with other content than expected; only the data set is named to others."""
    text = f"{found}; expected {expected}."
    return DataError(f"file {path} {text}", public=f"a file of {title} {text}")
