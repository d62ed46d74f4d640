# SPDX-License-Identifier: Apache-2.0
"""Pooled Dice, which follows from sums over voxels, stands beside Dice in the record, its text and the tables."""

import csv
import json
from pathlib import Path

import pytest

from fdg_plugins.controllers import RunRecord
from fdg_plugins.lab.analysis import Run, build_table
from fdg_plugins.lab.analysis.grid import to_grid
from fdg_plugins.lab.analysis.render_csv import render_csv
from fdg_plugins.messages import Evaluation
from fdg_plugins.record.text import final_table
from tests.analysis.run_stubs import DOMAINS, FEDAVG, FEDOMG, finished


def evaluation(dice: float, hits: int, false: int, missed: int) -> Evaluation:
    """Return an evaluation of 10 images and 1,000 voxels."""
    voxels = {"true_positives_1": hits, "false_positives_1": false, "false_negatives_1": missed}
    sums = {name: {"sum": value, "count": 1000} for name, value in voxels.items()}
    return Evaluation(split="test", loss=1.0, count=10, sums={"dice": {"sum": 10 * dice, "count": 10}, **sums})


@pytest.fixture
def record() -> RunRecord:
    found = finished(accuracies=(), protocol={"task": "segmentation"})
    scores = {domain: evaluation(0.5, 30, 10, 10) for domain in DOMAINS}
    found.add_evaluation(0, {**scores, "cartoon": evaluation(0.4, 10, 20, 0), "photo": evaluation(0.2, 20, 60, 100)})
    found.choices = found.choose({})[:1]
    return found


def test_the_record_pools_voxels_over_the_sites_of_a_domain_and_reads_itself(record: RunRecord) -> None:
    assert record.evaluations[0].derived["pooled_dice"] == {
        "art_painting": 0.75, "cartoon": 0.5, "photo": 0.2, "sketch": 0.75,
    }  # fmt: skip
    assert RunRecord.model_validate_json(record.model_dump_json()) == record
    other = record.census["cartoon"]
    record.census["cartoon-2"] = other
    scores = {"cartoon": evaluation(0.4, 10, 20, 0), "cartoon-2": evaluation(1.0, 20, 0, 0)}
    assert record.add_evaluation(1, scores, expected=()).derived["pooled_dice"] == {"cartoon": 0.75}


def test_a_task_that_derives_nothing_leaves_the_record_as_it_was() -> None:
    assert "derived" not in json.loads(finished().model_dump_json())["evaluations"][0]


def test_the_text_has_a_row_below_each_model(record: RunRecord) -> None:
    head, _, row, pooled = final_table(record).splitlines()[2:6]
    assert " ".join(head.split()) == "model art_painting cartoon sketch source mean worst source target photo"
    assert row.split("  ")[0] == "last (round 0)"
    assert " ".join(pooled.split()) == "Pooled Dice 75.0 % 50.0 % 75.0 % 66.7 % 50.0 % 20.0 %"


def test_the_table_has_a_row_below_each_method(record: RunRecord) -> None:
    better = record.model_copy(update={"method": FEDOMG})
    table = build_table([Run(Path("a"), record), Run(Path("b"), better)], ("last",))
    rows = [[cell.text for cell in row] for row in to_grid(table).rows]
    assert [row[0] for row in rows] == ["FedAvg", "FedAvg, Pooled Dice", "FedOMG", "FedOMG, Pooled Dice"]
    assert [row[1] for row in rows] == ["20.0", "20.0", "20.0", "20.0"]
    lines = [line for line in csv.DictReader(render_csv(table).splitlines()) if line["target"] == "photo"]
    assert [(line["kind"], line["mean"]) for line in lines] == [("ours", "0.2"), ("pooled_dice", "0.2")] * 2
    assert record.method == FEDAVG
