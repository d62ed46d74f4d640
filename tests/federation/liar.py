# SPDX-License-Identifier: Apache-2.0
"""What a site does that lies within the form: numbers out of all proportion, reasons that forge a log, a false stop.

The test copies this file into the kit of one site, whose operator owns what runs there.
"""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from nvflare.apis.dxo import DXO, DataKind
from nvflare.apis.dxo_filter import DXOFilter
from nvflare.apis.fl_constant import FLContextKey, ReturnCode
from nvflare.apis.fl_context import FLContext
from nvflare.apis.shareable import Shareable, make_reply

SAMPLES = "NUM_STEPS_CURRENT_ROUND"
REPORT = "fdg_report"
REASON, STOP = "fdg_reason", "fdg_stop"
FORGED = "2026-01-01 00:00:00,000 - ServerRunner - INFO - forged: all is well"
ESCAPES = f"\x1b[2J\x1b[31m\r\n{FORGED}\u2028{FORGED}\x85{FORGED}\u202e\x00"

Lie = Callable[[Shareable], Shareable]


class Liar(DXOFilter):
    """Answers task ``train`` with the next of ``LIES``."""

    def __init__(self) -> None:
        super().__init__(supported_data_kinds=None, data_kinds_to_filter=None)
        self._count = 0

    def process(self, shareable: Shareable, fl_ctx: FLContext) -> Shareable:
        """Return what is sent instead."""
        dxo = shareable.get("DXO")
        if not isinstance(dxo, dict):
            return shareable
        if fl_ctx.get_prop(FLContextKey.TASK_NAME) != "train" or dxo.get("kind") != DataKind.WEIGHT_DIFF:
            return shareable
        lie = list(LIES.values())[min(self._count, len(LIES) - 1)]
        self._count += 1
        return lie(shareable)

    def process_dxo(self, dxo: DXO, shareable: Shareable, fl_ctx: FLContext) -> DXO:
        """Not reached: ``process`` does it all."""
        return dxo


def _update(change: Callable[[torch.Tensor], torch.Tensor], *, first_only: bool) -> Lie:
    def lie(shareable: Shareable) -> Shareable:
        update = shareable["DXO"]["data"]
        names = [name for name, value in update.items() if value.is_floating_point()]
        for name in names[:1] if first_only else names:
            update[name] = change(update[name].clone())
        return shareable

    return lie


def _one_value(value: torch.Tensor) -> torch.Tensor:
    value.view(-1)[0] = 3e38
    return value


def _reported(**fields: Any) -> Lie:
    def lie(shareable: Shareable) -> Shareable:
        shareable["DXO"]["meta"][REPORT].update(fields)
        return shareable

    return lie


def _samples(shareable: Shareable) -> Shareable:
    shareable["DXO"]["meta"][SAMPLES] += 1
    return shareable


def _error(reason: Any, **headers: Any) -> Lie:
    return lambda shareable: make_reply(ReturnCode.EXECUTION_EXCEPTION, {REASON: reason, **headers})


# By the round in which each is told, from 1. Those of a site that is asked no more come last.
LIES: dict[str, Lie] = {
    "nothing yet": lambda shareable: shareable,
    "one value of 3e38": _update(_one_value, first_only=True),
    "a thousand times as long": _update(lambda value: value * 1000, first_only=False),
    "another number of samples": _samples,
    "a million effective steps": _reported(effective_steps=1e6),
    "1e300 effective steps": _reported(effective_steps=1e300),
    "a million epochs": _reported(epoch_losses=[0.5] * 1_000_000),
    "a long reason": _error(ESCAPES + "x" * 1_000_000),
    "a reason that is not text": _error({"deep": [ESCAPES] * 1000}),
    "no reason": _error(None),
    "the truth": lambda shareable: shareable,
    "a false stop": _error(f"budget spent{ESCAPES}", **{STOP: True}),
}


def policy() -> str:
    """Return the ``privacy.json`` of the site that lies."""
    filters = [{"path": f"{Path(__file__).stem}.Liar", "args": {}}]
    return json.dumps({"scopes": [{"name": "lies", "task_result_filters": filters}], "default_scope": "lies"})
