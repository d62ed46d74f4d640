# SPDX-License-Identifier: Apache-2.0
"""A sweep over a folder of one's own: with a reference, to the report and the figures."""

import shutil
from functools import partial
from pathlib import Path

import pytest

from tests.own_drawings import draw_own
from tests.processes import FDG, printed_by

pytestmark = pytest.mark.slow


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
