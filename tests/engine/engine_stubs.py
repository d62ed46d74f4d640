# SPDX-License-Identifier: Apache-2.0
"""Records of a run round by round, and an engine that hands them out without training anything."""

import sys
from pathlib import Path
from typing import Literal

from fdg_plugins.lab.sweep.machine import Engine
from fdg_plugins.record.run_record import RunRecord
from tests.controllers.federation_stubs import round_record, run_record, scores

PROGRAM = Path(__file__).with_name("fake_run.py")
ROUNDS = 2


def record_after(rounds: int, status: Literal["running", "finished", "stopped"] = "running") -> RunRecord:
    """Return the record after so many rounds; a finished run has evaluated its last model too."""
    record = run_record(stand_in=True, label="from scratch")
    for number in range(rounds + (status == "finished")):
        record.add_evaluation(number, scores(*[0.5 + number / 10] * 4))
    record.rounds = [round_record(number + 1, seconds=6.0) for number in range(rounds)]
    record.choices = record.choose({"last": "global_model.safetensors"})
    record.status = status
    return record


def fake_engine(folder: Path, end: str, *records: RunRecord) -> Engine:
    """Return an engine that executes ``fake_run.py``, which writes ``records`` and then does what ``end`` says."""
    folder.mkdir(parents=True, exist_ok=True)
    for number, record in enumerate(records):
        (folder / f"{number}.json").write_text(record.model_dump_json(), encoding="utf-8")
    words = (sys.executable, str(PROGRAM), str(folder), end)
    return Engine("a fake", lambda *_: words, splits_at="#")


def fake(folder: Path, end: str = "finishes") -> Engine:
    """Return an engine for a run of two rounds, which only ``finishes`` and ``dies late`` bring to its end."""
    told = [record_after(1), record_after(2)]
    if end in ("finishes", "dies late"):
        told.append(record_after(2, "finished"))
    return fake_engine(folder, end, *told)
