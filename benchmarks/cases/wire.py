# SPDX-License-Identifier: Apache-2.0
"""A network's state down and its update up, nothing else: two sites that echo, and a server that waits for both.

Ours sends tensors in chunks of 16 MiB, as recipes export it, in float32 or with updates rounded to bfloat16; the
reference sends float32 numpy arrays in FLARE's own chunks. Both sides ask for tasks and look for answers equally often.
"""

import re
import statistics
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from echo_parts import state_of

from cases.flare import Run, federation, simulate, with_custom, without_custom, write_job
from cases.measure import Goal, Row
from fdg_plugins.recipes.job import IN_CHUNKS

SITES = ["cartoon", "photo"]
COMPONENTS = ("echo_parts.RoundTrips", "echo_parts.Echo")
TENSORS, ROUNDED, ARRAYS = "tensors", "rounded", "arrays"
ASKING = {"server": {"task_request_interval": 0.05}}

_TRIP = re.compile(r"trip (\d+) took ([\d.]+) s and (\d+) bytes up")


class Trip(NamedTuple):
    """The median seconds of a job's round trips, its first aside, and the bytes of one site's answer."""

    seconds: float
    bytes_up: int


def rows(quick: bool = False) -> list[Row]:
    """Return time and bytes for ResNet-18 and ResNet-50 in a provisioned federation; ``quick``: a small network in the
    simulator, twice."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        if quick:
            return _rows_of("convnet", 2, folder, "simulator", lambda job: simulate(with_custom(job), len(SITES)))
        with federation(folder / "federation") as poc:
            poc.allow(*COMPONENTS)
            return [
                row
                for network in ("resnet18", "resnet50")
                for row in _rows_of(network, 10, folder, "POC", lambda job: poc.run(without_custom(job)))
            ]


def _rows_of(network: str, trips: int, folder: Path, mode: str, run: Callable[[Path], Run]) -> list[Row]:
    found = {
        form: read_trip(run(echo_job(folder / "jobs", network, form, trips)).log) for form in (TENSORS, ROUNDED, ARRAYS)
    }
    tensors, rounded, arrays = (found[form] for form in (TENSORS, ROUNDED, ARRAYS))
    what = f"{network}, {len(SITES)} sites, {mode}"
    state = state_of(network)
    counters = sum(value.nbytes for value in state.values() if not value.is_floating_point())
    least = 0.5 + counters / arrays.bytes_up
    return [
        Row(
            f"round trip of {what}: tensors in chunks of 16 MiB / float32 arrays",
            tensors.seconds,
            arrays.seconds,
            goal=Goal("ratio", 0.8, "ratio ≤ 0.8"),
        ),
        Row(f"round trip of {what}: updates in bfloat16 / float32 arrays", rounded.seconds, arrays.seconds),
        Row(
            f"an update of {what}: bfloat16 / float32",
            rounded.bytes_up,
            arrays.bytes_up,
            unit="B",
            goal=Goal("ratio", least, "ratio ≤ 0.5 and the counters"),
        ),
    ]


def echo_job(folder: Path, network: str, form: str, trips: int) -> Path:
    """Write a job of round trips into ``folder`` and return its path."""
    chunks: Mapping[str, Any] = {} if form == ARRAYS else IN_CHUNKS
    arguments = {"network": network, "arrays": form == ARRAYS, "trips": trips}
    workflow = {"id": "trips", "path": COMPONENTS[0], "args": arguments}
    echo = {"tasks": ["train"], "executor": {"path": COMPONENTS[1], "args": {}}}
    server, site = (_filters(end) if form == ROUNDED else {} for end in ("Receive", "Send"))
    return write_job(
        folder / f"{network}_{form}",
        SITES,
        {"workflows": [workflow], **ASKING, **chunks, **server},
        {"executors": [echo], **chunks, **site},
    )


def read_trip(log: str) -> Trip:
    """Return what a server's log says of its round trips, the first of which only warms up."""
    trips = [(float(seconds), int(num_bytes)) for _, seconds, num_bytes in _TRIP.findall(log)]
    if len(trips) < 2:
        raise RuntimeError(f"the server's log has {len(trips)} round trips, expected at least 2.")
    return Trip(statistics.median(seconds for seconds, _ in trips[1:]), trips[-1][1])


def _filters(end: str) -> dict[str, Any]:
    chain = [{"path": f"fdg_plugins.filters.RoundedUpdate{end}Filter", "args": {}}]
    return {"task_result_filters": [{"tasks": ["train"], "filters": chain}]}
