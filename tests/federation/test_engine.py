# SPDX-License-Identifier: Apache-2.0
"""``fdg run --engine poc``: a federation that is provisioned for one run, and gone after it."""

import signal
import subprocess
from pathlib import Path

from fdg_plugins.lab.sweep.run import processes_below
from tests.finished_runs import record_in, same_models
from tests.processes import FDG, printed_by

SETTINGS = [f"--set={text}" for text in ("rounds=30", "local_epochs=1", "image_size=16")]


def test_a_stopped_run_goes_on_in_another_federation_with_the_bits_of_one_process(tmp_path: Path) -> None:
    folder, whole = tmp_path / "run", tmp_path / "whole"
    run = subprocess.Popen(
        [FDG, "run", "fedomg", *SETTINGS, "--engine", "poc", "--to", str(folder)],
        stdout=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),  # a runner may ignore it
    )
    assert run.stdout is not None
    for line in run.stdout:
        if line.startswith("round 2/30"):
            run.send_signal(signal.SIGINT)
    assert run.wait(300) == 130
    assert processes_below(folder) == []
    stopped = record_in(folder)
    assert stopped.status == "stopped"
    assert 2 <= len(stopped.rounds) < 30

    printed_by(FDG, "resume", folder)
    record = record_in(folder)
    assert record.status == "finished"
    (complete,) = record.resumed_after
    assert complete - len(stopped.rounds) in (0, 1)  # the server writes its state, then the record
    # with one thread, as every site of the federation has
    printed_by(FDG, "run", "fedomg", *SETTINGS, "--engine", "process", "--to", whole, FDG_THREADS="1")
    assert same_models(folder, whole)
