# SPDX-License-Identifier: Apache-2.0
"""FedOMG's server step against FLARE's weighted mean on the same messages, and its end against two passes of sums."""

from collections.abc import Sequence

import torch
from nvflare.apis.fl_context import FLContext
from nvflare.apis.shareable import Shareable

from cases.measure import Goal, Laps, Row, interleave, lap
from cases.rounds import Form, accept_all, arrivals, context_of, fedomg, flare_mean, network_state, step_of
from fdg_plugins.methods.fedomg import FedOMGAggregator

WHOLE, END, MEAN, PASSES = "whole step", "after the last arrival", "FLARE's mean", "two passes"
FORMS: tuple[Form, ...] = ("tensors", "arrays")


def rows(quick: bool = False) -> list[Row]:
    """Return the rows of 32 sites with ResNet-18, as tensors and as arrays; ``quick``: 4 with a small network."""
    sites, repetitions = (4, 1) if quick else (32, 5)
    return [row for form in FORMS for row in _rows_of(form, sites, repetitions, quick)]


def _rows_of(form: Form, sites: int, repetitions: int, quick: bool) -> list[Row]:
    state = network_state(quick)
    context = context_of(state, form)
    messages = list(arrivals(state, sites, form))
    ours, reference = fedomg(), flare_mean(context, sites)

    def average() -> None:
        accept_all(reference, messages, context)
        reference.aggregate(context)

    seconds = interleave(
        [
            lambda: step_laps(ours, messages, context),
            lambda: lap(MEAN, average),
            lambda: lap(PASSES, lambda: two_passes(messages)),
        ],
        repetitions,
    )
    what = f"{sites} sites, {'small network' if quick else 'ResNet-18'}, {form}"
    goal = Goal("ratio", 1.5, "ratio ≤ 1.5")
    return [
        Row(f"server step, {what}: FedOMG / FLARE's weighted mean", seconds[WHOLE], seconds[MEAN], goal=goal),
        Row(f"after the last arrival, {what}: FedOMG / two passes of sums", seconds[END], seconds[PASSES], goal=goal),
    ]


def step_laps(aggregator: FedOMGAggregator, messages: Sequence[Shareable], context: FLContext) -> Laps:
    """Return the seconds of a whole step and those after its last arrival."""
    accepting = lap("", lambda: accept_all(aggregator, list(messages), context))[""]
    end = lap("", lambda: aggregator.aggregate(context))[""]
    return {WHOLE: accepting + end, END: end}


def two_passes(messages: Sequence[Shareable]) -> dict[str, torch.Tensor]:
    """Read every update twice, as a weighted sum of float32 each time, and return the second sum."""
    updates = [{name: torch.as_tensor(value) for name, value in step_of(message).items()} for message in messages]
    total: dict[str, torch.Tensor] = {}
    for _ in range(2):
        total = {name: torch.zeros_like(value, dtype=torch.float32) for name, value in updates[0].items()}
        for update in updates:
            for name, value in update.items():
                total[name].add_(value, alpha=1 / len(updates))
    return total
