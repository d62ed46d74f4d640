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
from fdg_plugins.filters.wire import PART_MAIN, PART_TENSORS

LONGEST_LIST = 16  # numbers; a longer list is recorded as an array, with length and norm only
LONGEST_TEXT = 200  # characters
DEEPEST = 32

_DXO_KEY = "DXO"
_PARTS = {
    DataKind.WEIGHT_DIFF: "update",
    DataKind.WEIGHTS: "model",
    DataKind.METRICS: "metrics",
}


@dataclass
class Contents:
    """The contents found: arrays; other values by path, such as ``meta/fdg_report/steps``; types of others."""

    kind: str = ""
    tensors: list[TensorEntry] = field(default_factory=list)
    values: dict[str, Any] = field(default_factory=dict)
    others: dict[str, str] = field(default_factory=dict)

    @property
    def bytes(self) -> int:
        """Total size of all arrays, in bytes."""
        return sum(entry.bytes for entry in self.tensors)


def contents_of(answer: Shareable, context: Mapping[str, Any]) -> Contents:
    """Return the contents that leave with ``answer``; ``context``: the public properties that FLARE sends with it."""
    found = Contents(kind="error" if answer.get_return_code(ReturnCode.OK) != ReturnCode.OK else "")
    headers = answer.get(ReservedHeaderKey.HEADERS) or {}
    _look(found, "headers", "", headers, 0)
    for key, value in answer.items():
        if key == ReservedHeaderKey.HEADERS:
            continue
        dxo = _dxo(answer) if key == _DXO_KEY else None
        if dxo is None:
            _look(found, "extra", str(key), value, 0)
            continue
        found.kind = _text(dxo.data_kind)
        _look_into_dxo(found, "", dxo, 0)
        for extra in value.keys() - {"kind", "data", "meta"}:
            _look(found, "extra", f"{_DXO_KEY}/{extra}", value[extra], 0)
    _look(found, "context", "", context, 0)
    return found


def _dxo(answer: Shareable) -> DXO | None:
    try:
        return from_shareable(answer)
    except (ValueError, TypeError, KeyError, AttributeError):
        return None


def _look_into_dxo(found: Contents, name: str, dxo: DXO, depth: int) -> None:
    """Record a DXO: its data under its name or the part name of its kind, and its meta."""
    collection = dxo.data_kind == DataKind.COLLECTION and isinstance(dxo.data, Mapping)
    if collection and depth < DEEPEST:
        for key, value in dxo.data.items():
            own = "" if key == PART_MAIN and not name else f"{name}/{key}".lstrip("/")
            _look_into_part(found, own, value, depth + 1)
    else:
        part = "method" if name == PART_TENSORS else name or _PARTS.get(dxo.data_kind, _text(dxo.data_kind))
        _look(found, part, "", dxo.data, depth)
    _look(found, f"meta of {name}" if name else "meta", "", dxo.meta, depth)


def _look_into_part(found: Contents, name: str, value: Any, depth: int) -> None:
    # a DXO's encoding on the wire
    if isinstance(value, dict) and value.keys() == {"kind", "data", "meta"} and isinstance(value["meta"], dict | None):
        value = DXO(value["kind"], data=value["data"], meta=value["meta"])
    if isinstance(value, DXO):
        _look_into_dxo(found, name, value, depth)
    else:
        _look(found, "extra", name, value, depth)


def _look(found: Contents, part: str, place: str, value: Any, depth: int) -> None:
    """Record ``value``, at path ``place`` within ``part``, and everything in it."""
    where = f"{part}/{place}" if place else part
    value = _as_python(value)
    if isinstance(value, torch.Tensor | np.ndarray):
        found.tensors.append(_entry(part, place, value))
    elif isinstance(value, bool | int | float | str | None):
        found.values[where] = _text(value) if isinstance(value, str) else value
    elif depth >= DEEPEST:
        found.others[where] = f"{_type(value)}, too deep to look into"
    elif isinstance(value, DXO):
        _look_into_dxo(found, where, value, depth + 1)
    elif isinstance(value, FLModel):
        _look(found, part, place, vars(value), depth + 1)
    elif isinstance(value, Mapping):
        _look_into_mapping(found, part, place, value, depth)
    elif isinstance(value, list | tuple | set | frozenset):
        _look_into_sequence(found, part, place, list(value), depth)
    else:
        size = f" of {len(value)} bytes" if isinstance(value, bytes | bytearray | memoryview) else ""
        found.others[where] = f"{_type(value)}{size}"


def _as_python(value: Any) -> Any:
    """Return a single number or text of NumPy's as one of Python's; anything else as it is."""
    if isinstance(value, np.longdouble):
        return float(value)
    return value.item() if isinstance(value, np.generic) and not isinstance(value, np.void) else value


def _look_into_mapping(found: Contents, part: str, place: str, value: Mapping[Any, Any], depth: int) -> None:
    for key, item in value.items():
        _look(found, part, f"{place}/{_text(key)}".lstrip("/"), item, depth + 1)
    if not value and place:
        found.others[f"{part}/{place}"] = "empty"


def _look_into_sequence(found: Contents, part: str, place: str, items: list[Any], depth: int) -> None:
    numbers = all(isinstance(item, int | float) for item in items)
    if numbers and len(items) > LONGEST_LIST:
        norm = math.hypot(*(float(min(max(item, -1e300), 1e300)) for item in items))
        entry = TensorEntry(part=part, name=place, shape=(len(items),), dtype="list", bytes=8 * len(items), norm=norm)
        found.tensors.append(entry)
        return
    for index, item in enumerate(items):
        _look(found, part, f"{place}/{index}".lstrip("/"), item, depth + 1)
    if not items:
        found.others[f"{part}/{place}" if place else part] = "empty"


def _entry(part: str, name: str, value: torch.Tensor | np.ndarray) -> TensorEntry:
    if isinstance(value, torch.Tensor):
        dtype, size = str(value.dtype).removeprefix("torch."), value.numel() * value.element_size()
    else:
        dtype, size = str(value.dtype), value.nbytes
    return TensorEntry(part=part, name=name, shape=tuple(value.shape), dtype=dtype, bytes=size, norm=_norm(value))


def _norm(value: torch.Tensor | np.ndarray) -> float:
    """Return the L2 norm, computed in float64; NaN if it is undefined, as for an array of text."""
    try:
        if isinstance(value, torch.Tensor):
            wide = torch.complex128 if value.is_complex() else torch.float64
            dense = value.detach().to_dense() if value.layout != torch.strided else value.detach()
            return float(torch.linalg.vector_norm(dense.cpu().to(wide)))
        if value.dtype.kind not in "fiubc":
            return math.nan
        return float(np.linalg.norm(value.astype(np.complex128 if value.dtype.kind == "c" else np.float64).ravel()))
    except (RuntimeError, TypeError, ValueError, NotImplementedError):
        return math.nan


def _text(value: Any) -> str:
    text = str(value.value) if isinstance(value, DataKind) else str(value)
    return text if len(text) <= LONGEST_TEXT else f"{text[:LONGEST_TEXT]}... ({len(text)} characters)"


def _type(value: Any) -> str:
    return f"{type(value).__module__}.{type(value).__qualname__}"
