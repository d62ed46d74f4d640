# SPDX-License-Identifier: Apache-2.0
"""The one-process engine against plain PyTorch loops: a whole job, rounds of 100 sites, a sweep; memory of many sites.

Both sides are commands of their own, with the start of Python and all imports. The loops train on the same batches.
The loop of the rounds judges as the sites do, that of the whole job in both ways: as a script does, and as the sites
do, which also judge the initial model and their own models.
"""

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import psutil

from cases.flare import BENCHMARKS, environment, run_command
from cases.measure import Goal, Row
from cases.whole_job import DATASET, QUICK, REAL, REAL_SAMPLES, export, loop_command
from fdg_plugins.core.partition import allot_sites
from fdg_plugins.data import dataset_spec, find_data_root, open_domain
from fdg_plugins.lab.sweep.kinds import ONE_PROCESS
from fdg_plugins.recipes import make_recipe
from fdg_plugins.record.run_files import RESULTS_FILE, SIMULATOR_FOLDER
from fdg_plugins.settings.defaults import dataset_protocol
from fdg_plugins.settings.protocol import Protocol
from fdg_plugins.storage import read_json, write_json

DIGITS = "rotateddigits"
TARGET = "angle_0"
MANY = {"model": "cnn", "local_epochs": 1, "image_size": 32, "rounds": 12}
DRAWN = 10
COUNTS = (10, 100, 145)  # of sites; a domain has 29 images for validation, and each site needs one
RUNS = 4  # of a sweep
POLL_S = 0.02


def rows(quick: bool = False) -> list[Row]:
    """Return seconds of a job, of a round and of a sweep beside those of loops, and peak memory by number of sites."""
    with tempfile.TemporaryDirectory() as name:
        return [*_whole_jobs(Path(name), quick), *_many_sites(Path(name), quick)]


def _whole_jobs(folder: Path, quick: bool) -> list[Row]:
    """Return the rows of one job and of a sweep of several."""
    root = os.environ.get("FDG_DATA_ROOT", "").strip()
    settings = QUICK if quick else {**REAL, "max_samples_per_domain": REAL_SAMPLES}
    where = {"FDG_DATA_ROOT": root} if root else {"FDG_CACHE": str(folder / "cache")}
    if not root:
        find_data_root(DATASET, None, folder / "cache")  # drawn once, and timed by nobody
        settings = {**dataset_protocol(DATASET).stand_in, **settings}
    own = {"FDG_DEVICE": "cpu", **where}
    loop = run_command(loop_command(folder, settings), folder, own)
    judging = run_command(loop_command(folder, settings, "sites"), folder, own)
    job = run_job(export(folder / "jobs", settings), folder / "workspace", own).seconds
    what = "PACS" if root else "the stand-in of PACS"
    swept = _sweep(folder, settings, own, 1 if quick else RUNS)
    times = 1 if quick else RUNS
    goal = Goal("ratio", 1.05, "ratio ≤ 1.05")
    return [
        Row(f"whole job, {what}: one process / one loop", job, loop, goal=goal),
        Row(f"whole job, {what}: one process / one loop that judges as the sites do", job, judging, goal=goal),
        Row(f"sweep of {times} runs / as many loops", swept, times * loop, goal=Goal("ratio", 1.1, "ratio ≤ 1.1")),
    ]


def _sweep(folder: Path, settings: Mapping[str, Any], own: Mapping[str, str], runs: int) -> float:
    """Return the seconds of a sweep of so many seeds, one run at a time, as the loops are run."""
    seeds = ",".join(map(str, range(runs)))
    given = [text for name, value in settings.items() for text in ("--set", f"{name}={json.dumps(value)}")]
    command = [str(Path(sys.executable).with_name("fdg")), "sweep", "--to", str(folder / "sweep")]
    command += ["--methods", "fedavg", "--targets", dataset_spec(DATASET).domains[0], "--seeds", seeds]
    return run_command([*command, "--parallel", "1", *given], folder, own)


def _many_sites(folder: Path, quick: bool) -> list[Row]:
    """Return the row of a round of some of 100 sites, and those of the memory."""
    counts, settings = ((10,), {**MANY, "rounds": 3, "image_size": 16}) if quick else (COUNTS, MANY)
    found: list[Row] = []
    for count in counts:
        job, workspace, entries = write_many(folder / f"many-{count}", count, settings)
        run = run_job(job, workspace, {"FDG_DEVICE": "cpu"})
        record = read_json(workspace / SIMULATOR_FOLDER / RESULTS_FILE)
        if count in (100, counts[-1]) and not any("a round" in row.case for row in found):
            ours = statistics.median(one["seconds"] for one in record["rounds"][1:])
            loop = _round_of_loop(folder, record["protocol"], entries)
            text = f"a round of {DRAWN} of {count} sites: one process / one loop"
            found.append(Row(text, ours, loop, goal=Goal("ratio", 1.15, "ratio ≤ 1.15")))
        found.append(Row(f"peak memory of {count} sites in one process", run.peak, unit="B"))
    return found


def _round_of_loop(folder: Path, protocol: Mapping[str, Any], entries: Path) -> float:
    file = folder / "many.json"
    file.write_text(Protocol.model_validate(protocol).model_dump_json())
    command = [sys.executable, str(BENCHMARKS / "many_sites_loop.py"), str(file), str(entries)]
    done = subprocess.run(command, env=environment(), capture_output=True, text=True, check=True)
    return statistics.median(map(float, done.stdout.split()[1:]))


def write_many(folder: Path, count: int, settings: Mapping[str, Any]) -> tuple[Path, Path, Path]:
    """Write a job of ``count`` sources and its workspace; return both and the file with the sites' config."""
    sources = [domain for domain in dataset_spec(DIGITS).domains if domain != TARGET]
    sizes = {domain: len(open_domain(None, DIGITS, domain, seed=0).train) for domain in sources}
    entries = {TARGET: {"domain": TARGET}}
    for domain, sites in allot_sites(sizes, count).items():
        entries |= {f"{domain}-{n}": {"domain": domain, "part": f"{n}/{sites}"} for n in range(1, sites + 1)}
    drawn = {"sites_per_round": DRAWN} if count > DRAWN else {}
    make_recipe("fedavg", DIGITS, name="job", target=TARGET, **{**settings, **drawn}).export(str(folder))
    meta = read_json(folder / "job" / "meta.json")
    meta["deploy_map"]["app_site"] = list(entries)
    write_json(folder / "job" / "meta.json", meta)
    file = folder / "workspace" / "local" / "fdg_site.json"
    write_json(file, entries)
    return folder / "job", folder / "workspace", file


class Run:
    """A job that ended well: its seconds, and the most bytes that its process had resident."""

    def __init__(self, seconds: float, peak: int) -> None:
        self.seconds, self.peak = seconds, peak


def run_job(job: Path, workspace: Path, own: Mapping[str, str], workers: int = 1) -> Run:
    """Run a job by the engine's program; raise ``RuntimeError`` if it does not end well."""
    workspace.mkdir(exist_ok=True)
    log, started, peak = workspace / "log.txt", time.perf_counter(), 0
    with log.open("wb") as output:
        command = [*ONE_PROCESS, str(job), str(workspace), str(workers)]
        process = psutil.Popen(command, env=environment(own), stdout=output, stderr=output)
        while process.poll() is None:
            peak = max(peak, _resident(process))
            time.sleep(POLL_S)
    seconds = time.perf_counter() - started
    if process.returncode:
        raise RuntimeError(f"job {job} ended with {process.returncode}, expected 0:\n{log.read_text()[-3000:]}")
    return Run(seconds, peak)


def _resident(process: psutil.Popen) -> int:
    try:
        return int(process.memory_info().rss)
    except psutil.Error:  # it has just ended
        return 0
