# SPDX-License-Identifier: Apache-2.0
"""``nvflare simulator jobs/pacs_fedomg`` at toy size: as it is, and on the stand-in."""

import shutil
from pathlib import Path

import pytest
from safetensors import safe_open

from fdg_plugins.lab.sweep.machine import ONE_PROCESS
from fdg_plugins.record.run_files import LAST_FILE
from tests.finished_runs import record_in
from tests.processes import NVFLARE, execute, shell

pytestmark = pytest.mark.slow

JOB = "jobs/pacs_fedomg"
TOY = {
    "FDG_MODEL": "convnet",
    "FDG_IMAGE_SIZE": "16",
    "FDG_ROUNDS": "2",
    "FDG_LOCAL_EPOCHS": "2",
    "FDG_TARGET": "sketch",
    "FDG_LEARNING_RATE": "0.02",
    "FDG_SERVER_LR": "1",
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A user's folder with this project's jobs."""
    shutil.copytree(Path(__file__).parents[2] / "jobs", tmp_path / "jobs")
    return tmp_path


def lines_with(log: str, *words: str) -> list[str]:
    return [line for line in log.splitlines() if all(word in line for word in words)]


def test_the_bare_command_prints_a_line_per_round_and_epoch(folder: Path, data_root: Path) -> None:
    # With one thread, every task of every site has a process of its own.
    done = execute(NVFLARE, "simulator", JOB, folder=folder, env=shell(**TOY, FDG_DATA_ROOT=str(data_root)))
    log = done.stdout
    assert done.returncode == 0, log
    assert len(lines_with(log, "round 1/2 |", "sites 3/3", "source val", "target sketch", "ETA")) == 1
    assert len(lines_with(log, "round 2/2 |", "sites 3/3", "model after round 1")) == 1
    for site in ("photo", "art_painting", "cartoon"):
        assert len(lines_with(log, f"site {site} |", "epoch", "train loss")) == 4
    assert not lines_with(log, "site sketch |", "epoch"), "the held-out site trained"
    assert len(lines_with(log, "selected by source validation (round")) == 1
    assert "STAND-IN" not in log
    # From FLARE: the simulator is deprecated, no number of threads was given. From us: no ImageNet weights.
    assert len(lines_with(log, "WARNING")) <= 3
    assert "Traceback" not in log


def test_without_data_the_stand_in_is_used_and_said_in_every_line(folder: Path) -> None:
    small = {"FDG_ROUNDS": "1", "FDG_LOCAL_EPOCHS": "1", "FDG_THREADS": "1", "FDG_CACHE": str(folder / "cache")}
    done = execute(*ONE_PROCESS, JOB, "workspace", folder=folder, env=shell(**small))
    assert done.returncode == 0, done.stdout
    record = record_in(folder)
    assert (record.stand_in, record.data) == (True, "STAND-IN for PACS")
    for words in (["site", "epoch"], ["round 1/1 |"], ["Accuracy of the global model"], ["domain photo"]):
        lines = lines_with(done.stdout, *words)
        assert lines, words
        assert all("STAND-IN" in line for line in lines), lines
    (model,) = folder.rglob(LAST_FILE)
    with safe_open(model, framework="pt") as file:
        assert "STAND-IN" in file.metadata()["dataset"]
