# SPDX-License-Identifier: Apache-2.0
"""How a server step grows with the sites U and the parameters P, of FedOMG and of FLARE's weighted mean.

Seconds, and the most bytes that a step takes beyond the global model, messages included: they arrive one by one, and
the server drops a message once it was accepted. The slopes are those of a line through ``(log size, log value)``: one
means proportional, two quadratic.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Literal, NamedTuple

import numpy as np
from nvflare.apis.fl_context import FLContext
from nvflare.app_common.abstract.aggregator import Aggregator

from cases.measure import Row, added_peak, in_new_process, interleave, lap
from cases.rounds import accept_all, arrivals, context_of, fedomg, flare_mean, vector_state

FEW_PARAMETERS = 100_000
SITES = (3, 4, 8, 16, 32, 100, 300, 1000)
MANY_SITES = 100  # a step of more takes seconds
FEW_SITES = 3
PARAMETERS = (100_000, 1_000_000, 10_000_000, 100_000_000)

Quantity = Literal["seconds", "bytes"]
Side = Literal["ours", "reference"]


class Cost(NamedTuple):
    """What one step of ``sites`` updates of a vector ``[parameters]`` takes: median seconds, and bytes."""

    sites: int
    parameters: int
    seconds: float
    reference_seconds: float
    bytes: float
    reference_bytes: float


class Growth(NamedTuple):
    """The costs of sizes that differ in one number: its field in :class:`Cost`, and how tables name it."""

    size: Literal["sites", "parameters"]
    symbol: str
    costs: Sequence[Cost]

    def values(self, quantity: Quantity, side: Side) -> dict[int, float]:
        """Return a quantity of one side by size."""
        field = quantity if side == "ours" else f"reference_{quantity}"
        return {getattr(cost, self.size): getattr(cost, field) for cost in self.costs}


def rows(quick: bool = False) -> list[Row]:
    """Return the rows of each size, and the fitted slopes; ``quick``: 3 and 4 sites, 1e5 and 1e6 parameters."""
    costs = measure(quick)
    return [
        *(row for cost in costs for row in _rows_of(cost)),
        *(row for one in growths(costs) for row in _slopes(one)),
    ]


def measure(quick: bool = False) -> list[Cost]:
    """Measure every size once."""
    counts, lengths = ((3, 4), (100_000, 1_000_000)) if quick else (SITES, PARAMETERS)
    sizes = dict.fromkeys(
        [*((sites, FEW_PARAMETERS) for sites in counts), *((FEW_SITES, length) for length in lengths)]
    )
    return [Cost(*size, *step_seconds(*size), *_bytes(*size, quick)) for size in sizes]


def growths(costs: Sequence[Cost]) -> tuple[Growth, Growth]:
    """Return the costs by the number of sites, and by that of parameters."""
    return (
        Growth("sites", "U", [cost for cost in costs if cost.parameters == FEW_PARAMETERS]),
        Growth("parameters", "P", [cost for cost in costs if cost.sites == FEW_SITES]),
    )


def slope(values: Mapping[int, float]) -> float:
    """Return the exponent ``a`` of the fit ``value = c size^a``."""
    return float(fit(values)[0])


def fit(values: Mapping[int, float]) -> tuple[float, float]:
    """Return ``a`` and ``log c`` of the fit ``value = c size^a``, by least squares of the logarithms."""
    exponent, constant = np.polyfit(np.log(list(values)), np.log(list(values.values())), 1)
    return float(exponent), float(constant)


def step_seconds(sites: int, parameters: int) -> tuple[float, float]:
    """Return the median seconds of a step, of ours and of the reference, which take turns on the same messages."""
    state = vector_state(parameters)
    context, messages = context_of(state), list(arrivals(state, sites))
    ours, reference = (_aggregator(side, context, sites) for side in ("ours", "reference"))

    def step(aggregator: Aggregator) -> Callable[[], None]:
        def take() -> None:
            accept_all(aggregator, messages, context)
            aggregator.aggregate(context)

        return take

    repetitions = 3 if sites > MANY_SITES else 7
    tasks = [lambda: lap("ours", step(ours)), lambda: lap("reference", step(reference))]
    seconds = interleave(tasks, repetitions)
    return seconds["ours"], seconds["reference"]


def step_bytes(side: Side, sites: int, parameters: int) -> int:
    """Return the most bytes that a step takes beyond the global model; meant for a process of its own."""
    _one_step(side, FEW_SITES, 1_000)()  # libraries, and what they set up once
    return added_peak(_one_step(side, sites, parameters))


def _bytes(sites: int, parameters: int, quick: bool) -> tuple[int, int]:
    if quick:  # in this process, where a step may use freed memory again and add nothing; a slope has no zeros
        return max(1, step_bytes("ours", sites, parameters)), max(1, step_bytes("reference", sites, parameters))
    ours, reference = (in_new_process(step_bytes, side, sites, parameters) for side in ("ours", "reference"))
    return ours, reference


def _one_step(side: Side, sites: int, parameters: int) -> Callable[[], None]:
    state = vector_state(parameters)
    context = context_of(state)
    aggregator = _aggregator(side, context, sites)

    def take() -> None:
        accept_all(aggregator, arrivals(state, sites), context)
        aggregator.aggregate(context)

    return take


def _aggregator(side: Side, context: FLContext, sites: int) -> Aggregator:
    return fedomg() if side == "ours" else flare_mean(context, sites)


def _rows_of(cost: Cost) -> list[Row]:
    what = f"U={cost.sites}, P={cost.parameters:.0e}: FedOMG / FLARE's weighted mean"
    return [
        Row(f"server step, {what}", cost.seconds, cost.reference_seconds),
        Row(f"its memory, {what}", cost.bytes, cost.reference_bytes, unit="B"),
    ]


def _slopes(growth: Growth) -> list[Row]:
    sizes = [getattr(cost, growth.size) for cost in growth.costs]
    span = f"in {growth.symbol}, {sizes[0]:g} to {sizes[-1]:g} {growth.size}: FedOMG / FLARE's weighted mean"
    return [
        Row(
            f"slope of {quantity} {span}",
            slope(growth.values(quantity, "ours")),
            slope(growth.values(quantity, "reference")),
            unit="exponent",
        )
        for quantity in ("seconds", "bytes")
    ]
