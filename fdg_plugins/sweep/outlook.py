# SPDX-License-Identifier: Apache-2.0
"""Before a sweep runs: an estimate of its time, from its own finished runs, else from a few training steps."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from fdg_plugins.record.text import duration
from fdg_plugins.sweep.estimate import Forecast, rate_of_run
from fdg_plugins.sweep.kinds import kind_of
from fdg_plugins.sweep.machine import Machine
from fdg_plugins.sweep.measure import Measured, time_an_image
from fdg_plugins.sweep.plan import PlannedRun
from fdg_plugins.sweep.prepare import Prepared
from fdg_plugins.sweep.store import Store
from fdg_plugins.sweep.work import Kind


class Outlook(NamedTuple):
    """How many seconds the runs to do take in all, about, and the sentences that say what that is made of."""

    seconds: float
    basis: tuple[str, ...]


def make_forecast(prepared: Prepared, store: Store, rates: Mapping[Kind, float] | None = None) -> Forecast:
    """Return a forecast that has learned from the finished runs of the plan."""
    forecast = Forecast(prepared.plan, prepared.work, rates)
    for run in prepared.plan:
        if store.is_finished(run.name):
            forecast.learn(run.name, store.seconds(run.name))
    return forecast


def look_ahead(
    prepared: Prepared, store: Store, runs: Sequence[PlannedRun], machine: Machine, environment: Mapping[str, str]
) -> Outlook:
    """Return how long ``runs`` take on ``machine``; trains a few steps if nothing in the folder tells."""
    forecast = make_forecast(prepared, store)
    if forecast.learned_from or not runs:
        basis = [f"from the {forecast.learned_from} finished runs of this folder"] if runs else []
    else:
        rates, basis = _measure(prepared, runs, machine, environment)
        forecast = make_forecast(prepared, store, rates)
    seconds = forecast.remaining((), runs, min(machine.parallel, len(runs) or 1))
    return Outlook(seconds or 0.0, tuple(basis))


def _measure(
    prepared: Prepared, runs: Sequence[PlannedRun], machine: Machine, environment: Mapping[str, str]
) -> tuple[dict[Kind, float], list[str]]:
    """Return the seconds per image of each kind of run, and a sentence on each."""
    rates: dict[Kind, float] = {}
    alone: dict[Kind, Measured] = {}
    for run in runs:
        kind = prepared.work[run.name].kind
        one = kind._replace(processes=1)
        if one not in alone:
            alone[one] = time_an_image(prepared.protocols[run.name], environment)
        seconds, device = alone[one]
        rates[kind] = rate_of_run(seconds, machine, kind.processes, on_gpu=device != "cpu")
    basis = [
        f"from a few training steps of {kind.model} at {kind.image_size} px, batch {kind.batch_size}: "
        f"{1000 * seconds:.1f} ms per image at one site on {device}"
        for kind, (seconds, device) in alone.items()
    ]
    return rates, [*basis, *dict.fromkeys(kind_of(run.method).beside for run in runs)]


def sentence(outlook: Outlook, runs: int, parallel: int) -> str:
    """Return the estimate in one line."""
    each = f"; {duration(outlook.seconds * min(parallel, runs) / runs)} a run" if runs > 1 else ""
    return f"about {duration(outlook.seconds)} for {runs} run{'s' * (runs > 1)}, {parallel} at a time{each}"
