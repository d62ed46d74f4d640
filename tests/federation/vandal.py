# SPDX-License-Identifier: Apache-2.0
"""What a hostile site does: a filter of its own that spoils every update, each time in another way.

The test copies this file into the kit of one site, whose operator owns what runs there.
"""

from collections.abc import Callable
from typing import Any

import torch
from nvflare.apis.dxo import DXO, DataKind
from nvflare.apis.dxo_filter import DXOFilter
from nvflare.apis.fl_constant import ReturnCode
from nvflare.apis.fl_context import FLContext
from nvflare.apis.shareable import ReservedHeaderKey, Shareable, make_reply

NAN, INFINITY = float("nan"), float("inf")
SAMPLES = "NUM_STEPS_CURRENT_ROUND"
ROUND = "current_round"


class Vandal(DXOFilter):
    """Spoils the answer to task ``train`` in the way that is next; other answers pass."""

    def __init__(self) -> None:
        super().__init__(supported_data_kinds=None, data_kinds_to_filter=None)
        self._count = 0

    def process(self, shareable: Shareable, fl_ctx: FLContext) -> Shareable:
        """Return what is sent instead."""
        dxo = shareable.get("DXO")
        if not isinstance(dxo, dict) or dxo.get("kind") != DataKind.WEIGHT_DIFF:
            return shareable
        spoil = WAYS[self._count % len(WAYS)]
        self._count += 1
        return spoil(shareable)

    def process_dxo(self, dxo: DXO, shareable: Shareable, fl_ctx: FLContext) -> DXO:
        """Not reached: ``process`` does it all."""
        return dxo


Way = Callable[[Shareable], Shareable]


def data(change: Callable[[dict[str, Any]], Any]) -> Way:
    """Return a way that replaces the update by what ``change`` makes of it."""

    def spoil(shareable: Shareable) -> Shareable:
        shareable["DXO"]["data"] = change(shareable["DXO"]["data"])
        return shareable

    return spoil


def part(key: str, value: Any) -> Way:
    """Return a way that sets a part of the answer beside the update."""

    def spoil(shareable: Shareable) -> Shareable:
        shareable["DXO"][key] = value
        return shareable

    return spoil


def samples(value: Any) -> Way:
    """Return a way that lies about the number of samples."""

    def spoil(shareable: Shareable) -> Shareable:
        shareable["DXO"]["meta"][SAMPLES] = value
        return shareable

    return spoil


def first(change: Callable[[torch.Tensor], Any]) -> Way:
    """Return a way that changes the first tensor of the update."""

    def spoil_data(update: dict[str, Any]) -> dict[str, Any]:
        name = next(iter(update))
        return {**update, name: change(update[name])}

    return data(spoil_data)


def forged(shareable: Shareable) -> Shareable:
    """Claim to be another site, with a number that is none."""
    shareable = first(lambda value: value * NAN)(shareable)
    shareable.set_header("contributor_name", "sketch")
    shareable.set_peer_props({ReservedHeaderKey.PEER_PROPS: "junk", "__identity_name__": "sketch"})
    return shareable


WAYS: tuple[Way, ...] = (
    first(lambda value: value * NAN),
    first(lambda value: value + INFINITY),
    first(lambda value: value.double() + 1e300),
    first(lambda value: value[:1].clone()),
    first(lambda value: value.unsqueeze(0).contiguous()),
    first(lambda value: value.to(torch.int64)),
    first(lambda value: value.to(torch.complex64)),
    first(lambda value: value.tolist()),
    first(lambda value: "weights"),
    first(lambda value: {"deep": {"deeper": [value]}}),
    first(lambda value: None),
    data(lambda update: dict(list(update.items())[1:])),
    data(lambda update: {**update, "more": torch.zeros(3)}),
    data(lambda update: {name.upper(): value for name, value in update.items()}),
    data(lambda update: {}),
    data(lambda update: list(update.values())),
    data(lambda update: "nothing"),
    part("kind", DataKind.WEIGHTS),
    part("kind", "nonsense"),
    part("meta", "nonsense"),
    samples(-5),
    samples(0),
    samples(NAN),
    samples("many"),
    samples(2**80),
    forged,
    lambda shareable: Shareable(),
    lambda shareable: Shareable({"DXO": [1, 2, 3]}),
    lambda shareable: make_reply(ReturnCode.EXECUTION_EXCEPTION),
    lambda shareable: make_reply(ReturnCode.TASK_ABORTED),
)
