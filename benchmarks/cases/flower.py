# SPDX-License-Identifier: Apache-2.0
"""Rounds of 10 of 100 sites: the one-process engine against Flower's simulation, with one worker and with two.

``FLOWER_PYTHON`` names a Python with ``flwr[simulation]`` and this package; without it, there are no rows. Both sides
train the same model on the same images in the same batches, and judge the same models; Flower draws its own sites.
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
from cases.one_process import run_job, write_many
from cases.whole_job import cores_each
from fdg_plugins.record.run_files import RESULTS_FILE, SIMULATOR_FOLDER
from fdg_plugins.settings.protocol import Protocol
from fdg_plugins.storage import read_json

PYTHON = "FLOWER_PYTHON"
SITES = 100
SETTINGS = {"model": "cnn", "local_epochs": 1, "image_size": 32, "rounds": 12, "max_samples_per_domain": 400}
REPEATS = 3  # of each side, in turn
GOALS = {1: Goal("ratio", 1 / 3.3, "3.3 times as many rounds"), 2: Goal("ratio", 1 / 4.5, "4.5 times as many rounds")}


def rows(quick: bool = False) -> list[Row]:
    """Return the seconds of a round of either side, by workers."""
    python = os.environ.get(PYTHON, "").strip()
    if not python:
        print(f"{PYTHON} is not set: Flower is not measured", file=sys.stderr)  # noqa: T201
        return []
    with tempfile.TemporaryDirectory() as name:
        return [_row(Path(name), python, workers, quick) for workers in GOALS]


def _row(folder: Path, python: str, workers: int, quick: bool) -> Row:
    settings: dict[str, Any] = {**SETTINGS, "rounds": 3} if quick else SETTINGS
    ours, theirs = [], []
    for turn in range(1 if quick else REPEATS):
        job, workspace, entries = write_many(folder / f"{workers}-{turn}", SITES, settings)
        own = {"FDG_DEVICE": "cpu", "FDG_THREADS": str(cores_each(workers))}
        run_job(job, workspace, own, workers)
        record = read_json(workspace / SIMULATOR_FOLDER / RESULTS_FILE)
        ours += [one["seconds"] for one in record["rounds"][1:]]
        protocol = folder / "protocol.json"
        protocol.write_text(Protocol.model_validate(record["protocol"]).model_dump_json())
        theirs += _flower(python, protocol, entries, workers)[1:]
    text = f"a round of 10 of {SITES} sites, {workers} workers: one process / Flower's simulation"
    return Row(text, statistics.median(ours), statistics.median(theirs), goal=GOALS[workers])


def _flower(python: str, protocol: Path, entries: Path, workers: int) -> list[float]:
    """Return the seconds of each round of Flower's simulation."""
    command = [python, str(BENCHMARKS / "flower_rounds.py"), str(protocol), str(entries), str(workers)]
    quiet = {"RAY_USAGE_STATS_ENABLED": "0", "FLWR_TELEMETRY_ENABLED": "0"}
    done = subprocess.run(command, env=environment(quiet), capture_output=True, text=True, check=True)
    return [float(line) for line in done.stdout.splitlines() if line.replace(".", "", 1).isdigit()]
