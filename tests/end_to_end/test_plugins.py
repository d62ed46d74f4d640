# SPDX-License-Identifier: Apache-2.0
"""Sweeps over plug-ins and over a folder of one's own: with a reference, to the report and the figures."""

import shutil
from functools import partial
from pathlib import Path

import pytest

from fdg_plugins.record.run_record import RunRecord
from tests.own_drawings import draw_own
from tests.processes import FDG, printed_by

pytestmark = pytest.mark.slow

FILE = Path(__file__).parents[2] / "custom" / "clipped_fedavg.py"
TINY = ("model=patchnet", "pretrained=none", "image_size=16", "rounds=2", "local_epochs=1", "batch_size=4")
METHODS = ("fedavg", "fedproto", "clipped_fedavg")


def test_sweep_runs_plugins_by_name(example_plugin: Path, blocks: Path, tmp_path: Path) -> None:
    fdg = partial(printed_by, FDG, PYTHONPATH=str(example_plugin), FDG_THREADS="1", MPLBACKEND="agg")
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


TARGET = "Bäder & Küchen"
OWN = ("image_size=16", "model=convnet", "rounds=1", "local_epochs=1", "erm:steps=2", "erm:checkpoint_every=2")


@pytest.mark.usefixtures("no_fdg_variables")
def test_a_folder_of_ones_own_goes_through_sweep_report_and_figures(tmp_path: Path) -> None:
    fdg = partial(printed_by, FDG, FDG_THREADS="1", MPLBACKEND="agg")
    photos, sweep = draw_own(tmp_path / "Meine Fotos"), tmp_path / "sweep"
    shutil.rmtree(photos / "sketch" / "Hund")
    settings = [text for setting in OWN for text in ("--set", setting)]
    fdg("sweep", sweep, "--methods", "fedavg,erm", "--dataset", photos, "--targets", TARGET, *settings)
    table = fdg("report", sweep)
    assert TARGET in table
    assert "Meine Fotos" in table
    assert fdg("plot", "all", sweep, "--to", tmp_path / "figures").count(": png") >= 3
    run = sweep / "runs" / "fedavg-Bader_Kuchen-seed0"
    assert "convergence: png" in fdg("plot", "all", run, "--to", tmp_path / "one")
