# SPDX-License-Identifier: Apache-2.0
"""Tensors that need not be in memory: code that processes a tensor part by part can read it from its file."""

from abc import ABC, abstractmethod

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
