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
    tensors: Any = None
    round_number: Any = None


def read_message(shareable: Shareable) -> Packed | None:
    """Return a message's content; None for an error reply or any other content, which filters leave unchanged."""
    if shareable.get_return_code(ReturnCode.OK) != ReturnCode.OK:
        return None
    try:
        message = Packed(from_shareable(shareable))
        if message.main.data_kind == DataKind.COLLECTION:
            parts = (message.main.data[name] for name in (PART_MAIN, PART_TENSORS))
            main, beside = (one if isinstance(one, DXO) else from_dict(one) for one in parts)
            message = Packed(main, beside.data, beside.get_meta_prop(META_ROUND))
    except NO_DXO:
        return None
    main = message.main
    is_sound = main.data_kind in MAIN_KINDS and isinstance(main.meta, dict) and not main.validate()
    return message if is_sound else None


def read_update(shareable: Shareable) -> Packed | None:
    """Return a message's content as :func:`read_message` does; None unless it is an update."""
    message = read_message(shareable)
    return message if message is not None and message.main.data_kind == DataKind.WEIGHT_DIFF else None


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


def with_meta(main: DXO, changes: Mapping[str, Any], *dropped: str) -> DXO:
    """Return a copy of ``main`` with ``changes`` to its meta, without the entries ``dropped``, and the same data.

    A filter must not modify its input, which several messages may share.
    """
    kept = {name: value for name, value in main.meta.items() if name not in dropped}
    return DXO(main.data_kind, data=main.data, meta={**kept, **changes})
