# SPDX-License-Identifier: Apache-2.0
"""How the benchmarks measure: seconds of tasks that take turns, bytes of tensors, peak memory of a process."""

import json
import multiprocessing
import statistics
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import torch
from torch.profiler import ProfilerActivity, profile

MIB = 2**20
Laps = Mapping[str, float]  # seconds by the name of what took them


@dataclass(frozen=True)
class Goal:
    """The largest value wanted ``of`` a row's ratio or of our own quantity; ``text`` says it to the reader."""

    of: Literal["ratio", "ours"]
    limit: float
    text: str


@dataclass(frozen=True)
class Row:
    """One line of the table: the same quantity of ours and of the reference, in ``unit`` (seconds, bytes, ...).

    ``reference`` is None where there is nothing to compare with.
    """

    case: str
    ours: float
    reference: float | None = None
    unit: Literal["s", "B", "exponent", ""] = "s"
    goal: Goal | None = None

    @property
    def ratio(self) -> float | None:
        """Ours over the reference: below one, ours takes less. None without one; exponents have none."""
        return self.ours / self.reference if self.reference and self.unit != "exponent" else None

    @property
    def reached(self) -> bool | None:
        """Whether the goal is reached, None without one."""
        if self.goal is None:
            return None
        value = self.ours if self.goal.of == "ours" else self.ratio
        return value is not None and value <= self.goal.limit


def lap(name: str, task: Callable[[], object]) -> dict[str, float]:
    """Run ``task`` once and return its seconds under ``name``."""
    started = time.perf_counter()
    task()
    return {name: time.perf_counter() - started}


def interleave(tasks: Sequence[Callable[[], Laps]], repetitions: int, warm_ups: int = 1) -> dict[str, float]:
    """Return the median seconds by name, of ``repetitions`` turns in which every task runs once.

    Tasks that take turns share whatever slows the machine for a while. The ``warm_ups`` turns before do not count.
    """
    seconds: dict[str, list[float]] = defaultdict(list)
    for turn in range(warm_ups + repetitions):
        for task in tasks:
            for name, value in task().items():
                if turn >= warm_ups:
                    seconds[name].append(value)
    return {name: statistics.median(values) for name, values in seconds.items()}


def tensor_peak(task: Callable[[], object]) -> int:
    """Return the most bytes of tensors that ``task`` had allocated at one time, beyond those that were there before."""
    task()  # what a first call allocates once for all does not count
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiler:
        task()
    with tempfile.TemporaryDirectory() as folder:
        trace = Path(folder) / "trace.json"
        profiler.export_chrome_trace(str(trace))
        events = json.loads(trace.read_text())["traceEvents"]
    allocations = [event for event in events if event.get("name") == "[memory]"]
    live = peak = 0
    for event in sorted(allocations, key=lambda event: event["ts"]):
        live += event["args"]["Bytes"]
        peak = max(peak, live)
    return peak


def process_peak() -> int:
    """Return the most bytes that this process has had resident, as Linux counts them for this program alone.

    Not ``getrusage``, whose maximum a new process takes over from the one that started it.
    """
    return _status("VmHWM")


def added_peak(task: Callable[[], object]) -> int:
    """Return the most bytes that ``task`` had resident at one time, beyond those that were there before.

    In a fresh process: memory that was freed before, and that the process kept, is used again and adds nothing.
    """
    Path("/proc/self/clear_refs").write_text("5")  # Linux counts the peak anew from here
    before = _status("VmRSS")
    task()
    return max(0, process_peak() - before)


def _status(quantity: str) -> int:
    """Return a quantity in bytes of this process, as Linux gives it."""
    for line in Path("/proc/self/status").read_text().splitlines():
        name, _, value = line.partition(":")
        if name == quantity:
            return int(value.split()[0]) * 1024
    raise OSError(f"/proc/self/status has no {quantity}, expected the memory of the process, as Linux gives it.")


def in_new_process(task: Callable[..., Any], *arguments: Any) -> Any:
    """Return ``task(*arguments)`` as computed by a fresh process with this one's number of torch threads.

    ``task`` is a function of a module. Not by ``multiprocessing.Pool``, whose processes may start none themselves.
    """
    context, threads = multiprocessing.get_context("spawn"), torch.get_num_threads()
    with ProcessPoolExecutor(1, context, initializer=torch.set_num_threads, initargs=(threads,)) as executor:
        return executor.submit(task, *arguments).result()
