# SPDX-License-Identifier: Apache-2.0
"""The one-process engine against the bare command of the simulator: the same files, bit for bit."""

import os
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import psutil
import pytest

from fdg_plugins.lab.sweep.machine import ONE_PROCESS
from fdg_plugins.plugins.composition import published
from fdg_plugins.recipes import make_recipe
from fdg_plugins.record.run_files import RESULTS_FILE, SIMULATOR_FOLDER
from fdg_plugins.storage import read_json
from tests.finished_runs import same_models
from tests.processes import NVFLARE, WORKER, command_line, printed_by

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("no_fdg_variables")]

TOY = {"rounds": 2, "local_epochs": 1, "image_size": 16, "batch_size": 8, "model": "convnet", "pretrained": "none"}
SITES = 4
# What sites report and the server shares, and states that sites keep; the rest by night.
EACH_KIND = ("fedomg+ga+dim", "scaffold")
BY_NIGHT = [pytest.param(name, marks=pytest.mark.nightly) for name in published() if name not in EACH_KIND]
TIMES = {"started", "seconds", "aggregation_seconds"}


def export(method: str, folder: Path, **settings: Any) -> Path:
    recipe = make_recipe(method, "pacs", name="job", **{**TOY, **settings})
    recipe.export(str(folder))
    return folder / "job"


def start(job: Path, workspace: Path, data_root: Path, workers: int = 1) -> "subprocess.Popen[str]":
    workspace.mkdir()
    return subprocess.Popen(
        [*ONE_PROCESS, str(job), str(workspace), str(workers)],
        env={**os.environ, "FDG_THREADS": "1", "FDG_DATA_ROOT": str(data_root)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def run(job: Path, workspace: Path, data_root: Path, workers: int = 1) -> Path:
    """Run a job to its end; return the folder with what it leaves."""
    process = start(job, workspace, data_root, workers)
    printed, _ = process.communicate()
    assert process.returncode == 0, printed
    return workspace / SIMULATOR_FOLDER


def without_times(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: without_times(one) for name, one in value.items() if name not in TIMES}
    return [without_times(one) for one in value] if isinstance(value, list) else value


@pytest.mark.parametrize("method", [*EACH_KIND, *BY_NIGHT])
def test_one_process_has_the_simulators_bits(method: str, tmp_path: Path, data_root: Path) -> None:
    job, settings = export(method, tmp_path / method), {"FDG_THREADS": "1", "FDG_DATA_ROOT": str(data_root)}
    printed_by(NVFLARE, "simulator", job, "-t", SITES, "-w", "there", folder=tmp_path, **settings)
    here = run(job, tmp_path / "here", data_root)
    check_equal(here, tmp_path / "there" / SIMULATOR_FOLDER)
    assert not [*tmp_path.glob("*/*/fdg_state/*")], "no participant keeps anything of a finished run"
    reestimates = method in ("fedga", "fedomg+ga+dim")  # by one more task in each round
    assert all(bool(one["statistics"]) == reestimates for one in read_json(here / RESULTS_FILE)["rounds"])


def check_equal(here: Path, there: Path) -> None:
    """Fail unless two runs left the same bits in the same files."""
    assert without_times(read_json(here / RESULTS_FILE)) == without_times(read_json(there / RESULTS_FILE))
    assert same_models(here, there)
    assert {path.name for path in here.iterdir()} == {path.name for path in there.iterdir()}


# A state at each site; two tasks a round.
@pytest.mark.parametrize("method", ["scaffold", pytest.param("fediir", marks=pytest.mark.nightly)])
def test_two_workers_leave_the_bits_of_one_process(method: str, tmp_path: Path, data_root: Path) -> None:
    job = export(method, tmp_path, rounds=3)
    check_equal(*(run(job, tmp_path / str(workers), data_root, workers) for workers in (1, 2)))


def test_hanging_worker_does_not_hang_the_run(tmp_path: Path, data_root: Path) -> None:
    settings = {"rounds": 4, "patience": 1.0, "min_sites": 2, "task_timeout": 15}
    process = start(export("fedavg", tmp_path, **settings), tmp_path / "here", data_root, workers=2)
    record = tmp_path / "here" / SIMULATOR_FOLDER / RESULTS_FILE
    while not (record.exists() and read_json(record)["rounds"]):
        assert process.poll() is None
        time.sleep(0.02)
    workers = [one for one in psutil.Process(process.pid).children() if WORKER in command_line(one)]
    workers[0].suspend()
    printed, _ = process.communicate(timeout=600)
    assert process.returncode == 0, printed
    assert read_json(record)["status"] == "finished"
    assert not any(worker.is_running() for worker in workers)


@pytest.mark.parametrize(
    ("number", "workers"), [(signal.SIGTERM, 2), pytest.param(signal.SIGINT, 1, marks=pytest.mark.nightly)]
)
def test_signal_leaves_no_process(number: signal.Signals, workers: int, tmp_path: Path, data_root: Path) -> None:
    process = start(export("fedavg", tmp_path, rounds=500), tmp_path / "here", data_root, workers)
    record = tmp_path / "here" / SIMULATOR_FOLDER / RESULTS_FILE
    while not record.exists():
        assert process.poll() is None
        time.sleep(0.1)
    children = psutil.Process(process.pid).children(recursive=True)
    process.send_signal(number)
    printed, _ = process.communicate(timeout=600)
    assert process.returncode == 2, printed
    assert read_json(record)["status"] == "stopped"
    _, left = psutil.wait_procs(children, timeout=10)  # Python's own tracker of resources ends a moment later
    assert [command_line(one) for one in left if one.status() != psutil.STATUS_ZOMBIE] == []
    assert "Traceback" not in printed
