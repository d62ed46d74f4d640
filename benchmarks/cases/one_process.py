# SPDX-License-Identifier: Apache-2.0
"""The one-process engine against plain PyTorch loops: a whole job, a sweep, rounds of 100 sites; many more sites.

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
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil

from cases.flare import BENCHMARKS, environment, run_command
from cases.measure import Goal, Row
from cases.whole_job import DATASET, QUICK, REAL, REAL_SAMPLES, export, loop_command
from fdg_plugins.core.partition import allot_sites
from fdg_plugins.data import dataset_spec, find_data_root, open_domain
from fdg_plugins.lab.sweep.machine import ONE_PROCESS
from fdg_plugins.recipes import make_recipe
from fdg_plugins.record.run_files import RESULTS_FILE, SIMULATOR_FOLDER
from fdg_plugins.settings.defaults import dataset_protocol
from fdg_plugins.settings.protocol import Protocol
from fdg_plugins.storage import read_json, write_json

DIGITS = "rotateddigits"
TARGET = "angle_0"
MANY = {"model": "cnn", "local_epochs": 1, "image_size": 32, "rounds": 12}
DRAWN = 10
ROUND_GOALS = {"cnn": 1.3, "groupnorm_convnet": 1.08}  # of a round's time in that of the loop
TURNS = 3  # of both sides of a round
COUNTS = (100, 1000, 10_000)  # of sites, for the memory
RUNS = 4  # of a sweep
POLL_S = 0.02


def rows(quick: bool = False) -> list[Row]:
    """Return seconds of a job, of a sweep and of rounds beside those of loops, and peak memory by number of sites."""
    with tempfile.TemporaryDirectory() as name:
        return [part for measure in (_whole_jobs, _rounds, _scale) for part in measure(Path(name), quick)]


def _whole_jobs(folder: Path, quick: bool) -> list[Row]:
    """Return the rows of one job and of a sweep of several."""
    root = os.environ.get("FDG_DATA_ROOT", "").strip()
    settings = QUICK if quick else {**REAL, "max_samples_per_domain": REAL_SAMPLES}
    where = {"FDG_DATA_ROOT": root} if root else {"FDG_CACHE": str(folder / "cache")}
    if not root:
        find_data_root(DATASET, None, folder / "cache")  # drawn once, and timed by nobody
        settings = {**dataset_protocol(DATASET).stand_in, **settings}
    own = {"FDG_DEVICE": "cpu", **where}
    loops, judgings, jobs = [], [], []
    for turn in range(1 if quick else TURNS):
        loops.append(run_command(loop_command(folder, settings), folder, own))
        judgings.append(run_command(loop_command(folder, settings, "sites"), folder, own))
        jobs.append(run_job(export(folder / f"jobs-{turn}", settings), folder / f"workspace-{turn}", own).seconds)
    loop, judging, job = map(statistics.median, (loops, judgings, jobs))
    what = "PACS" if root else "the stand-in of PACS"
    times = 1 if quick else RUNS
    swept = _sweep(folder, settings, own, times)
    goal = Goal("ratio", 1.12, "ratio ≤ 1.12")
    return [
        Row(f"whole job, {what}: one process / one loop", job, loop, goal=goal),
        Row(f"whole job, {what}: one process / one loop that judges as the sites do", job, judging, goal=goal),
        Row(f"sweep of {times} runs / as many loops", swept, times * loop, goal=Goal("ratio", 1.1, "ratio ≤ 1.1")),
    ]


def _sweep(folder: Path, settings: Mapping[str, Any], own: Mapping[str, str], runs: int) -> float:
    """Return the seconds of a sweep of so many seeds, one run at a time, as the loops are run."""
    seeds = ",".join(map(str, range(runs)))
    given = [text for name, value in settings.items() for text in ("--set", f"{name}={json.dumps(value)}")]
    command = [str(Path(sys.executable).with_name("fdg")), "sweep", str(folder / "sweep")]
    command += ["--methods", "fedavg", "--targets", dataset_spec(DATASET).domains[0], "--seeds", seeds]
    return run_command([*command, "--set", "parallel=1", *given], folder, own)


def _rounds(folder: Path, quick: bool) -> list[Row]:
    """Return the rows of a round of some of 100 sites: beside the loop's, and beside a process that takes a core."""
    found: list[Row] = []
    for model, limit in ROUND_GOALS.items():
        settings = {**MANY, "model": model, **({"rounds": 3, "image_size": 16} if quick else {})}
        count = DRAWN if quick else 100
        ours, loop, disturbed = [], [], []
        for turn in range(1 if quick else TURNS):
            where = folder / f"{model}-{turn}"
            record, entries = _run_many(where, count, settings)
            ours += seconds_of(record)
            loop += _rounds_of_loop(where, record, entries)
            with _busy_neighbour():
                disturbed += seconds_of(_run_many(where / "disturbed", count, settings)[0])
        round_of, by_loop, beside = map(statistics.median, (ours, loop, disturbed))
        what = f"a round of {DRAWN} of {count} sites, {model}"
        goal = Goal("ratio", limit, f"ratio ≤ {limit}")
        found.append(Row(f"{what}: one process / one loop", round_of, by_loop, goal=goal))
        if model == MANY["model"]:
            each = (round_of - by_loop) / (DRAWN + 1)  # the held-out site has a task too
            found.append(Row("  of it, a site's task beyond the loop's work", each, goal=Goal("ours", 0.004, "4 ms")))
        goal = Goal("ratio", 1.5, "ratio ≤ 1.5")
        found.append(Row(f"{what}: beside a busy process / alone", beside, round_of, goal=goal))
    return found


def _scale(folder: Path, quick: bool) -> list[Row]:
    """Return the rows of many sites that share images: peak memory, and the time of a round by the sites drawn."""
    counts, drawn = ((10, 20), (2, 4)) if quick else (COUNTS, (DRAWN, 10 * DRAWN))
    tiny = {**MANY, "image_size": 16, "max_samples_per_domain": 40, "rounds": 3}
    found: list[Row] = []
    for count in counts:
        job, workspace, _ = write_many(folder / f"{count}", count, {**tiny, "sites_per_round": drawn[0]}, share=True)
        peak = run_job(job, workspace, {"FDG_DEVICE": "cpu"}).peak
        found.append(Row(f"peak memory of {count} sites that share their images", peak, unit="B"))
    each = []
    for number in drawn:
        settings = {**tiny, "sites_per_round": number}
        record, _ = _run_many(folder / f"drawn-{number}", counts[1], settings, share=True)
        each.append(statistics.median(seconds_of(record)) / number)
    what = f"a round of {counts[1]} sites, for each drawn: {drawn[1]} drawn / {drawn[0]} drawn"
    return [*found, Row(what, each[1], each[0], goal=Goal("ratio", 1.0, "ratio ≤ 1"))]


def _run_many(folder: Path, count: int, settings: Mapping[str, Any], **how: bool) -> tuple[Any, Path]:
    """Return the record of a job of ``count`` sources, and the file with its sites' config."""
    job, workspace, entries = write_many(folder, count, settings, **how)
    run_job(job, workspace, {"FDG_DEVICE": "cpu"})
    return read_json(workspace / SIMULATOR_FOLDER / RESULTS_FILE), entries


def seconds_of(record: Mapping[str, Any]) -> list[float]:
    """Return the seconds of each round but the first, in which images are decoded."""
    return [one["seconds"] for one in record["rounds"][1:]]


def _rounds_of_loop(folder: Path, record: Mapping[str, Any], entries: Path) -> list[float]:
    """Return the seconds of each round but the first of a loop, with as many threads as the sites have."""
    file, threads = folder / "protocol.json", record["census"][TARGET]["threads"]
    file.write_text(Protocol.model_validate(record["protocol"]).model_dump_json())
    command = [sys.executable, str(BENCHMARKS / "many_sites_loop.py"), str(file), str(entries)]
    own = environment({"OMP_NUM_THREADS": str(threads)})
    done = subprocess.run(command, env=own, capture_output=True, text=True, check=True)
    return [float(line) for line in done.stdout.split()[1:]]


@contextmanager
def _busy_neighbour() -> Iterator[None]:
    """Run a process of lower priority that never waits."""
    process = subprocess.Popen(["nice", "-n", "5", sys.executable, "-c", "while True: pass"])
    try:
        yield
    finally:
        process.kill()
        process.wait()


def write_many(
    folder: Path, count: int, settings: Mapping[str, Any], *, share: bool = False
) -> tuple[Path, Path, Path]:
    """Write a job of ``count`` sources and its workspace; return both and the file with the sites' config.

    The sources divide the domains, or ``share`` the images of one among as many as are there.
    """
    sources = [domain for domain in dataset_spec(DIGITS).domains if domain != TARGET]
    sizes = {domain: len(open_domain(None, DIGITS, domain, seed=0).train) for domain in sources}
    allotted = dict.fromkeys(sources, -(-count // len(sources))) if share else allot_sites(sizes, count)
    entries = {TARGET: {"domain": TARGET}}
    for domain, sites in allotted.items():
        parts = ({} if share else {"part": f"{n}/{sites}"} for n in range(1, sites + 1))
        entries |= {f"{domain}-{n}": {"domain": domain, **part} for n, part in enumerate(parts, 1)}
    drawn = {"sites_per_round": DRAWN} if count > DRAWN else {}
    make_recipe("fedavg", DIGITS, name="job", target=TARGET, **{**drawn, **settings}).export(str(folder))
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
