# SPDX-License-Identifier: Apache-2.0
"""How tensors of a method travel beside a model or an update: as a collection, which privacy filters can see into.

FLARE's own filters look into the parts of a COLLECTION, and not into meta or headers.
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
MAIN_KINDS = (DataKind.WEIGHTS, DataKind.WEIGHT_DIFF, DataKind.METRICS)


class Packed(NamedTuple):
    """What a message holds: the model, update or metrics; the tensors beside it (None: none came) and their round."""

    main: DXO
    tensors: Any
    round_number: Any


def read_message(shareable: Shareable) -> Packed | None:
    """Return what is in a message; None for an error reply or anything else, which is not a filter's to judge."""
    if shareable.get_return_code(ReturnCode.OK) != ReturnCode.OK:
        return None
    try:
        dxo = from_shareable(shareable)
        if dxo.data_kind != DataKind.COLLECTION:
            packed = Packed(dxo, None, None)
        else:
            main, beside = _part(dxo.data[PART_MAIN]), _part(dxo.data[PART_TENSORS])
            packed = Packed(main, beside.data, beside.get_meta_prop(META_ROUND))
    except (ValueError, TypeError, KeyError, AttributeError):
        return None
    sound = packed.main.data_kind in MAIN_KINDS and isinstance(packed.main.meta, dict) and not packed.main.validate()
    return packed if sound else None


def pack(main: DXO, tensors: Mapping[str, torch.Tensor], round_number: int, shareable: Shareable) -> Shareable:
    """Return ``shareable`` with ``main`` and the tensors as its content; its headers stay."""
    # One tensor that is not contiguous, and FLARE's receiver asks for the message for ever.
    plain = {name: value.detach().cpu().contiguous() for name, value in tensors.items()}
    beside = DXO(DataKind.WEIGHTS, data=plain, meta={META_ROUND: round_number})
    return DXO(DataKind.COLLECTION, data={PART_MAIN: main, PART_TENSORS: beside}).update_shareable(shareable)


def with_main(main: DXO, shareable: Shareable) -> Shareable:
    """Return ``shareable`` with another model, update or metrics; what travels beside it stays, whatever it is."""
    dxo = from_shareable(shareable)
    if dxo.data_kind == DataKind.COLLECTION:
        main = DXO(DataKind.COLLECTION, data={**dxo.data, PART_MAIN: main}, meta=dxo.meta)
    return main.update_shareable(shareable)


def with_meta(main: DXO, changes: Mapping[str, Any]) -> DXO:
    """Return ``main`` with other meta and the same data: what a filter is given may be shared by several messages."""
    return DXO(main.data_kind, data=main.data, meta={**(main.meta or {}), **changes})


def without_meta(main: DXO, key: str) -> DXO:
    """Return ``main`` without one entry of its meta."""
    return DXO(main.data_kind, data=main.data, meta={name: value for name, value in main.meta.items() if name != key})


def _part(value: Any) -> DXO:
    return value if isinstance(value, DXO) else from_dict(value)
