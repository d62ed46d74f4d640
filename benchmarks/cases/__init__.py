# SPDX-License-Identifier: Apache-2.0
"""The cases of ``bench.py`` by name; each is a function ``rows(quick)``."""

from collections.abc import Callable

from cases import (
    dim_bytes,
    dim_penalty,
    flower,
    guard,
    iir_step,
    images,
    local_step,
    memory,
    method_steps,
    one_process,
    precision,
    round_overhead,
    server_step,
    solver,
    whole_job,
    wire,
)
from cases.measure import Row

CASES: dict[str, Callable[[bool], list[Row]]] = {
    "server_step": server_step.rows,
    "guard": guard.rows,
    "memory": memory.rows,
    "solver": solver.rows,
    "dim_penalty": dim_penalty.rows,
    "dim_bytes": dim_bytes.rows,
    "iir_step": iir_step.rows,
    "method_steps": method_steps.rows,
    "images": images.rows,
    "local_step": local_step.rows,
    "precision": precision.rows,
    "round_overhead": round_overhead.rows,
    "wire": wire.rows,
    "whole_job": whole_job.rows,
    "one_process": one_process.rows,
    "flower": flower.rows,
}
