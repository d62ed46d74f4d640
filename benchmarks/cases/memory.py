# SPDX-License-Identifier: Apache-2.0
"""Peak memory of FedOMG's server step, against a process that only holds the updates, or one model with disk offload.

Each is a process of its own. Updates arrive one by one, and a message is dropped once it was accepted, as FLARE does.
With disk offload another process has written them before, as FLARE does while they arrive, and the step is taken.
"""

import tempfile
from pathlib import Path

from cases.measure import Goal, Row, added_peak, in_new_process, process_peak
from cases.rounds import (
    Form,
    accept_all,
    arrivals,
    arrivals_in_files,
    context_of,
    fedomg,
    network_state,
    state_bytes,
    step_of,
    vector_state,
    write_arrivals,
)
from fdg_plugins.core.layout import ModelLayout
from fdg_plugins.training.global_model import GlobalModel

MODELS = 4  # that a step may need with disk offload, whatever the number of sites
FORMS: tuple[Form, ...] = ("tensors", "arrays")


def rows(quick: bool = False) -> list[Row]:
    """Return the rows of 32 sites with ResNet-18, as tensors and as arrays, and of 4 and 32 with disk offload.

    ``quick``: 2 sites with a small network, as tensors and with disk offload.
    """
    sites = 2 if quick else 32
    in_memory = [_row(form, sites, quick) for form in (FORMS[:1] if quick else FORMS)]
    return [*in_memory, *(_row_with_offload(count, quick) for count in ((2,) if quick else (4, 32)))]


def _row(form: Form, sites: int, quick: bool) -> Row:
    model = state_bytes(network_state(quick))
    updates = sites * model
    extra = in_new_process(peak_of_step, form, sites, quick) - in_new_process(peak_of_holding, form, sites, quick)
    return Row(
        f"memory of a server step, {sites} sites, {'small network' if quick else 'ResNet-18'}, {form}: "
        "updates + what FedOMG adds / updates",
        updates + max(0, extra),
        updates,
        unit="B",
        goal=Goal("ours", 1.1 * updates + model, "ours ≤ 1.1 updates + 1 model"),
    )


def _row_with_offload(sites: int, quick: bool) -> Row:
    model = state_bytes(network_state(quick))
    with tempfile.TemporaryDirectory() as folder:
        in_new_process(write_updates, folder, sites, quick)
        peak = in_new_process(peak_of_step_with_offload, folder, quick)
    return Row(
        f"memory of a server step with disk offload, {sites} sites, {'small network' if quick else 'ResNet-18'}: "
        "what FedOMG needs beyond the model / one model",
        peak,
        model,
        unit="B",
        goal=Goal("ours", MODELS * model, f"ours ≤ {MODELS} models"),
    )


def write_updates(folder: str, sites: int, quick: bool) -> None:
    """Write the updates of a round to files."""
    write_arrivals(Path(folder), network_state(quick), sites)


def peak_of_step_with_offload(folder: str, quick: bool) -> int:
    """Return what a process needs beyond the global model to check the updates, make the step and move the model."""
    _warm_up()
    state = network_state(quick)
    context, aggregator = context_of(state), fedomg()
    model = GlobalModel(state, {name: entry.kind for name, entry in ModelLayout.of(state).items()})

    def step() -> None:
        accept_all(aggregator, arrivals_in_files(Path(folder), state), context)
        model.apply(step_of(aggregator.aggregate(context)))

    return added_peak(step)


def peak_of_step(form: Form, sites: int, quick: bool) -> int:
    """Return the peak memory of a process that takes a round of updates as they arrive and makes the step."""
    _warm_up()
    state = network_state(quick)
    context, aggregator = context_of(state, form), fedomg()
    accept_all(aggregator, arrivals(state, sites, form), context)
    aggregator.aggregate(context)
    return process_peak()


def peak_of_holding(form: Form, sites: int, quick: bool) -> int:
    """Return the peak memory of a process that only holds the same updates."""
    _warm_up()
    state = network_state(quick)
    held = [context_of(state, form), *arrivals(state, sites, form)]
    peak = process_peak()
    del held
    return peak


def _warm_up() -> None:
    """Take a step of a tiny model, so that the solver's libraries are loaded in both processes."""
    state = vector_state(8)
    context, aggregator = context_of(state), fedomg()
    accept_all(aggregator, arrivals(state, 3), context)
    aggregator.aggregate(context)
