# SPDX-License-Identifier: Apache-2.0
"""Records of a run round by round, and an engine that hands them out without training anything."""

import sys
from pathlib import Path
from typing import Any, Literal

from fdg_plugins.lab.sweep.kinds import FederatedRuns
from fdg_plugins.lab.sweep.plan import PlannedRun
from fdg_plugins.lab.sweep.processes import Launch
from fdg_plugins.messages import CensusReply, Evaluation
from fdg_plugins.record.run_record import InitialWeights, LocalRecord, Method, RoundRecord, RunRecord
from fdg_plugins.settings.protocol import Protocol

PROGRAM = Path(__file__).with_name("fake_run.py")
SOURCES = ("cartoon", "photo", "sketch")
TARGET = "art_painting"
ROUNDS = 2


def census_reply(domain: str) -> CensusReply:
    """Return what a site says of itself."""
    fields: dict[str, Any] = {"class_counts": (5, 5), "num_train": 8, "num_validation": 2, "num_test": 10}
    split = {"split": "pacs/90-10@0", "split_hash": domain, "device": "cpu", "versions": {}}
    return CensusReply(domain=domain, dataset="pacs", stand_in=True, classes=("dog", "elephant"), **fields, **split)


def record_after(rounds: int, status: Literal["running", "finished", "stopped"] = "running") -> RunRecord:
    """Return the record after so many rounds; a finished run has evaluated its last model too."""
    record = RunRecord(
        stand_in=True,
        data="STAND-IN for PACS",
        started="2030-01-01T00:00:00+00:00",
        protocol=Protocol(target=TARGET, rounds=ROUNDS),
        method=Method(aggregator="FedAvgAggregator", settings={"server_lr": 1.0}),
        initial_weights=InitialWeights(label="from scratch"),
        versions={},
        classes=("dog", "elephant"),
        sources=SOURCES,
        held_out=(TARGET,),
        census={domain: census_reply(domain) for domain in (*SOURCES, TARGET)},
    )
    for number in range(rounds + (status == "finished")):
        scores = Evaluation.model_validate({"split": "test", "loss": 1.0, "accuracy": 0.5 + number / 10, "count": 100})
        record.add_evaluation(number, dict.fromkeys((*SOURCES, TARGET), scores))
    record.rounds = [finished_round(number + 1) for number in range(rounds)]
    record.choices = record.choose({"last": "global_model.safetensors"})
    record.status = status
    return record


def finished_round(number: int) -> RoundRecord:
    """Return the record of a round in which one of three sites did not answer."""
    trained = LocalRecord(epoch_losses=(0.5,), local=None, steps=1, learning_rate=0.1, num_samples=8, seconds=1.0)
    return RoundRecord(
        round=number,
        drawn=SOURCES,
        sites=SOURCES[:2],
        failures={SOURCES[2]: "no answer"},
        local=dict.fromkeys(SOURCES[:2], trained),
        seconds=6.0,
        aggregation_seconds=0.1,
        bytes_down=1,
        bytes_up=1,
    )


class FakeEngine(FederatedRuns):
    """Executes ``fake_run.py``, which writes ``records`` and then does what ``end`` says."""

    title = "a fake"

    def __init__(self, folder: Path, end: str, *records: RunRecord) -> None:
        self._program = (sys.executable, str(PROGRAM), str(folder), end)
        folder.mkdir(parents=True, exist_ok=True)
        for number, record in enumerate(records):
            (folder / f"{number}.json").write_text(record.model_dump_json(), encoding="utf-8")
        self.launches: list[Launch] = []

    def words(self, run: PlannedRun, at_once: int, sites: int) -> tuple[str, ...]:
        """Return the program in the simulator's place."""
        return self._program


def fake(folder: Path, end: str = "finishes") -> FakeEngine:
    """Return an engine for a run of two rounds, which only ``finishes`` and ``dies late`` bring to its end."""
    told = [record_after(1), record_after(2)]
    if end in ("finishes", "dies late"):
        told.append(record_after(2, "finished"))
    return FakeEngine(folder, end, *told)
