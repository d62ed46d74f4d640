# SPDX-License-Identifier: Apache-2.0
"""Peak memory of FedOMG's server step, against a process that only holds the updates.

Each is a process of its own. Updates arrive one by one, and a message is dropped once it was accepted, as FLARE does.
"""

from cases.measure import Goal, Row, in_new_process, process_peak
from cases.rounds import Form, accept_all, arrivals, context_of, fedomg, network_state, state_bytes, vector_state

FORMS: tuple[Form, ...] = ("tensors", "arrays")


def rows(quick: bool = False) -> list[Row]:
    """Return the rows of 32 sites with ResNet-18, as tensors and as arrays; ``quick``: 2 with a small network."""
    sites = 2 if quick else 32
    return [_row(form, sites, quick) for form in FORMS]


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
