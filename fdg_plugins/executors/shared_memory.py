# SPDX-License-Identifier: Apache-2.0
"""Memory that FLARE's process and the training process share, one for each direction, for the tensors of a message.

A message's tensors are copied in by the sender and out by the receiver, and nothing else: a pipe hands on a few pages
at a time, and every one of them waits for the other process. The next message of the direction takes the same place, so
a sender waits for the answer first.
"""

import fcntl
import math
import mmap
import os
from collections.abc import Iterable, Sequence
from typing import Any

import torch

from fdg_plugins.errors import FDGError

ALIGNMENT = 64  # bytes
_DTYPES = {
    str(dtype).removeprefix("torch."): dtype
    for dtype in (
        *(torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.complex64, torch.complex128),
        *(torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8, torch.bool),
    )
}

Entry = tuple[str, Sequence[int], int]  # dtype, shape, offset in bytes


class PlacementError(FDGError):
    """What a message says of its tensors does not fit the shared memory."""


class SharedMemory:
    """Memory of two processes, which one writes and the other reads; ``descriptor`` is that of its file in memory."""

    def __init__(self, descriptor: int) -> None:
        self.descriptor = descriptor
        self._map: mmap.mmap | None = None

    @classmethod
    def create(cls) -> "SharedMemory | None":
        """Return new memory, which may grow and never shrinks; None where the system has no such memory."""
        try:
            descriptor = os.memfd_create("fdg-tensors", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        except (AttributeError, OSError):  # a system other than Linux, or one that forbids it
            return None
        # Otherwise the end of one process could take pages from under the other, which would die of it (SIGBUS).
        fcntl.fcntl(descriptor, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK)
        return cls(descriptor)

    def close(self) -> None:
        """Close the descriptor; the memory goes when the other process has closed its own."""
        self._map = None
        os.close(self.descriptor)

    def put(self, tensors: Sequence[torch.Tensor]) -> list[Entry] | None:
        """Copy ``tensors`` into the memory; return where they are, or None if one is of a kind that it does not take.

        Raises ``OSError`` if the memory cannot grow.
        """
        names = [str(value.dtype).removeprefix("torch.") for value in tensors]
        if not all(name in _DTYPES for name in names) or any(value.layout != torch.strided for value in tensors):
            return None
        offsets, size = [], 0
        for value in tensors:
            offsets.append(size)
            size += -(-value.nbytes // ALIGNMENT) * ALIGNMENT
        self._reach(size, grow=True)
        entries: list[Entry] = [
            (name, list(value.shape), at) for name, value, at in zip(names, tensors, offsets, strict=True)
        ]
        for entry, value in zip(entries, tensors, strict=True):
            self._view(entry).copy_(value.detach())
        return entries

    def take(self, entries: Iterable[Any]) -> list[torch.Tensor]:
        """Return copies of the tensors at ``entries``; raise ``PlacementError`` for a place that the memory lacks."""
        checked = [self._checked(entry) for entry in entries]
        self._reach(max((end for _, end in checked), default=0), grow=False)
        return [self._view(entry).clone() for entry, _ in checked]

    @staticmethod
    def _checked(entry: Any) -> tuple[Entry, int]:
        """Return an entry, and the offset of its end."""
        match entry:
            case [str(name), list(shape), int(at)] if name in _DTYPES and at >= 0 and at % ALIGNMENT == 0:
                if all(isinstance(length, int) and length >= 0 for length in shape):
                    return (name, shape, at), at + math.prod(shape) * _DTYPES[name].itemsize
        raise PlacementError("a message places a tensor where shared memory has none.", public=True)

    def _reach(self, size: int, *, grow: bool) -> None:
        """Map the first ``size`` bytes at least."""
        if (self._map is not None and len(self._map) >= size) or size == 0:
            return
        has = os.fstat(self.descriptor).st_size
        if grow and has < size:
            os.ftruncate(self.descriptor, has := size)
        if has < size:
            raise PlacementError(f"shared memory has {has} bytes, but a message places tensors beyond.", public=True)
        self._map = mmap.mmap(self.descriptor, has)

    def _view(self, entry: Entry) -> torch.Tensor:
        name, shape, at = entry
        dtype, count = _DTYPES[name], math.prod(shape)
        if count == 0:
            return torch.empty(tuple(shape), dtype=dtype)
        assert self._map is not None
        return torch.frombuffer(self._map, dtype=dtype, count=count, offset=at).view(tuple(shape))
