# SPDX-License-Identifier: Apache-2.0
"""Scripts of a user's own and FLARE's ScatterAndGather with our parts, in FLARE's simulator."""

import json
import os
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from fdg_plugins.core import invariant_direction
from fdg_plugins.core.steps import effective_steps
from fdg_plugins.record.run_files import SIMULATOR_FOLDER
from tests.processes import execute, printed_by

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


SITES = ("site-1", "site-2", "site-3")
INITIAL = [1.0, -1.0, 0.5]
FEDOMG: dict[str, Any] = {"kappa": 0.5, "server_lr": 0.8, "rescale": True, "weighting": "uniform"}

# What the sites load from the job: one whose update depends on the model it received, so that the second round shows
# whether the first one's step was taken.
TOY = """
import numpy as np
from nvflare.apis.dxo import DXO, DataKind, MetaKey, from_shareable
from nvflare.apis.executor import Executor


def update(site, model):
    number = int(site[-1])
    target = np.array([number, -2.0 * number, number**2], np.float32)
    return {name: (target - value) / 4 for name, value in model.items()}


class ToyExecutor(Executor):
    def execute(self, task_name, shareable, fl_ctx, abort_signal):
        data = update(fl_ctx.get_identity_name(), from_shareable(shareable).data)
        return DXO(DataKind.WEIGHT_DIFF, data=data, meta={MetaKey.NUM_STEPS_CURRENT_ROUND: 10}).to_shareable()
"""


def component(path: str, **args: Any) -> dict[str, Any]:
    return {"path": path, "args": args}


def write_job(folder: Path, workflows: list[dict[str, Any]], components: list[dict[str, Any]]) -> None:
    fast = {"format_version": 2, "np_download_chunk_size": 0}  # inline, as the arrays are small
    server = {**fast, "server": {"task_request_interval": 0.05}, "workflows": workflows, "components": components}
    executor = {"tasks": ["train"], "executor": component("toy.ToyExecutor")}
    meta = {"name": folder.name, "min_clients": 3, "resource_spec": {}, "deploy_map": {"app": ["@ALL"]}}
    for name, content in (
        ("meta.json", meta),
        ("app/config/config_fed_server.json", server),
        ("app/config/config_fed_client.json", {**fast, "executors": [executor], "components": []}),
    ):
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(content))
    (folder / "app/custom").mkdir()
    (folder / "app/custom/toy.py").write_text(TOY)


def expected_model() -> np.ndarray:
    """Return the model after the rounds, from the sites' known updates."""
    names: dict[str, Any] = {}
    exec(TOY, names)
    model = np.array(INITIAL, np.float32)
    for _ in range(2):
        updates = np.stack([names["update"](site, {"w": model})["w"] for site in SITES])
        direction = invariant_direction(torch.from_numpy(updates).double(), [1 / 3] * 3, FEDOMG["kappa"], rescale=True)
        model = model + FEDOMG["server_lr"] * direction.numpy()
    return model


GENERATOR = "nvflare.app_common.shareablegenerators.full_model_shareable_generator.FullModelShareableGenerator"


def test_scatter_and_gather_takes_the_steps_of_fedomg(tmp_path: Path) -> None:
    own = {"aggregator_id": "aggregator", "shareable_generator_id": "generator", "persistor_id": "persistor"}
    workflow = component(
        "nvflare.app_common.workflows.scatter_and_gather.ScatterAndGather", num_rounds=2, min_clients=3, **own
    )
    parts = {
        "generator": component(GENERATOR),
        "aggregator": component("fdg_plugins.methods.fedomg.FedOMGAggregator", **FEDOMG),
        "persistor": component("nvflare.app_common.np.np_model_persistor.NPModelPersistor", model=INITIAL),
    }
    write_job(tmp_path / "job", [{"id": "sag", **workflow}], [{"id": name, **one} for name, one in parts.items()])
    command = [sys.executable, "-m", "nvflare.cli", "simulator", "job", "-w", "workspace", "-n", "3", "-t", "3"]
    printed_by(*command, folder=tmp_path, OMP_NUM_THREADS="1")
    (saved,) = (tmp_path / "workspace").rglob("server.npy")
    found = np.load(saved)
    assert found.dtype == np.float32
    np.testing.assert_allclose(found, expected_model(), rtol=1e-5)
