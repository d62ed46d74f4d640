# SPDX-License-Identifier: Apache-2.0
"""A whole job in FLARE's simulator against the same training as one plain PyTorch loop, each a command of its own.

The protocol is that of ``jobs/pacs_fedavg`` on the stand-in, with the mean of the sites unweighted: the loop of
``plain_loop.py`` makes the same steps on the same batches. FLARE tears down the process of every site after each task
where it has fewer threads than sites, which costs seconds a task, whatever the task.
"""

import os
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from cases.flare import BENCHMARKS, run_command, simulate
from cases.measure import Goal, Row
from fdg_plugins.data import find_data_root
from fdg_plugins.recipes import FDGRecipe
from fdg_plugins.settings.defaults import dataset_protocol
from fdg_plugins.settings.protocol import Protocol

DATASET = "pacs"
THREADS = {
    1: Goal("ratio", 1.15, "ratio ≤ 1.15"),
    2: Goal("ratio", 1.0, "ratio ≤ 1"),
    4: None,
}
QUICK = {"rounds": 1, "local_epochs": 1, "max_samples_per_domain": 14, "image_size": 16}
REAL = {"model": "resnet18", "pretrained": "none", "image_size": 64, "rounds": 3, "local_epochs": 1}
REAL_SAMPLES = 400  # of a domain; the smallest of PACS has 1,670


def rows(quick: bool = False) -> list[Row]:
    """Return seconds on the stand-in with one thread, two, and one per site, and where ``FDG_DATA_ROOT`` names PACS on
    a part of it too; ``quick``: one round of one epoch with one thread per site."""
    changes = QUICK if quick else {}
    found = _rows_of("the stand-in of PACS", {**dataset_protocol(DATASET).stand_in, **changes}, None, quick)
    data_root = os.environ.get("FDG_DATA_ROOT", "").strip()
    if data_root and not quick:
        settings = {**REAL, "max_samples_per_domain": REAL_SAMPLES}
        found += _rows_of(f"PACS, {REAL_SAMPLES} images a domain, 64 px, 3 rounds", settings, data_root, quick)
    return found


def _rows_of(what: str, settings: Mapping[str, Any], data_root: str | None, quick: bool) -> list[Row]:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        environment = {"FDG_DEVICE": "cpu", "FDG_CACHE": str(folder / "cache")}
        if data_root is None:
            find_data_root(DATASET, None, folder / "cache")  # drawn once, and timed by nobody
        else:
            environment["FDG_DATA_ROOT"] = data_root
        job = export(folder / "jobs", settings)
        loop = run_command(loop_command(folder, settings), folder, environment)
        found = []
        for threads, goal in THREADS.items():
            if quick and threads < max(THREADS):
                continue
            seconds = simulate(job, threads, {**environment, "FDG_THREADS": str(cores_each(threads))}).seconds
            text = f"whole job, {what}: simulator with {threads} of 4 threads / one loop over the sites"
            found.append(Row(text, seconds, loop, goal=goal))
    return found


def export(folder: Path, settings: Mapping[str, Any]) -> Path:
    """Write the job into ``folder`` and return its path."""
    own = {name: value for name, value in settings.items() if name != "server_lr"}
    recipe = FDGRecipe("fedavg", DATASET, weighting="uniform", server_lr=1.0, **own)
    recipe.export(str(folder))
    return folder / recipe.name


def loop_command(folder: Path, settings: Mapping[str, Any], *judging: str) -> list[str]:
    """Return the command of the loop under the job's protocol, which it reads from a file in ``folder``.

    ``judging``: ``"sites"`` for a loop that judges as the sites do; nothing for one that judges as a script does.
    """
    own = {name: value for name, value in settings.items() if name in Protocol.model_fields}
    protocol = Protocol.model_validate({**dataset_protocol(DATASET).protocol, "dataset": DATASET, **own})
    file = folder / "protocol.json"
    file.write_text(protocol.model_dump_json())
    return [sys.executable, str(BENCHMARKS / "plain_loop.py"), str(file), str(folder / "cache"), *judging]


def cores_each(threads: int) -> int:
    """Return the torch threads of a site where ``threads`` sites compute at a time; the loop has torch's default."""
    return max(1, torch.get_num_threads() // threads)
