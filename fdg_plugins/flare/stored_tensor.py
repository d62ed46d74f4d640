# SPDX-License-Identifier: Apache-2.0
"""Tensors that FLARE wrote to files on arrival (its tensor disk offload): safetensors files with one tensor each.

FLARE passes references, whose ``materialize`` loads the whole tensor. This module reads parts of a tensor instead, with
plain reads: a missing file then raises an error, whereas a memory-mapped one would kill the process.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from nvflare.app_common.utils.tensor_disk_offload_context import cleanup_tensor_disk_offload, setup_tensor_disk_offload
from nvflare.app_opt.pt.tensor_downloader import cleanup_active_disk_tensor_downloads
from safetensors import safe_open

from fdg_plugins import storage
from fdg_plugins.core.stored import Stored
from fdg_plugins.errors import DataError

UNREADABLE = (OSError, *storage.UNREADABLE)  # raised for an invalid file


@dataclass(frozen=True)
class StoredTensor(Stored):
    """A tensor in a file: its values start at byte ``offset``, are stored as ``sent_as`` and converted to ``dtype``.

    ``keeper`` is FLARE's reference. FLARE removes an update's files once all its references are gone.
    """

    path: Path
    offset: int
    sent_as: torch.dtype
    shape: torch.Size
    dtype: torch.dtype
    keeper: Any

    @property
    def nbytes(self) -> int:
        """Size of the values in the file, in bytes."""
        return self.shape.numel() * self.sent_as.itemsize

    def to(self, dtype: torch.dtype) -> "StoredTensor":
        """Return the same tensor, to be read as ``dtype``."""
        return replace(self, dtype=dtype)

    def read(self, start: int, stop: int) -> torch.Tensor:
        """Return the values ``start`` to ``stop`` (exclusive) of the flattened tensor, ``[stop - start]``.

        Raises ``DataError`` naming the file if it cannot be read.
        """
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
        if not content:  # torch does not accept an empty buffer
            return torch.empty(0, dtype=self.dtype)
        return torch.frombuffer(content, dtype=torch.uint8).view(self.sent_as).to(self.dtype)


def is_reference(value: Any) -> bool:
    """Return whether ``value`` is FLARE's reference to a tensor that it wrote to a file."""
    return hasattr(value, "materialize")


def open_reference(reference: Any) -> StoredTensor:
    """Return a reference's tensor; raise one of ``UNREADABLE`` for an invalid file.

    safetensors validates the file, because its header comes from the site.
    """
    with safe_open(reference.file_path, framework="pt") as file:
        if list(file.keys()) != [reference.key]:
            raise OSError("the file holds other tensors.")
        tensor = file.get_tensor(reference.key)  # memory-mapped: no values are read
    # safetensors has verified that the tensors fill the file to its end.
    path = Path(reference.file_path)
    offset = path.stat().st_size - tensor.nbytes
    return StoredTensor(path, offset, tensor.dtype, tensor.shape, tensor.dtype, reference)


def size_of(value: Any) -> int:
    """Return the size of a tensor or array, in memory or in a file, in bytes; 0 for anything else."""
    if isinstance(value, torch.Tensor | np.ndarray | StoredTensor):
        return value.nbytes
    try:
        return open_reference(value).nbytes if is_reference(value) else 0
    except UNREADABLE:  # the error is reported where the tensor is read
        return 0


@contextmanager
def tensors_in_files(engine: Any, enabled: bool, job: str) -> Iterator[Path | None]:
    """Let FLARE write arriving tensors to a new private folder in the temporary directory; yield that folder.

    Yields None if not ``enabled``. The folder is always removed at the end, including files that are still arriving.
    """
    offload = setup_tensor_disk_offload(engine, enabled, job)
    try:
        yield Path(offload.root_dir) if offload.root_dir else None
    finally:
        if offload.root_dir:  # FLARE alone would remove it while a thread may still write to it
            cleanup_active_disk_tensor_downloads("the rounds have ended", offload.root_dir)
        cleanup_tensor_disk_offload(engine, offload)
