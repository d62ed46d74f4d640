# SPDX-License-Identifier: Apache-2.0
"""``fdg run --engine poc``: a federation that is provisioned for one run, and gone after it."""

import subprocess
import sys
from pathlib import Path

from fdg_plugins.controllers import RunRecord
from fdg_plugins.errors import DataError
from fdg_plugins.storage import read_json
from fdg_plugins.sweep.processes import processes_below

FDG = str(Path(sys.executable).with_name("fdg"))
SETTINGS = [f"--set={text}" for text in ("rounds=2", "local_epochs=1", "image_size=16")]
LEFT = {"job", "log.txt", "results.json", "run.json", "server_state.json", "tb_events"}
MODELS = {"global_model.safetensors", "global_model_selected.safetensors"}


def test_a_run_in_a_federation_of_its_own_leaves_its_results_and_nothing_else(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    command = [FDG, "run", "fedomg", *SETTINGS, "--engine", "poc", "--to", str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert processes_below(folder) == []
    record = RunRecord.read(read_json(folder / "results.json"), "results.json", DataError)
    assert record.status == "finished"
    assert [len(finished.sites) for finished in record.rounds] == [3, 3]
    assert {path.name for path in folder.iterdir()} == LEFT | MODELS
