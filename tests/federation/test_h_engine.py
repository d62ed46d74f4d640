# SPDX-License-Identifier: Apache-2.0
"""``fdg run --engine poc``: a federation that is provisioned for one run, and gone after it."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import torch
from safetensors.torch import load_file

from fdg_plugins.controllers import RunRecord
from fdg_plugins.errors import DataError
from fdg_plugins.lab.sweep.run import processes_below
from fdg_plugins.storage import read_json

FDG = str(Path(sys.executable).with_name("fdg"))
SETTINGS = [f"--set={text}" for text in ("rounds=2", "local_epochs=1", "image_size=16")]
TIMEOUT_S = 300
MODELS = {"global_model.safetensors", "global_model_selected.safetensors"}


def test_a_stopped_run_goes_on_in_another_federation_with_the_bits_of_one_process(tmp_path: Path) -> None:
    folder, whole = tmp_path / "run", tmp_path / "whole"
    command = [FDG, "run", "fedomg", "--set=rounds=30", *SETTINGS[1:]]
    run = subprocess.Popen(
        [*command, "--engine", "poc", "--to", str(folder)],
        stdout=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),  # a runner may ignore it
    )
    assert run.stdout is not None
    for line in run.stdout:
        if line.startswith("round 2/30"):
            run.send_signal(signal.SIGINT)
    assert run.wait(TIMEOUT_S) == 130
    assert processes_below(folder) == []
    stopped = RunRecord.read(read_json(folder / "results.json"), "results.json", DataError)
    assert stopped.status == "stopped"
    assert 2 <= len(stopped.rounds) < 30

    subprocess.run([FDG, "resume", str(folder)], capture_output=True, timeout=TIMEOUT_S, check=True)
    record = RunRecord.read(read_json(folder / "results.json"), "results.json", DataError)
    assert record.status == "finished"
    (complete,) = record.resumed_after
    assert complete - len(stopped.rounds) in (0, 1)  # the server writes its state, then the record
    one_thread = {**os.environ, "FDG_THREADS": "1"}  # as every site of the federation has
    in_one = [*command, "--engine", "process", "--to", str(whole)]
    subprocess.run(in_one, env=one_thread, capture_output=True, timeout=TIMEOUT_S, check=True)
    for name in MODELS:
        ours, theirs = load_file(folder / name), load_file(whole / name)
        assert ours.keys() == theirs.keys()
        assert all(torch.equal(value, theirs[key]) for key, value in ours.items()), name
