# SPDX-License-Identifier: Apache-2.0
"""A user's own folder through a sweep with a reference, the table, and all figures of the runs and of one of them."""

import shutil
from pathlib import Path

import pytest
from typer.testing import CliRunner

from fdg_plugins.cli.main import app
from tests.own_drawings import draw_own

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("no_fdg_variables")]

TARGET = "Bäder & Küchen"
TINY = ("image_size=16", "model=convnet", "rounds=1", "local_epochs=1", "erm:steps=2", "erm:checkpoint_every=2")


def fdg(*arguments: object) -> str:
    result = CliRunner().invoke(app, [*map(str, arguments)])
    assert result.exit_code == 0, result.output
    return result.stdout


def test_a_folder_of_ones_own_goes_through_sweep_report_and_figures(tmp_path: Path) -> None:
    photos, sweep = draw_own(tmp_path / "Meine Fotos"), tmp_path / "sweep"
    shutil.rmtree(photos / "sketch" / "Hund")
    settings = [text for setting in TINY for text in ("--set", setting)]
    fdg("sweep", sweep, "--methods", "fedavg,erm", "--dataset", photos, "--targets", TARGET, *settings)
    table = fdg("report", sweep)
    assert TARGET in table
    assert "Meine Fotos" in table
    assert fdg("plot", "all", sweep, "--to", tmp_path / "figures").count(": png") >= 3
    run = sweep / "runs" / "fedavg-Bader_Kuchen-seed0"
    assert "convergence: png" in fdg("plot", "all", run, "--to", tmp_path / "one")
