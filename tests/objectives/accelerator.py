# SPDX-License-Identifier: Apache-2.0
"""An accelerator without one: what a program makes it compute has shapes and no values, and every wait is noted.

Tensors on torch's ``meta`` device stand for those on the accelerator, so that autograd runs too. On a GPU, a program
waits until all that was queued has been computed whenever a value is read (``.item()``, ``float``, ``bool``,
``tolist``, ``.cpu()``), whenever the shape of a result depends on values (``nonzero``, ``unique``, ``x[mask]``), and
whenever something is copied there from memory that is not pinned. Arithmetic on the CPU, such as drawing a random
number, is real and is no wait. ``torch.tensor(value, device=...)``, which is such a copy too, is not noticed.
"""

import traceback
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

import fdg_plugins

DEVICE = torch.device("meta")
aten = torch.ops.aten
# Their results have a shape that depends on values; a GPU computes it first and tells the CPU.
_SHAPED_BY_VALUES = ("nonzero", "unique", "_unique2", "unique_dim", "masked_select", "bincount", "unique_consecutive")
_PACKAGE = str(Path(fdg_plugins.__file__).parent)


class MixedDevicesError(RuntimeError):
    """An operation got tensors on the accelerator together with others on the CPU."""


class Accelerator(TorchDispatchMode):
    """While it is entered, notes in ``waits`` where a program waits for the accelerator: file, line and operation."""

    def __init__(self) -> None:
        super().__init__()
        self.waits: list[str] = []
        self._pinned: list[torch.Tensor] = []

    def pin(self, tensor: torch.Tensor) -> torch.Tensor:
        """Return ``tensor`` as a loader hands it over: in pinned memory."""
        self._pinned.append(tensor)
        return tensor

    def __torch_dispatch__(
        self, operation: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        """Compute ``operation`` on shapes, or on values where all of it is on the CPU."""
        kwargs = dict(kwargs or {})
        if operation in (aten.is_pinned.default, aten._pin_memory.default):
            return self._memory(operation, args[0])
        tensors = [one for one in _flat([*args, *kwargs.values()]) if isinstance(one, torch.Tensor)]
        there = [one for one in tensors if one.device == DEVICE]
        if operation in (aten._to_copy.default, aten.copy_.default):
            return self._copy(operation, args, kwargs)
        if not there:
            return operation(*args, **kwargs)
        if any(one.device != DEVICE and one.ndim for one in tensors):
            raise MixedDevicesError(f"{operation} got tensors on the accelerator and on the CPU: {_place()}")
        if operation is aten._local_scalar_dense.default:
            return self._wait(operation, torch.ones((), dtype=args[0].dtype).item())
        self._check_shape(operation, args)
        return operation(*args, **kwargs)

    def _memory(self, operation: Any, tensor: torch.Tensor) -> Any:
        is_pinned = any(tensor is one for one in self._pinned)
        return is_pinned if operation is aten.is_pinned.default else self.pin(tensor.clone())

    def _copy(self, operation: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Copy; it is a wait from the accelerator, and to it unless memory is pinned and nobody asks to wait."""
        if operation is aten.copy_.default:
            source, target = args[1], args[0].device
            asynchronous = kwargs.get("non_blocking") or (len(args) > 2 and args[2])
        else:
            source, target = args[0], kwargs.get("device") or args[0].device
            asynchronous = kwargs.get("non_blocking", False)
        is_pinned = any(source is one for one in self._pinned)
        if source.device == target or (target == DEVICE and asynchronous and is_pinned):
            return operation(*args, **kwargs)
        if target == DEVICE:
            return self._wait(operation, operation(*args, **kwargs))
        here = torch.ones(source.shape, dtype=kwargs.get("dtype") or source.dtype)
        return self._wait(operation, args[0].copy_(here) if operation is aten.copy_.default else here)

    def _check_shape(self, operation: Any, args: tuple[Any, ...]) -> None:
        name = operation.overloadpacket.__name__
        indices = args[1] if name in ("index", "index_put", "index_put_", "_index_put_impl_") else ()
        masks = any(one is not None and one.dtype in (torch.bool, torch.uint8) for one in indices)
        if masks or name in _SHAPED_BY_VALUES:
            self._wait(operation, None)

    def _wait(self, operation: Any, value: Any) -> Any:
        self.waits.append(f"{operation}: {_place()}")
        return value


def _flat(values: Iterable[Any]) -> Iterable[Any]:
    for one in values:
        if isinstance(one, (list, tuple)):
            yield from _flat(one)
        else:
            yield one


def _place() -> str:
    """Return the last line of this package that runs."""
    ours = [frame for frame in traceback.extract_stack() if frame.filename.startswith(_PACKAGE)]
    return f"{Path(ours[-1].filename).name}:{ours[-1].lineno}: {ours[-1].line}" if ours else "outside of this package"
