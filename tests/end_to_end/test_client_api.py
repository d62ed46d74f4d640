# SPDX-License-Identifier: Apache-2.0
"""Scripts of a user's own with our parts, in FLARE's simulator."""

import json
import os
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch

from fdg_plugins.core.steps import effective_steps
from fdg_plugins.record.run_files import SIMULATOR_FOLDER
from tests.processes import execute

pytestmark = pytest.mark.slow

EXAMPLE = Path(__file__).parents[2] / "examples" / "client_api" / "job.py"
ROUNDS = 4
STEPS = (3, 4, 6)  # batches of 32 among 96, 128 and 192 images


@dataclass(frozen=True)
class Outcome:
    """What a job left: everything printed, the aggregator's last report, the accuracy of each round's model."""

    log: str
    report: dict[str, Any]
    accuracies: list[float]


def run(folder: Path, name: str, *arguments: str) -> Outcome:
    """Run the example in ``folder``; show the log if it fails."""
    done = execute(sys.executable, EXAMPLE, *arguments, folder=folder, env={**os.environ, "OMP_NUM_THREADS": "1"})
    assert done.returncode == 0, done.stdout[-8000:]
    server = folder / "simulator_workspace" / name / SIMULATOR_FOLDER
    saved = torch.load(server / "app_server" / "FL_global_model.pt", weights_only=True)
    rounds = [json.loads(line) for line in (server / "metrics" / "round_metrics.jsonl").read_text().splitlines()]
    metrics = [{one["name"]: one["value"] for one in each["aggregated_metrics"]} for each in rounds]
    return Outcome(done.stdout, saved["meta_props"]["fdg_report"], [each["accuracy"] for each in metrics])


def assert_all_reports_count(outcome: Outcome, report: str) -> None:
    """Every round learned from all three reports, nothing was refused, and the model has become better."""
    assert outcome.log.count(f"learned from 3 reports ({report})") == ROUNDS, outcome.log[-8000:]
    assert "refused" not in outcome.log
    assert "did not write metrics artifacts" not in outcome.log
    assert outcome.report["sites"] == ["site-1", "site-2", "site-3"]
    assert len(outcome.accuracies) == ROUNDS
    assert outcome.accuracies[-1] > max(0.5, outcome.accuracies[0])


def test_a_plain_script_takes_part_in_feddg_ga_and_feddim_under_fedomg(tmp_path: Path) -> None:
    outcome = run(tmp_path, "own_script")
    assert_all_reports_count(outcome, "class_means")
    assert all(isinstance(gap, float) for gap in outcome.report["gaps"])
    assert len(set(outcome.report["weights"])) == 3  # uniform without gaps
    assert "gamma" in outcome.report


@pytest.mark.nightly
def test_a_script_with_lightning_takes_part_in_fednova_and_fediir(tmp_path: Path) -> None:
    outcome = run(tmp_path, "own_lightning", "lightning")
    assert_all_reports_count(outcome, "classifier_gradient")
    assert outcome.report["effective_steps"] == pytest.approx([effective_steps(steps, 0.9) for steps in STEPS])
