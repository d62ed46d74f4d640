# SPDX-License-Identifier: Apache-2.0
"""Records of a run round by round, and an engine that hands them out without training anything."""

import sys
from pathlib import Path
from typing import Literal

from fdg_plugins.lab.sweep.kinds import FederatedRuns
from fdg_plugins.lab.sweep.plan import PlannedRun
from fdg_plugins.lab.sweep.processes import Launch
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


class FakeEngine(FederatedRuns):
    """Executes ``fake_run.py``, which writes ``records`` and then does what ``end`` says."""

    title = "a fake"

    def __init__(self, folder: Path, end: str, *records: RunRecord, pause: float = 0.25) -> None:
        self._program = (sys.executable, str(PROGRAM), str(folder), end, str(pause))
        folder.mkdir(parents=True, exist_ok=True)
        for number, record in enumerate(records):
            (folder / f"{number}.json").write_text(record.model_dump_json(), encoding="utf-8")
        self.launches: list[Launch] = []

    def words(self, run: PlannedRun, at_once: int, sites: int) -> tuple[str, ...]:
        """Return the program in the simulator's place."""
        return self._program


def fake(folder: Path, end: str = "finishes", pause: float = 0.25) -> FakeEngine:
    """Return an engine for a run of two rounds, which only ``finishes`` and ``dies late`` bring to its end."""
    told = [record_after(1), record_after(2)]
    if end in ("finishes", "dies late"):
        told.append(record_after(2, "finished"))
    return FakeEngine(folder, end, *told, pause=pause)
