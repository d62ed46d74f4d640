# SPDX-License-Identifier: Apache-2.0
"""Where the time of ``nvflare simulator`` without flags goes: one thread, so a process of its own for every task.

The seconds of imports are those of a new interpreter each; FLARE's own are what its worker imports before it knows the
job. A turn is the time from one site's process to the next one's, as the simulator's log tells it, in a job whose tasks
are next to nothing.
"""

import subprocess
import sys
import tempfile
from pathlib import Path

from cases.flare import environment, interval, simulate
from cases.measure import Row, interleave
from cases.round_overhead import SETTINGS, SITES, our_job
from fdg_plugins.data import find_data_root

TURN = "Simulate Run client"  # the simulator's line at the start of each process
WORKER = "import nvflare.private.fed.app.simulator.simulator_worker"
# What each step imports on top of those before it.
STEPS = {
    "FLARE's worker": WORKER,
    "torch": "import torch, nvflare.app_opt.pt.decomposers",
    "our components of a site": "import fdg_plugins.executors, fdg_plugins.filters",
    "data, models and methods for a task": "import fdg_plugins.training.session",
    "torch's own, at the first optimizer": "torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=1)",
}
_LAP = "print(time.perf_counter() - started, end=' ', flush=True)"


def rows(quick: bool = False) -> list[Row]:
    """Return the whole command with one thread and with one per site, a turn, and the imports in it; ``quick``: one
    round at two sites, imports once."""
    rounds, repetitions = (1, 1) if quick else (4, 5)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        settings = {**SETTINGS, "FDG_CACHE": str(folder / "cache")}
        sites = SITES[1:] if quick else SITES
        job = our_job(folder / "jobs", rounds, sites)
        find_data_root("pacs", None, folder / "cache")  # drawn once, and timed by nobody
        one, all_sites = (simulate(job, threads, settings) for threads in (1, len(sites)))
    what = f"{rounds} rounds of next to nothing, {len(sites)} sites"
    seconds = interleave([import_laps], repetitions, warm_ups=0 if quick else 1)
    return [
        Row(f"nvflare simulator, {what}: 1 thread / {len(sites)} threads", one.seconds, all_sites.seconds),
        Row(f"a turn with 1 thread, {what}: from one site's process to the next", interval(one.log, TURN, skipped=1)),
        *(Row(f"imports of a site's process: {step}", seconds[step]) for step in STEPS),
    ]


def import_laps() -> dict[str, float]:
    """Return the seconds of each step's imports, in a new interpreter."""
    lines = ["import time; started = time.perf_counter()", *(f"{code}; {_LAP}" for code in STEPS.values())]
    done = subprocess.run(
        [sys.executable, "-c", "\n".join(lines)], env=environment(), capture_output=True, text=True, check=True
    )
    at = [0.0, *map(float, done.stdout.split())]
    return {step: later - earlier for step, earlier, later in zip(STEPS, at[:-1], at[1:], strict=True)}
