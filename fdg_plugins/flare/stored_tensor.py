# SPDX-License-Identifier: Apache-2.0
"""Tensors in files that FLARE wrote when they arrived (its tensor disk offload): safetensors files, one tensor in each.

FLARE hands over references, whose ``materialize`` loads the tensor. Here a part of it is read instead, by plain reads:
a file that is gone then ends in a sentence, where a mapped one would end the process.
"""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import safe_open

from fdg_plugins import storage
from fdg_plugins.core.stored import Stored
from fdg_plugins.errors import DataError

UNREADABLE = (OSError, *storage.UNREADABLE)  # what a file that is not sound raises


@dataclass(frozen=True)
class StoredTensor(Stored):
    """A tensor in a file: its values begin at ``offset``, lie there as ``sent_as`` and are read as ``dtype``.

    ``keeper`` is FLARE's reference: once all of an update's are gone, FLARE removes its files.
    """

    path: Path
    offset: int
    sent_as: torch.dtype
    shape: torch.Size
    dtype: torch.dtype
    keeper: Any

    @property
    def nbytes(self) -> int:
        """Size of the values in the file, bytes."""
        return self.shape.numel() * self.sent_as.itemsize

    def to(self, dtype: torch.dtype) -> "StoredTensor":
        """Return the same values, to be read as another type."""
        return replace(self, dtype=dtype)

    def read(self, start: int, stop: int) -> torch.Tensor:
        """Return a part of the values; raise ``DataError`` naming the file if it cannot be read."""
        size = self.sent_as.itemsize
        content = bytearray((stop - start) * size)
        try:
            with self.path.open("rb") as file:
                file.seek(self.offset + start * size)
                count = file.readinto(content)
        except OSError as error:
            raise DataError(f"file {self.path} cannot be read: {error.strerror}.") from error
        if count != len(content):
            raise DataError(f"file {self.path} gave {count} bytes of a tensor, expected {len(content)}.")
        if not content:  # of which torch takes no buffer
            return torch.empty(0, dtype=self.dtype)
        return torch.frombuffer(content, dtype=torch.uint8).view(self.sent_as).to(self.dtype)


def is_reference(value: Any) -> bool:
    """Return whether ``value`` is what FLARE hands over in place of a tensor that it wrote to a file."""
    return hasattr(value, "materialize")


def open_reference(reference: Any) -> Any:
    """Return the tensor of a reference as it lies in its file, if nothing else does; otherwise load it.

    The file is checked by safetensors, for its header is the site's own; one that is not sound raises one of
    ``UNREADABLE``.
    """
    path, key = getattr(reference, "file_path", None), getattr(reference, "key", None)
    if path is None or key is None:
        return reference.materialize()
    with safe_open(path, framework="pt") as file:
        names = list(file.keys())
        tensor = file.get_tensor(key)  # mapped, none of its values is read
    if names != [key]:
        return tensor
    # safetensors has made sure that the tensors fill the file to its end.
    offset = Path(path).stat().st_size - tensor.nbytes
    return StoredTensor(Path(path), offset, tensor.dtype, tensor.shape, tensor.dtype, reference)


def size_of(value: Any) -> int:
    """Return the bytes of the elements of a tensor or array, in memory or in a file; zero of anything else."""
    if isinstance(value, torch.Tensor | np.ndarray | StoredTensor):
        return value.nbytes
    try:
        return size_of(open_reference(value)) if is_reference(value) else 0
    except UNREADABLE:  # whoever reads it says what is wrong with it
        return 0
