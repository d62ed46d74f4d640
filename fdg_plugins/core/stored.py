# SPDX-License-Identifier: Apache-2.0
"""Tensors that need not be in memory, whose parts are read from a file; and dense tensors from untrusted payloads."""

from abc import ABC, abstractmethod
from typing import Any

import numpy as np
import torch


class Stored(ABC):
    """A tensor whose values are stored elsewhere, for example in a file, and are read in parts when needed."""

    shape: torch.Size
    dtype: torch.dtype

    @abstractmethod
    def read(self, start: int, stop: int) -> torch.Tensor:
        """Return the elements from ``start`` up to ``stop``, in row-major order, as a tensor ``[stop - start]``."""


Values = torch.Tensor | Stored


def flattened(values: Values) -> Values:
    """Return a tensor as ``[P]``, without gradient; a stored tensor is returned unchanged, as its reads are flat."""
    return values.detach().reshape(-1) if isinstance(values, torch.Tensor) else values


def part_of(values: Values, part: slice) -> torch.Tensor:
    """Return one slice of the result of :func:`flattened`, in memory."""
    return values[part] if isinstance(values, torch.Tensor) else values.read(part.start, part.stop)


def whole(values: Values) -> torch.Tensor:
    """Return the whole tensor in memory, with its shape."""
    return values if isinstance(values, torch.Tensor) else values.read(0, values.shape.numel()).view(values.shape)


def dense_tensor(value: Any) -> torch.Tensor | None:
    """Return a dense tensor, or an array of real numbers, as a tensor on the CPU; None for anything else.

    The shape and the dtype are kept. A tensor on the CPU shares its memory with the result; an array is copied.
    """
    if isinstance(value, torch.Tensor):
        is_plain = value.layout == torch.strided and value.device.type != "meta"
        return value.detach().cpu() if is_plain and not (value.is_quantized or value.is_nested) else None
    is_array = isinstance(value, np.ndarray | np.number)  # FLARE's filters turn tensors into arrays
    if is_array and value.dtype.kind in "fiub" and value.dtype.itemsize <= 8:
        # Copied, because torch cannot share the memory of a read-only, reversed or byte-swapped array.
        return torch.from_numpy(np.array(value, dtype=value.dtype.newbyteorder("="), copy=True))
    return None
