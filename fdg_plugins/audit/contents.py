# SPDX-License-Identifier: Apache-2.0
"""The contents of an answer: every array with its size and norm, and every other value with its path in the answer."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from nvflare.apis.dxo import DXO, DataKind, from_shareable
from nvflare.apis.fl_constant import ReturnCode
from nvflare.apis.shareable import ReservedHeaderKey, Shareable
from nvflare.app_common.abstract.fl_model import FLModel

from fdg_plugins.audit.file import TensorEntry
from fdg_plugins.core.linear import squared_norm
from fdg_plugins.filters.wire import NO_DXO, PART_MAIN, PART_TENSORS

LONGEST_LIST = 16  # numbers; a longer list is recorded as an array, with length and norm only
LONGEST_TEXT = 200  # characters
DEEPEST = 32

AT_A_TIME = 1 << 20  # values whose norm is computed at a time

_DXO_KEY = "DXO"
_ENCODED = {"kind", "data", "meta"}  # the keys of a DXO on the wire
_PARTS = {DataKind.WEIGHT_DIFF: "update", DataKind.WEIGHTS: "model", DataKind.METRICS: "metrics"}


@dataclass
class Contents:
    """The contents found: arrays; other values by path, such as ``meta/fdg_report/steps``; types of others."""

    kind: str = ""
    tensors: list[TensorEntry] = field(default_factory=list)
    values: dict[str, Any] = field(default_factory=dict)
    others: dict[str, str] = field(default_factory=dict)

    def look(self, value: Any, part: str, name: str = "", depth: int = 0) -> None:
        """Record ``value`` and everything in it; ``name``: the path within a part, ``depth``: of levels around it."""
        path, is_deep = f"{part}/{name}" if name else part, depth >= DEEPEST
        if isinstance(value, np.generic) and not isinstance(value, np.void):
            value = float(value) if isinstance(value, np.longdouble) else value.item()
        match value:
            case torch.Tensor() | np.ndarray():
                self.tensors.append(_entry(part, name, value))
            case float() if not math.isfinite(value):  # for which JSON has no words
                self.values[self._free(path)] = str(value)
            case str() | bool() | int() | float() | None:
                self.values[self._free(path)] = _text(value) if isinstance(value, str) else value
            case DXO() if not is_deep:
                self.look_into_dxo(value, path, depth + 1)
            case dict() | list() | tuple() | set() | frozenset() | FLModel() | Mapping() if not is_deep:
                self._look_into(value, part, name, depth)
            case _:
                size = f" of {len(value)} bytes" if isinstance(value, bytes | bytearray | memoryview) else ""
                more = ", too deep to look into" if is_deep else size
                self.others[self._free(path)] = f"{type(value).__module__}.{type(value).__qualname__}{more}"

    def look_into_dxo(self, dxo: DXO, name: str, depth: int) -> None:
        """Record a DXO: its data under its name or the part name of its kind, and its meta."""
        if depth < DEEPEST and dxo.data_kind == DataKind.COLLECTION and isinstance(dxo.data, Mapping):
            for key, value in dxo.data.items():
                own = "" if key == PART_MAIN and not name else f"{name}/{key}".lstrip("/")
                if isinstance(value, dict) and value.keys() == _ENCODED and isinstance(value["meta"], dict | None):
                    value = DXO(value["kind"], data=value["data"], meta=value["meta"])
                if isinstance(value, DXO):
                    self.look_into_dxo(value, own, depth + 1)
                else:
                    self.look(value, "extra", own, depth + 1)
        else:
            kind = _PARTS.get(dxo.data_kind, _text(dxo.data_kind))
            self.look(dxo.data, "method" if name == PART_TENSORS else name or kind, depth=depth)
        self.look(dxo.meta, f"meta of {name}" if name else "meta", depth=depth)

    def _look_into(self, value: Any, part: str, name: str, depth: int) -> None:
        """Record a container: a long list of numbers like an array, otherwise each item by its key or place."""
        value = vars(value) if isinstance(value, FLModel) else value
        numbers = [] if isinstance(value, Mapping) else [item for item in value if isinstance(item, int | float)]
        if len(numbers) == len(value) > LONGEST_LIST:
            norm = math.hypot(*(float(min(max(item, -1e300), 1e300)) for item in numbers))
            shape, size = (len(numbers),), 8 * len(numbers)
            self.tensors.append(TensorEntry(part=part, name=name, shape=shape, dtype="list", bytes=size, norm=norm))
            return
        for key, item in value.items() if isinstance(value, Mapping) else enumerate(value):
            self.look(item, part, f"{name}/{_text(key)}".lstrip("/"), depth + 1)
        if not value and name:
            self.others[self._free(f"{part}/{name}")] = "empty"

    def _free(self, path: str) -> str:
        """Return ``path``, or if something else has it, as of keys that are cut alike, ``path#2`` and so on."""
        number, found = 1, path
        while found in self.values or found in self.others:
            number += 1
            found = f"{path}#{number}"
        return found


def contents_of(answer: Shareable, context: Mapping[str, Any]) -> Contents:
    """Return the contents that leave with ``answer``; ``context``: the public properties that FLARE sends with it."""
    found = Contents(kind="error" if answer.get_return_code(ReturnCode.OK) != ReturnCode.OK else "")
    found.look(answer.get(ReservedHeaderKey.HEADERS) or {}, "headers")
    for key, value in answer.items():
        if key == _DXO_KEY:
            _look_into_main_dxo(found, answer, value)
        elif key != ReservedHeaderKey.HEADERS:
            found.look(value, "extra", str(key))
    found.look(context, "context")
    return found


def _look_into_main_dxo(found: Contents, answer: Shareable, encoded: Any) -> None:
    """Record the answer's DXO and whatever was added to its encoding; or the value, if it does not encode a DXO."""
    try:
        dxo = from_shareable(answer)
    except NO_DXO:
        found.look(encoded, "extra", _DXO_KEY)
        return
    found.kind = _text(dxo.data_kind)
    found.look_into_dxo(dxo, "", 0)
    for extra in encoded.keys() - _ENCODED:
        found.look(encoded[extra], "extra", f"{_DXO_KEY}/{extra}")


def _entry(part: str, name: str, value: torch.Tensor | np.ndarray) -> TensorEntry:
    size = value.numel() * value.element_size() if isinstance(value, torch.Tensor) else value.nbytes
    try:
        norm = _tensor_norm(value) if isinstance(value, torch.Tensor) else _array_norm(value)
    except (RuntimeError, TypeError, ValueError, NotImplementedError):  # undefined, as for an array of text
        norm = math.nan
    dtype = str(value.dtype).removeprefix("torch.")
    return TensorEntry(part=part, name=name, shape=tuple(value.shape), dtype=dtype, bytes=size, norm=norm)


def _array_norm(value: np.ndarray) -> float:
    wide = np.complex128 if value.dtype.kind == "c" else np.float64
    return float(np.linalg.norm(value.astype(wide).ravel())) if value.dtype.kind in "fiubc" else math.nan


def _tensor_norm(value: torch.Tensor) -> float:
    dense = value.detach().to_dense() if value.layout != torch.strided else value.detach()
    dense = torch.view_as_real(dense.resolve_conj()) if dense.is_complex() else dense
    parts = dense.cpu().reshape(-1).split(AT_A_TIME)
    return math.sqrt(math.fsum(squared_norm([part]).item() for part in parts if len(part)))


def _text(value: Any) -> str:
    text = str(value.value) if isinstance(value, DataKind) else str(value)
    return text if len(text) <= LONGEST_TEXT else f"{text[:LONGEST_TEXT]}... ({len(text)} characters)"
