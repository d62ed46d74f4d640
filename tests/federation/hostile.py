# SPDX-License-Identifier: Apache-2.0
"""What a hostile site sends over the wire: numbers out of all proportion, reasons that forge a log, a false stop.

Malformed updates by the thousand are in ``tests/aggregators/test_malformed.py``.

The test copies this file into the kit of one site, whose operator owns what runs there.
"""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from nvflare.apis.filter import Filter
from nvflare.apis.fl_constant import FLContextKey, ReturnCode
from nvflare.apis.fl_context import FLContext
from nvflare.apis.shareable import ReservedHeaderKey, Shareable, make_reply

NAN = float("nan")
REPORT = "fdg_report"
REASON, STOP = "fdg_reason", "fdg_stop"
FORGED = "2026-01-01 00:00:00,000 - ServerRunner - INFO - forged: all is well"
ESCAPES = f"\x1b[2J\x1b[31m\r\n{FORGED}\u2028{FORGED}\x85{FORGED}\u202e\x00"

Way = Callable[[Shareable], Shareable]


class Hostile(Filter):
    """Answers task ``train`` with the next of ``WAYS``."""

    def __init__(self) -> None:
        super().__init__()
        self._count = 0

    def process(self, shareable: Shareable, fl_ctx: FLContext) -> Shareable:
        dxo = shareable.get("DXO")
        if fl_ctx.get_prop(FLContextKey.TASK_NAME) != "train" or not isinstance(dxo, dict):
            return shareable
        way = list(WAYS.values())[min(self._count, len(WAYS) - 1)]
        self._count += 1
        return way(shareable)


def data(change: Callable[[dict[str, Any]], Any]) -> Way:
    """Return a way that replaces the update by what ``change`` makes of it."""

    def spoil(shareable: Shareable) -> Shareable:
        shareable["DXO"]["data"] = change(shareable["DXO"]["data"])
        return shareable

    return spoil


def first(change: Callable[[torch.Tensor], Any]) -> Way:
    """Return a way that changes the first tensor of the update."""

    def spoil(update: dict[str, Any]) -> dict[str, Any]:
        name = next(iter(update))
        return {**update, name: change(update[name])}

    return data(spoil)


def floats(change: Callable[[torch.Tensor], Any]) -> Way:
    """Return a way that changes all tensors of the update but its counters."""
    return data(lambda of: {name: change(one) if one.is_floating_point() else one for name, one in of.items()})


def as_another(shareable: Shareable) -> Shareable:
    """Claim to be another site, with a number that is none."""
    shareable = first(lambda value: value * NAN)(shareable)
    shareable.set_header("contributor_name", "sketch")
    shareable.set_peer_props({ReservedHeaderKey.PEER_PROPS: "junk", "__identity_name__": "sketch"})
    return shareable


def a_million_epochs(shareable: Shareable) -> Shareable:
    shareable["DXO"]["meta"][REPORT]["epoch_losses"] = [0.5] * 1_000_000
    return shareable


def error(reason: Any, *, stop: bool = False) -> Way:
    return lambda shareable: make_reply(
        ReturnCode.EXECUTION_EXCEPTION, {REASON: reason, **({STOP: True} if stop else {})}
    )


# By the round in which each is sent, from 1. That of a site that is asked no more comes last.
WAYS: dict[str, Way] = {
    "nothing yet": lambda shareable: shareable,
    "NaN": first(lambda value: value * NAN),
    "as another": as_another,
    "no DXO": lambda shareable: Shareable({"DXO": [1, 2, 3]}),
    "a thousand times as long": floats(lambda value: value * 1000),
    "a million epochs": a_million_epochs,
    "a long reason": error(ESCAPES + "x" * 1_000_000),
    "the truth": lambda shareable: shareable,
    "a false stop": error(f"budget spent{ESCAPES}", stop=True),
}
HARMLESS = ("nothing yet", "the truth")


def policy() -> str:
    """Return the ``privacy.json`` of the hostile site."""
    filters = [{"path": f"{Path(__file__).stem}.Hostile", "args": {}}]
    return json.dumps({"scopes": [{"name": "hostile", "task_result_filters": filters}], "default_scope": "hostile"})
