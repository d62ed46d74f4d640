# SPDX-License-Identifier: Apache-2.0
"""Packs a method's tensors together with a model or an update, as a DXO collection that privacy filters can inspect.

FLARE's own filters inspect the parts of a COLLECTION, but not meta or headers.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

import torch
from nvflare.apis.dxo import DXO, DataKind, from_dict, from_shareable
from nvflare.apis.fl_constant import ReturnCode
from nvflare.apis.shareable import Shareable

PART_MAIN = "main"
PART_TENSORS = "fdg_tensors"
META_ROUND = "fdg_round"
NO_DXO = (ValueError, TypeError, KeyError, AttributeError)  # what FLARE raises for content that is no DXO
MAIN_KINDS = (DataKind.WEIGHTS, DataKind.WEIGHT_DIFF, DataKind.METRICS)


class Packed(NamedTuple):
    """A message's content: ``main`` (model, update or metrics), the tensors sent with it (or None), and their round."""

    main: DXO
    tensors: Any
    round_number: Any


def read_message(shareable: Shareable) -> Packed | None:
    """Return a message's content; None for an error reply or any other content, which filters leave unchanged."""
    dxo = read_dxo(shareable)
    if dxo is None:
        return None
    try:
        packed = _unpack(dxo)
    except NO_DXO:
        return None
    return packed if _is_sound(packed.main) else None


def read_dxo(shareable: Shareable) -> DXO | None:
    """Return the DXO in a message; None for an error reply or any other content."""
    if shareable.get_return_code(ReturnCode.OK) != ReturnCode.OK:
        return None
    try:
        return from_shareable(shareable)
    except NO_DXO:
        return None


def _unpack(dxo: DXO) -> Packed:
    if dxo.data_kind != DataKind.COLLECTION:
        return Packed(dxo, None, None)
    main, beside = _part(dxo.data[PART_MAIN]), _part(dxo.data[PART_TENSORS])
    return Packed(main, beside.data, beside.get_meta_prop(META_ROUND))


def _is_sound(main: DXO) -> bool:
    return main.data_kind in MAIN_KINDS and isinstance(main.meta, dict) and not main.validate()


def pack(main: DXO, tensors: Mapping[str, torch.Tensor], round_number: int, shareable: Shareable) -> Shareable:
    """Return ``shareable`` with ``main`` and the tensors as its content; its headers are kept."""
    # A non-contiguous tensor would make FLARE's receiver request the message forever.
    plain = {name: value.detach().cpu().contiguous() for name, value in tensors.items()}
    beside = DXO(DataKind.WEIGHTS, data=plain, meta={META_ROUND: round_number})
    return DXO(DataKind.COLLECTION, data={PART_MAIN: main, PART_TENSORS: beside}).update_shareable(shareable)


def with_main(main: DXO, shareable: Shareable) -> Shareable:
    """Return ``shareable`` with ``main`` as its model, update or metrics; other parts of a collection are kept."""
    dxo = from_shareable(shareable)
    if dxo.data_kind == DataKind.COLLECTION:
        main = DXO(DataKind.COLLECTION, data={**dxo.data, PART_MAIN: main}, meta=dxo.meta)
    return main.update_shareable(shareable)


def with_meta(main: DXO, changes: Mapping[str, Any]) -> DXO:
    """Return a copy of ``main`` with ``changes`` to its meta and the same data.

    A filter must not modify its input, which several messages may share.
    """
    return DXO(main.data_kind, data=main.data, meta={**(main.meta or {}), **changes})


def without_meta(main: DXO, key: str) -> DXO:
    """Return a copy of ``main`` without the meta entry ``key``."""
    return DXO(main.data_kind, data=main.data, meta={name: value for name, value in main.meta.items() if name != key})


def _part(value: Any) -> DXO:
    return value if isinstance(value, DXO) else from_dict(value)
