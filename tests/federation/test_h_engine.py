# SPDX-License-Identifier: Apache-2.0
"""``fdg run --engine poc``: a federation that is provisioned for one run, and gone after it."""

import os
import subprocess
import sys
from pathlib import Path

from fdg_plugins.controllers import RunRecord
from fdg_plugins.errors import DataError
from fdg_plugins.storage import load_tensors, read_json
from fdg_plugins.sweep.processes import processes_below

FDG = str(Path(sys.executable).with_name("fdg"))
WORDS = ["run", "fedomg", *(f"--set={text}" for text in ("rounds=2", "local_epochs=1", "image_size=16"))]


def run(folder: Path, engine: str) -> RunRecord:
    """Run the job on the stand-in; return its record."""
    command = [FDG, *WORDS, "--engine", engine, "--to", str(folder)]
    environment = {**os.environ, "FDG_THREADS": "1"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert processes_below(folder) == []
    return RunRecord.read(read_json(folder / "results.json"), "results.json", DataError)


def test_a_federation_of_its_own_ends_with_the_bits_of_one_process_and_leaves_nothing_else(tmp_path: Path) -> None:
    federation, process = tmp_path / "federation", tmp_path / "process"
    assert run(federation, "poc").status == "finished"
    run(process, "process")
    for name in ("global_model.safetensors", "global_model_selected.safetensors"):
        one, other = load_tensors(federation / name), load_tensors(process / name)
        assert one.keys() == other.keys()
        assert all(one[key].equal(other[key]) for key in one), name
    assert {path.name for path in federation.iterdir()} == {path.name for path in process.iterdir()}
