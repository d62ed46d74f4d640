# SPDX-License-Identifier: Apache-2.0
"""What somebody else sent as a dense tensor: FLARE's filters turn tensors into arrays, and anything may come."""

from typing import Any

import numpy as np
import torch


def dense_tensor(value: Any) -> torch.Tensor | None:
    """Return a dense tensor, or array of real numbers, as a tensor on the CPU; None for anything else.

    A tensor on the CPU shares its memory with the result, an array does not.
    """
    if isinstance(value, torch.Tensor) and value.layout == torch.strided and value.device.type != "meta":
        return None if value.is_quantized or value.is_nested else value.detach().cpu()
    if isinstance(value, np.ndarray | np.number) and value.dtype.kind in "fiub" and value.dtype.itemsize <= 8:
        # torch shares an array's memory, but not of one that is read-only, reversed or of foreign byte order.
        return torch.from_numpy(np.array(value, dtype=value.dtype.newbyteorder("="), copy=True))
    return None
