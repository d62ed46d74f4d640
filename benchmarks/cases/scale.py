# SPDX-License-Identifier: Apache-2.0
"""How a server step grows with the sites U and the parameters P, of FedOMG and of FLARE's weighted mean.

The slopes are those of a line through ``(log size, log seconds)``: one means proportional, two quadratic.
"""

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from cases.measure import Row, interleave, lap
from cases.rounds import accept_all, arrivals, context_of, fedomg, flare_mean, vector_state

FEW_PARAMETERS = 100_000
SITES = (3, 4, 8, 16, 32, 100, 300, 1000)
MANY_SITES = 100  # a step of more takes long: once, without a warm-up
FIXED_SITES = 8
PARAMETERS = (100_000, 1_000_000, 10_000_000)


class Seconds(NamedTuple):
    """Seconds of one step."""

    ours: float
    reference: float


def rows(quick: bool = False) -> list[Row]:
    """Return a row for each size, and the fitted slopes; ``quick``: 3 to 8 sites, 1e3 and 1e4 parameters."""
    few, site_counts = (1_000, (3, 4, 8)) if quick else (FEW_PARAMETERS, SITES)
    fixed, lengths = (3, (1_000, 10_000)) if quick else (FIXED_SITES, PARAMETERS)
    sizes = dict.fromkeys([*((sites, few) for sites in site_counts), *((fixed, length) for length in lengths)])
    measured = {size: step_seconds(*size) for size in sizes}
    by_sites = {sites: measured[sites, few] for sites in site_counts}
    by_parameters = {length: measured[fixed, length] for length in lengths}
    return [
        *(_row(*size, seconds) for size, seconds in measured.items()),
        _slope_row(f"slope in U, {site_counts[0]} to {site_counts[-1]} sites", by_sites),
        _slope_row(f"slope in P, {lengths[0]:.0e} to {lengths[-1]:.0e} parameters", by_parameters),
    ]


def step_seconds(sites: int, parameters: int) -> Seconds:
    """Return the median seconds of a step of ``sites`` updates of one vector ``[parameters]``."""
    state = vector_state(parameters)
    context, messages = context_of(state), list(arrivals(state, sites))
    ours, reference = fedomg(), flare_mean(context, sites)

    def step() -> None:
        accept_all(ours, messages, context)
        ours.aggregate(context)

    def average() -> None:
        accept_all(reference, messages, context)
        reference.aggregate(context)

    repetitions, warm_ups = (1, 0) if sites > MANY_SITES else (5, 1)
    seconds = interleave([lambda: lap("ours", step), lambda: lap("reference", average)], repetitions, warm_ups)
    return Seconds(seconds["ours"], seconds["reference"])


def slope(seconds: Mapping[int, float]) -> float:
    """Return the exponent ``a`` of the fit ``seconds = c size^a``."""
    sizes, values = np.log(list(seconds)), np.log(list(seconds.values()))
    return float(np.polyfit(sizes, values, 1)[0])


def _row(sites: int, parameters: int, seconds: Seconds) -> Row:
    return Row(f"server step, U={sites}, P={parameters:.0e}: FedOMG / FLARE's weighted mean", *seconds)


def _slope_row(what: str, seconds: Mapping[int, Seconds]) -> Row:
    ours = slope({size: value.ours for size, value in seconds.items()})
    reference = slope({size: value.reference for size, value in seconds.items()})
    return Row(f"{what}: FedOMG / FLARE's weighted mean", ours, reference, unit="exponent")
