# SPDX-License-Identifier: Apache-2.0
"""Rounds of 10 of 100 sites: the one-process engine against the simulations of Flower and BlazeFL, by workers.

``FLOWER_PYTHON`` and ``BLAZEFL_PYTHON`` name a Python with ``flwr[simulation]`` or ``blazefl``, and this package;
without it, there are no rows. All sides train the same model on the same images in the same batches, and judge the same
models; Flower draws its own sites.
"""

import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from cases.flare import BENCHMARKS, environment
from cases.measure import Goal, Row
from cases.one_process import MANY, run_job, seconds_of, write_many
from cases.whole_job import cores_each
from fdg_plugins.record.run_files import RESULTS_FILE, SIMULATOR_FOLDER
from fdg_plugins.settings.protocol import Protocol
from fdg_plugins.storage import read_json

SIMULATIONS = {"Flower": "flower_rounds.py", "BlazeFL": "blazefl_rounds.py"}
SITES = 100
SETTINGS = {**MANY, "max_samples_per_domain": 400}
REPEATS = 3  # of each side, in turn
GOALS = {1: Goal("ratio", 1 / 2, "2 times as many rounds"), 2: Goal("ratio", 1 / 2.5, "2.5 times as many rounds")}


def rows(quick: bool = False) -> list[Row]:
    """Return the seconds of a round of either side, by simulation and workers."""
    found: list[Row] = []
    for title, script in SIMULATIONS.items():
        python = os.environ.get(f"{title.upper()}_PYTHON", "").strip()
        if not python:
            print(f"{title.upper()}_PYTHON is not set: {title} is not measured", file=sys.stderr)  # noqa: T201
            continue
        with tempfile.TemporaryDirectory() as name:
            command = [python, str(BENCHMARKS / script)]
            found += [_row(Path(name), title, command, workers, quick) for workers in GOALS]
    return found


def _row(folder: Path, title: str, command: list[str], workers: int, quick: bool) -> Row:
    settings: dict[str, Any] = {**SETTINGS, "rounds": 3} if quick else SETTINGS
    ours, theirs = [], []
    for turn in range(1 if quick else REPEATS):
        job, workspace, entries = write_many(folder / f"{workers}-{turn}", SITES, settings)
        run_job(job, workspace, {"FDG_DEVICE": "cpu", "FDG_THREADS": str(cores_each(workers))}, workers)
        record = read_json(workspace / SIMULATOR_FOLDER / RESULTS_FILE)
        ours += seconds_of(record)
        protocol = folder / "protocol.json"
        protocol.write_text(Protocol.model_validate(record["protocol"]).model_dump_json())
        theirs += _seconds([*command, str(protocol), str(entries), str(workers)])[1:]
    text = f"a round of 10 of {SITES} sites, {workers} workers: one process / {title}'s simulation"
    goal = GOALS[workers] if title == "Flower" else None
    return Row(text, statistics.median(ours), statistics.median(theirs), goal=goal)


def _seconds(command: list[str]) -> list[float]:
    """Return the seconds of each round that a simulation prints."""
    quiet = {"RAY_USAGE_STATS_ENABLED": "0", "FLWR_TELEMETRY_ENABLED": "0"}
    done = subprocess.run(command, env=environment(quiet), capture_output=True, text=True, check=True)
    return [float(line) for line in done.stdout.splitlines() if line.replace(".", "", 1).isdigit()]
