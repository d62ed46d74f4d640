# SPDX-License-Identifier: Apache-2.0
"""The contents of an answer: every array with its size and norm, and every other value with its path in the answer."""

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import torch
from nvflare.apis.dxo import DXO, DataKind, from_shareable
from nvflare.apis.fl_constant import ReturnCode
from nvflare.apis.shareable import ReservedHeaderKey, Shareable
from nvflare.app_common.abstract.fl_model import FLModel

from fdg_plugins.audit.file import TensorEntry
from fdg_plugins.filters.wire import PART_MAIN, PART_TENSORS
from fdg_plugins.messages import MOST_CLASSES

LONGEST_LIST = 16  # numbers; a longer list that holds no counts is recorded as an array, with length and norm only
LONGEST_TEXT = 200  # characters
DEEPEST = 32

# Values read at a time: the norm of a million values in float64 takes torch several times as long at once as in such
# parts.
AT_A_TIME = 1 << 16
_WIDENED_BY_NORM = {torch.float16, torch.bfloat16, torch.float32, torch.complex64}  # while it reads, without a copy

_DXO_KEY = "DXO"
_ENCODED = {"kind", "data", "meta"}  # the keys of a DXO on the wire
_METRICS = "metrics"
_PARTS = {
    DataKind.WEIGHT_DIFF: "update",
    DataKind.WEIGHTS: "model",
    DataKind.METRICS: _METRICS,
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

    def free(self, path: str) -> str:
        """Return ``path``, or if something else has it, as of keys that are cut alike, ``path#2`` and so on."""
        number, found = 1, path
        while found in self.values or found in self.others:
            number += 1
            found = f"{path}#{number}"
        return found


class _Place(NamedTuple):
    """A place in an answer: a part, the path within it, and the number of levels around it."""

    part: str
    name: str = ""
    depth: int = 0

    @property
    def path(self) -> str:
        """The path in the answer."""
        return f"{self.part}/{self.name}" if self.name else self.part

    def deeper(self, key: str | None = None) -> "_Place":
        """Return the place of the item ``key``, one level down; without a key, of the same path."""
        name = self.name if key is None else f"{self.name}/{key}".lstrip("/")
        return _Place(self.part, name, self.depth + 1)


def contents_of(answer: Shareable, context: Mapping[str, Any]) -> Contents:
    """Return the contents that leave with ``answer``; ``context``: the public properties that FLARE sends with it."""
    found = Contents(kind="error" if answer.get_return_code(ReturnCode.OK) != ReturnCode.OK else "")
    _look(found, _Place("headers"), answer.get(ReservedHeaderKey.HEADERS) or {})
    _look_into_body(found, answer)
    _look(found, _Place("context"), context)
    return found


def _look_into_body(found: Contents, answer: Shareable) -> None:
    for key, value in answer.items():
        if key == _DXO_KEY:
            _look_into_main_dxo(found, answer, value)
        elif key != ReservedHeaderKey.HEADERS:
            _look(found, _Place("extra", str(key)), value)


def _look_into_main_dxo(found: Contents, answer: Shareable, encoded: Any) -> None:
    """Record the answer's DXO and whatever was added to its encoding; or the value, if it does not encode a DXO."""
    try:
        dxo = from_shareable(answer)
    except (ValueError, TypeError, KeyError, AttributeError):
        _look(found, _Place("extra", _DXO_KEY), encoded)
        return
    found.kind = _text(dxo.data_kind)
    _look_into_dxo(found, "", dxo, 0)
    for extra in encoded.keys() - _ENCODED:
        _look(found, _Place("extra", f"{_DXO_KEY}/{extra}"), encoded[extra])


def _look_into_dxo(found: Contents, name: str, dxo: DXO, depth: int) -> None:
    """Record a DXO: its data under its name or the part name of its kind, and its meta."""
    if depth < DEEPEST and _is_collection(dxo):
        _look_into_collection(found, name, dxo.data, depth)
    else:
        _look(found, _Place(_part_name(name, dxo.data_kind), depth=depth), dxo.data)
    _look(found, _Place(f"meta of {name}" if name else "meta", depth=depth), dxo.meta)


def _is_collection(dxo: DXO) -> bool:
    return dxo.data_kind == DataKind.COLLECTION and isinstance(dxo.data, Mapping)


def _look_into_collection(found: Contents, name: str, parts: Mapping[Any, Any], depth: int) -> None:
    for key, value in parts.items():
        own = "" if key == PART_MAIN and not name else f"{name}/{key}".lstrip("/")
        _look_into_part(found, own, value, depth + 1)


def _look_into_part(found: Contents, name: str, value: Any, depth: int) -> None:
    value = _decoded(value)
    if isinstance(value, DXO):
        _look_into_dxo(found, name, value, depth)
    else:
        _look(found, _Place("extra", name, depth), value)


def _decoded(value: Any) -> Any:
    """Return the DXO that ``value`` encodes on the wire; any other value as it is."""
    encoded = isinstance(value, dict) and value.keys() == _ENCODED and isinstance(value["meta"], dict | None)
    return DXO(value["kind"], data=value["data"], meta=value["meta"]) if encoded else value


def _part_name(name: str, kind: Any) -> str:
    if name == PART_TENSORS:
        return "method"
    return name or _PARTS.get(kind, _text(kind))


def _look(found: Contents, place: _Place, value: Any) -> None:
    """Record ``value``, found at ``place``, and everything in it."""
    value = _as_python(value)
    if isinstance(value, torch.Tensor | np.ndarray):
        found.tensors.append(_entry(place, value))
    elif isinstance(value, str):
        found.values[found.free(place.path)] = _text(value)
    elif isinstance(value, bool | int | float | None):
        found.values[found.free(place.path)] = value
    else:
        _look_inside(found, place, value)


def _as_python(value: Any) -> Any:
    """Return a single number or text of NumPy's as one of Python's; anything else as it is."""
    if isinstance(value, np.longdouble):
        return float(value)
    return value.item() if isinstance(value, np.generic) and not isinstance(value, np.void) else value


def _look_inside(found: Contents, place: _Place, value: Any) -> None:
    """Record everything in ``value``, or its type if it cannot be inspected."""
    if place.depth >= DEEPEST:
        found.others[found.free(place.path)] = f"{_type(value)}, too deep to look into"
        return
    for kind, look_inside in _INSIDES:
        if isinstance(value, kind):
            look_inside(found, place, value)
            return
    found.others[found.free(place.path)] = f"{_type(value)}{_size(value)}"


def _look_into_inner_dxo(found: Contents, place: _Place, dxo: DXO) -> None:
    _look_into_dxo(found, place.path, dxo, place.depth + 1)


def _look_into_model(found: Contents, place: _Place, model: FLModel) -> None:
    _look(found, place.deeper(), vars(model))


def _look_into_mapping(found: Contents, place: _Place, value: Mapping[Any, Any]) -> None:
    for key, item in value.items():
        _look(found, place.deeper(_text(key)), item)
    if not value and place.name:
        found.others[found.free(place.path)] = "empty"


def _look_into_sequence(found: Contents, place: _Place, value: Iterable[Any]) -> None:
    items = list(value)
    if _is_long_vector(place, items):
        found.tensors.append(_vector_entry(place, items))
        return
    for index, item in enumerate(items):
        _look(found, place.deeper(str(index)), item)
    if not items:
        found.others[found.free(place.path)] = "empty"


# The types of values that hold others, and how to look into them.
_INSIDES: tuple[tuple[Any, Callable[[Contents, _Place, Any], None]], ...] = (
    (DXO, _look_into_inner_dxo),
    (FLModel, _look_into_model),
    (Mapping, _look_into_mapping),
    (list | tuple | set | frozenset, _look_into_sequence),
)


def _is_long_vector(place: _Place, items: list[Any]) -> bool:
    """Return whether ``items`` are recorded as an array; counts in a metric, such as those of classes, are not."""
    longest = MOST_CLASSES if place.part == _METRICS and all(type(item) is int for item in items) else LONGEST_LIST
    return len(items) > longest and all(isinstance(item, int | float) for item in items)


def _vector_entry(place: _Place, items: list[float]) -> TensorEntry:
    norm = math.hypot(*(float(min(max(item, -1e300), 1e300)) for item in items))
    return TensorEntry(
        part=place.part, name=place.name, shape=(len(items),), dtype="list", bytes=8 * len(items), norm=norm
    )


def _entry(place: _Place, value: torch.Tensor | np.ndarray) -> TensorEntry:
    if isinstance(value, torch.Tensor):
        dtype, size = str(value.dtype).removeprefix("torch."), value.numel() * value.element_size()
    else:
        dtype, size = str(value.dtype), value.nbytes
    return TensorEntry(
        part=place.part, name=place.name, shape=tuple(value.shape), dtype=dtype, bytes=size, norm=_norm(value)
    )


def _norm(value: torch.Tensor | np.ndarray) -> float:
    """Return the L2 norm, computed in float64; NaN if it is undefined, as for an array of text."""
    try:
        return _tensor_norm(value) if isinstance(value, torch.Tensor) else _array_norm(value)
    except (RuntimeError, TypeError, ValueError, NotImplementedError):
        return math.nan


def _tensor_norm(value: torch.Tensor) -> float:
    wide = torch.complex128 if value.is_complex() else torch.float64
    dense = value.detach().to_dense() if value.layout != torch.strided else value.detach()
    if dense.dtype not in _WIDENED_BY_NORM:
        dense = dense.to(wide)
    parts = dense.cpu().reshape(-1).split(AT_A_TIME)
    return float(torch.linalg.vector_norm(torch.stack([torch.linalg.vector_norm(part, dtype=wide) for part in parts])))


def _array_norm(value: np.ndarray) -> float:
    if value.dtype.kind not in "fiubc":
        return math.nan
    wide = np.complex128 if value.dtype.kind == "c" else np.float64
    return float(np.linalg.norm(value.astype(wide).ravel()))


def _text(value: Any) -> str:
    text = str(value.value) if isinstance(value, DataKind) else str(value)
    return text if len(text) <= LONGEST_TEXT else f"{text[:LONGEST_TEXT]}... ({len(text)} characters)"


def _type(value: Any) -> str:
    return f"{type(value).__module__}.{type(value).__qualname__}"


def _size(value: Any) -> str:
    return f" of {len(value)} bytes" if isinstance(value, bytes | bytearray | memoryview) else ""
