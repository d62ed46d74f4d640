# SPDX-License-Identifier: Apache-2.0
"""Dense tensors from untrusted payloads: FLARE's filters turn tensors into arrays, and a sender may send anything."""

from typing import Any

import numpy as np
import torch


def dense_tensor(value: Any) -> torch.Tensor | None:
    """Return a dense tensor, or an array of real numbers, as a tensor on the CPU; None for anything else.

    The shape and the dtype are kept. A tensor on the CPU shares its memory with the result; an array is copied.
    """
    if isinstance(value, torch.Tensor):
        return value.detach().cpu() if _is_dense(value) else None
    if _is_real_array(value):
        # Copied, because torch cannot share the memory of a read-only, reversed or byte-swapped array.
        return torch.from_numpy(np.array(value, dtype=value.dtype.newbyteorder("="), copy=True))
    return None


def _is_dense(tensor: torch.Tensor) -> bool:
    is_plain = tensor.layout == torch.strided and tensor.device.type != "meta"
    return is_plain and not (tensor.is_quantized or tensor.is_nested)


def _is_real_array(value: Any) -> bool:
    is_array = isinstance(value, np.ndarray | np.number)
    return is_array and value.dtype.kind in "fiub" and value.dtype.itemsize <= 8
