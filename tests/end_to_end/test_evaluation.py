# SPDX-License-Identifier: Apache-2.0
"""The job ``evaluate`` by FLARE's simulator: the same counts as in one process."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from fdg_plugins.lab.engine.evaluation import read_result
from fdg_plugins.record.run_files import EVALUATION_FILE
from tests.cli.commands import fdg
from tests.evaluation.finished import finished_run, fitted

from .conftest import Simulator

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("no_fdg_variables")]


def test_the_simulator_and_one_process_count_the_same(
    simulator: Simulator, data_root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = ("fedavg", "fedomg")
    runs = [finished_run(tmp_path / name, fitted(data_root, seed)) for seed, name in enumerate(names)]
    done = fdg("evaluate", *runs, "--data", data_root, "--to", tmp_path / "here")
    assert done.exit_code == 0, done.output
    here = read_result(tmp_path / "here" / EVALUATION_FILE)
    job = simulator.folder / "jobs" / "evaluate"  # the one that the package keeps; models are put into it by hand
    for run in runs:
        shutil.copytree(run, job / "app_server" / "models" / run.name)
    local = simulator.folder / "workspace" / "local"
    local.mkdir(parents=True)
    entries: dict[str, Any] = {
        site: {"data_root": str(data_root), "least_count": 1} for site in ("sketch", "art_painting")
    }
    entries["photo"] = entries["cartoon"] = {"data_root": str(data_root)}
    (local / "fdg_site.json").write_text(json.dumps(entries))
    simulated = simulator.run("jobs/evaluate", "-w", "workspace", "-t", "4", settings={}, workspace="workspace")
    assert simulated.returncode == 0, simulated.log
    there = read_result(simulated.folder / EVALUATION_FILE)
    assert there.sites == here.sites
    assert set(there.left_out) == {"cartoon", "photo"}
