# SPDX-License-Identifier: Apache-2.0
"""What the guard against ruinous updates adds to FedOMG's server step in an honest round."""

from collections.abc import Sequence
from pathlib import Path

import torch
from nvflare.apis.fl_context import FLContext
from nvflare.apis.shareable import Shareable

from cases.measure import Goal, Row, interleave, lap
from cases.rounds import accept_all, arrivals, context_of, fedomg, network_state, step_of
from fdg_plugins.aggregators import UpdateAggregator
from fdg_plugins.controllers.guard import Guard
from fdg_plugins.controllers.reception import Expected, expectations
from fdg_plugins.controllers.run_files import ServerRun
from fdg_plugins.core.layout import ModelLayout
from fdg_plugins.messages import CensusReply
from fdg_plugins.models import InitialWeights
from fdg_plugins.record.round_record import Method
from fdg_plugins.record.run_record import RunRecord
from fdg_plugins.settings.protocol import Protocol
from fdg_plugins.training.global_model import GlobalModel

GUARDED, PLAIN = "with the guard", "without"


def rows(quick: bool = False) -> list[Row]:
    """Return the row of 32 sites with ResNet-18; ``quick``: 4 with a small network."""
    sites, repetitions = (4, 1) if quick else (32, 5)
    state = network_state(quick)
    context, messages = context_of(state), list(arrivals(state, sites))
    kinds = {name: str(entry.kind) for name, entry in ModelLayout.of(state).items()}
    record, aggregator = _record(sites), fedomg()
    guard = Guard(ServerRun(record, GlobalModel(state, kinds), aggregator, None, Path(), Path()))
    expected = expectations(record.protocol, record.census, 0)
    seconds = interleave(
        [
            lambda: lap(GUARDED, lambda: guarded_step(guard, aggregator, expected, messages, context)),
            lambda: lap(PLAIN, lambda: plain_step(aggregator, messages, context)),
        ],
        repetitions,
    )
    what = f"{sites} sites, {'small network' if quick else 'ResNet-18'}"
    goal = Goal("ratio", 1.05, "ratio ≤ 1.05")
    return [Row(f"guard, {what}: FedOMG's step with it / without", seconds[GUARDED], seconds[PLAIN], goal=goal)]


def plain_step(
    aggregator: UpdateAggregator, messages: Sequence[Shareable], context: FLContext
) -> dict[str, torch.Tensor]:
    """Return the step of a round."""
    accept_all(aggregator, messages, context)
    return step_of(aggregator.aggregate(context))


def guarded_step(
    guard: Guard,
    aggregator: UpdateAggregator,
    expected: dict[str, Expected],
    messages: Sequence[Shareable],
    context: FLContext,
) -> dict[str, torch.Tensor]:
    """Return the step of a round that passes the guard; a refusal would make the measurement one of nothing."""
    accept_all(aggregator, messages, context)
    if refused := guard.updates(expected):
        raise RuntimeError(f"The guard refused {refused}, expected it to let all pass.")
    longest = max(one.length for one in aggregator.contributions.values())
    step = step_of(aggregator.aggregate(context))
    guard.step(step, longest)
    return step


def _record(sites: int) -> RunRecord:
    """Return the record of a run before its first round."""
    reply = CensusReply(
        domain="photo",
        dataset="pacs",
        stand_in=False,
        classes=("dog", "elephant"),
        class_counts=(500, 500),
        num_train=900,
        num_validation=100,
        num_test=1000,
        split="90-10",
        split_hash="0",
        device="cpu",
        versions={},
    )
    names = tuple(f"site-{site + 1:04}" for site in range(sites))
    return RunRecord(
        stand_in=False,
        data="PACS",
        started="2030-01-01T00:00:00+00:00",
        protocol=Protocol(),
        method=Method(aggregator="FedOMGAggregator", settings={}),
        initial_weights=InitialWeights(label="from scratch"),
        versions={},
        classes=("dog", "elephant"),
        sources=names,
        held_out=(),
        census=dict.fromkeys(names, reply),
    )
