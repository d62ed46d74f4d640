# SPDX-License-Identifier: Apache-2.0
"""A sweep over a plug-in's method, network and data set, and over a file at hand: simulator, report and plot."""

import sys
from pathlib import Path

import pytest

from fdg_plugins.record.run_record import RunRecord
from tests.processes import printed_by

pytestmark = pytest.mark.slow

FILE = Path(__file__).parents[2] / "custom" / "clipped_fedavg.py"
TINY = ("model=patchnet", "pretrained=none", "image_size=16", "rounds=2", "local_epochs=1", "batch_size=4")
METHODS = ("fedavg", "fedproto", "clipped_fedavg")


def test_sweep_runs_plugins_by_name(example_plugin: Path, blocks: Path, tmp_path: Path) -> None:
    def fdg(*words: object) -> str:
        command = Path(sys.executable).with_name("fdg")
        return printed_by(command, *words, PYTHONPATH=str(example_plugin), FDG_THREADS="1", MPLBACKEND="agg")

    folder = tmp_path / "sweep"
    settings = [word for setting in TINY for word in ("--set", setting)]
    grid = ["--dataset", "blocks", "--data-root", blocks, "--targets", "red", "--methods", ",".join(METHODS)]
    fdg("sweep", folder, *grid, *settings, "--plugin", FILE)
    records = [RunRecord.model_validate_json(path.read_bytes()) for path in folder.glob("runs/*/results.json")]
    assert len(records) == len(METHODS)
    assert {record.status for record in records} == {"finished"}
    assert {record.protocol.plugins for record in records} == {(), ("clipped_fedavg",)}
    assert "3 of 3 runs have finished, 0 of them now" in fdg("sweep", folder, "--data-root", blocks)
    report = fdg("report", folder, "--plugin", FILE)
    assert all(title in report for title in ("FedAvg", "FedProto", "Clipped FedAvg"))
    fdg("plot", "convergence", folder, "--to", tmp_path / "figures")
    assert list((tmp_path / "figures").glob("*.png"))
