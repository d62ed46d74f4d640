# SPDX-License-Identifier: Apache-2.0
"""What goes wrong in a run: one sentence that names it; in the simulator where its separate processes matter."""

import json
import shutil
from pathlib import Path

import pytest

from .conftest import Simulator

pytestmark = pytest.mark.slow

JOB = "jobs/pacs_fedomg"
TOY = {"FDG_MODEL": "convnet", "FDG_IMAGE_SIZE": "16", "FDG_ROUNDS": "1", "FDG_LOCAL_EPOCHS": "1", "FDG_THREADS": "1"}

DYING_EXECUTOR = '''
import os
from fdg_plugins.executors import SiteExecutor

class DyingExecutor(SiteExecutor):
    """Dies without a word in the middle of its first training task."""

    def execute(self, task_name, shareable, fl_ctx, abort_signal):
        if task_name == "train" and fl_ctx.get_identity_name() == "photo":
            os._exit(9)
        return super().execute(task_name, shareable, fl_ctx, abort_signal)
'''


def test_unreadable_image_is_named(simulator: Simulator, data_root: Path, tmp_path: Path) -> None:
    damaged = tmp_path / "damaged"
    shutil.copytree(data_root, damaged)
    (damaged / "pacs" / "cartoon" / "dog" / "000.png").write_bytes(b"not an image")
    local = tmp_path / "simulator_workspace" / "local"
    local.mkdir(parents=True)
    sites = ("photo", "art_painting", "cartoon", "sketch")
    config = {site: {"data_root": str(damaged if site == "cartoon" else data_root)} for site in sites}
    (local / "fdg_site.json").write_text(json.dumps(config))
    # The site's own config wins: the environment names a folder that does not exist.
    run = simulator.run(JOB, "-t", "4", settings={**TOY, "FDG_DATA_ROOT": str(tmp_path / "nowhere")})
    assert run.returncode != 0
    assert run.lines("site cartoon cannot take part", "cartoon/dog/000.png"), "a simulation names the file"
    assert run.lines("site cartoon | task 'census' failed", "cartoon/dog/000.png")
    assert not run.lines("site photo cannot take part")


def let_photo_die(simulator: Simulator) -> None:
    app = simulator.folder / JOB / "app_site"
    (app / "custom" / "dying.py").write_text(DYING_EXECUTOR)
    config = app / "config" / "config_fed_client.json"
    config.write_text(config.read_text().replace("fdg_plugins.executors.SiteExecutor", "dying.DyingExecutor"))


def test_a_site_that_dies_is_named_and_the_round_goes_on_with_the_others(simulator: Simulator, data_root: Path) -> None:
    let_photo_die(simulator)
    run = simulator.run(JOB, "-t", "4", settings={**TOY, "FDG_DATA_ROOT": str(data_root), "FDG_TASK_TIMEOUT": "40"})
    assert run.returncode == 0, run.log
    record = run.record()
    assert record.rounds[0].sites == ("cartoon", "sketch")
    assert record.rounds[0].failures == {"photo": "did not answer within 40 s."}
    assert record.rounds[0].aggregation is not None
    assert record.evaluations[-1].domains.keys() == {"art_painting", "cartoon", "sketch"}
    assert run.lines("WARNING", "site photo: did not answer within 40 s.")
