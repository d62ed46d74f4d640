# SPDX-License-Identifier: Apache-2.0
"""A sweep over a plug-in's method, network and data set, and over a file at hand: simulator, report and plot."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from fdg_plugins.record.run_record import RunRecord

pytestmark = pytest.mark.slow

FILE = Path(__file__).parents[2] / "custom" / "clipped_fedavg.py"
TINY = ("model=patchnet", "pretrained=none", "image_size=16", "rounds=2", "local_epochs=1", "batch_size=4")
METHODS = ("fedavg", "fedproto", "clipped_fedavg")


@pytest.fixture(scope="module")
def environment(example_plugin: Path) -> dict[str, str]:
    clean = {name: value for name, value in os.environ.items() if not name.startswith("FDG_")}
    return {**clean, "PYTHONPATH": str(example_plugin), "FDG_THREADS": "1", "MPLBACKEND": "agg"}


def fdg(environment: dict[str, str], *words: object) -> str:
    command = [str(Path(sys.executable).with_name("fdg")), *map(str, words)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=900, check=False)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    return done.stdout


def test_a_sweep_runs_them_by_name_and_report_and_plot_know_their_titles(
    environment: dict[str, str], blocks: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "sweep"
    settings = [word for setting in TINY for word in ("--set", setting)]
    grid = ["--dataset", "blocks", "--data-root", blocks, "--targets", "red", "--methods", ",".join(METHODS)]
    fdg(environment, "sweep", folder, *grid, *settings, "--plugin", FILE)
    records = [RunRecord.model_validate_json(path.read_bytes()) for path in folder.glob("runs/*/results.json")]
    assert len(records) == len(METHODS)
    assert {record.status for record in records} == {"finished"}
    assert {record.protocol.plugins for record in records} == {(), ("clipped_fedavg",)}
    assert "3 of 3 runs have finished, 0 of them now" in fdg(environment, "sweep", folder, "--data-root", blocks)
    report = fdg(environment, "report", folder, "--plugin", FILE)
    assert all(title in report for title in ("FedAvg", "FedProto", "Clipped FedAvg"))
    fdg(environment, "plot", "convergence", folder, "--to", tmp_path / "figures")
    assert list((tmp_path / "figures").glob("*.png"))
