# SPDX-License-Identifier: Apache-2.0
"""Tensors that need not lie in memory: whoever goes through one part by part can read it from where it is kept."""

from abc import ABC, abstractmethod

import torch


class Stored(ABC):
    """A tensor whose values are kept elsewhere, such as in a file, and read in parts when they are needed."""

    shape: torch.Size
    dtype: torch.dtype

    @abstractmethod
    def read(self, start: int, stop: int) -> torch.Tensor:
        """Return the elements from ``start`` up to ``stop``, in the order of rows, as a tensor ``[stop - start]``."""


Values = torch.Tensor | Stored


def flattened(values: Values) -> Values:
    """Return a tensor without gradient as ``[P]``; what is stored is read as such in any case."""
    return values.detach().reshape(-1) if isinstance(values, torch.Tensor) else values


def part_of(values: Values, part: slice) -> torch.Tensor:
    """Return a part of what :func:`flattened` returned, in memory."""
    return values[part] if isinstance(values, torch.Tensor) else values.read(part.start, part.stop)


def whole(values: Values) -> torch.Tensor:
    """Return all of a tensor, in memory."""
    return values if isinstance(values, torch.Tensor) else values.read(0, values.shape.numel()).view(values.shape)
