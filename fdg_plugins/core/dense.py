# SPDX-License-Identifier: Apache-2.0
"""Dense tensors from untrusted payloads: FLARE's filters turn tensors into arrays, and a sender may send anything."""

from typing import Any

import numpy as np
import torch


def dense_tensor(value: Any) -> torch.Tensor | None:
    """Return a dense tensor, or an array of real numbers, as a tensor on the CPU; None for anything else.

    The shape and the dtype are kept. A tensor on the CPU shares its memory with the result; an array is copied.
    """
    if isinstance(value, torch.Tensor) and value.layout == torch.strided and value.device.type != "meta":
        return None if value.is_quantized or value.is_nested else value.detach().cpu()
    if isinstance(value, np.ndarray | np.number) and value.dtype.kind in "fiub" and value.dtype.itemsize <= 8:
        # Copied, because torch cannot share the memory of a read-only, reversed or byte-swapped array.
        return torch.from_numpy(np.array(value, dtype=value.dtype.newbyteorder("="), copy=True))
    return None
