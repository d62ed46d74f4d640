# SPDX-License-Identifier: Apache-2.0
"""Requests, runs and jobs for the tests of a sweep, and the program that stands in for those that carry runs out."""

import json
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fdg_plugins.lab.sweep.jobs import SIMULATOR
from fdg_plugins.lab.sweep.kinds import kind_of
from fdg_plugins.lab.sweep.plan import PlannedRun
from fdg_plugins.lab.sweep.processes import MARK
from fdg_plugins.lab.sweep.references import FDG, ReferenceRuns
from fdg_plugins.lab.sweep.request import Request
from fdg_plugins.lab.sweep.run_process import RunProcess

FAKE_SIMULATOR = (sys.executable, str(Path(__file__).with_name("fake_simulator.py")))
SETTINGS = {
    "fedavg": ("rounds", "image_size", "server_lr"),
    "fedomg": ("rounds", "image_size", "server_lr", "kappa"),
    "feddim": ("rounds", "image_size", "server_lr", "strength"),
}


def settings_of(method: str) -> tuple[str, ...]:
    """Return the settings of a method, as the recipes would."""
    return SETTINGS[method]


def request(**changes: Any) -> Request:
    """Return a request for two methods, two domains and two seeds."""
    plain: dict[str, Any] = {
        "dataset": "pacs",
        "protocol": "paper",
        "methods": ("fedavg", "fedomg"),
        "targets": ("photo", "sketch"),
        "seeds": (0, 1),
    }
    return Request(**{**plain, **changes})


def planned(seed: int, method: str = "fedavg") -> PlannedRun:
    """Return a run that the fake simulator treats as ``seed`` says."""
    return PlannedRun(f"{method}-photo-seed{seed}", "pacs", "paper", method, "photo", seed, {"rounds": 4})


def write_fake_job(run: PlannedRun, folder: Path) -> None:
    """Write as much of a job as the fake simulator reads."""
    config = folder / "job" / "app_server" / "config" / "config_fed_server.json"
    config.parent.mkdir(parents=True)
    protocol = {"seed": run.seed, "target": run.target, **run.settings}
    config.write_text(json.dumps({"workflows": [{"args": {"protocol": protocol}}]}))


def start_fake(run: PlannedRun, working: Path, gpu: str | None) -> RunProcess:
    """Start the fake simulator on ``run``, with the arguments that its own program would have."""
    kind = kind_of(run.method)
    write_fake_job(run, working)
    own: Mapping[str, str] = {MARK: str(working), **({} if gpu is None else {"CUDA_VISIBLE_DEVICES": gpu})}
    program = FDG if isinstance(kind, ReferenceRuns) else SIMULATOR
    command = (*FAKE_SIMULATOR, *kind.command(run, threads=4, sites=4)[len(program) :])
    return RunProcess(run, kind, working, command, {**os.environ, **own})
