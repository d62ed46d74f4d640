# SPDX-License-Identifier: Apache-2.0
"""The aggregators inside FLARE's own workflows, in its simulator: three sites, two rounds, the model that follows.

Each simulated job runs its workflow twice, one after the other: with FedOMG, then with FedAvg.
"""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from fdg_plugins.core import invariant_direction

pytestmark = pytest.mark.slow

SECONDS = 900
ROUNDS = 2
SAMPLES = {"site-1": 10, "site-2": 30, "site-3": 60}
FEDOMG: dict[str, Any] = {"kappa": 0.5, "server_lr": 0.8, "rescale": True, "weighting": "uniform"}
FEDAVG: dict[str, Any] = {"weighting": "samples", "server_lr": 0.5}

# What the sites and the server load from the job: a site whose update depends on the model it received, so that the
# second round shows whether the first one's step was taken, and a persistor of several arrays.
TOY = """
import json
from pathlib import Path

import numpy as np
from nvflare.apis.dxo import DXO, DataKind, MetaKey, from_shareable
from nvflare.apis.executor import Executor
from nvflare.app_common.abstract.model import ModelLearnableKey, make_model_learnable
from nvflare.app_common.abstract.model_persistor import ModelPersistor

SAMPLES = @SAMPLES@


def initial():
    return {
        "w": np.array([1.0, -1.0, 0.5], np.float32),
        "bn.running_mean": np.zeros(2, np.float32),
        "bn.num_batches_tracked": np.array(0, np.int64),
    }


def update(site, model):
    number = int(site[-1])
    target = np.array([number, -2.0 * number, number**2], np.float32)
    return {
        "w": (target - model["w"]) / 4,
        "bn.running_mean": (np.full(2, number, np.float32) - model["bn.running_mean"]) / 2,
        "bn.num_batches_tracked": np.array(10 * number, np.int64),
    }


class ToyExecutor(Executor):
    def execute(self, task_name, shareable, fl_ctx, abort_signal):
        site = fl_ctx.get_identity_name()
        data = update(site, from_shareable(shareable).data)
        meta = {MetaKey.NUM_STEPS_CURRENT_ROUND: SAMPLES[site]}
        return DXO(DataKind.WEIGHT_DIFF, data=data, meta=meta).to_shareable()


class ToyPersistor(ModelPersistor):
    def __init__(self, file):
        super().__init__()
        self.file = file

    def load_model(self, fl_ctx):
        return make_model_learnable(initial(), {})

    def save_model(self, model, fl_ctx):
        np.savez(self.file, **model[ModelLearnableKey.WEIGHTS])
        report = model[ModelLearnableKey.META].get("fdg_report", {})
        with Path(self.file + ".reports").open("a") as reports:
            reports.write(json.dumps(report) + "\\n")
""".replace("@SAMPLES@", repr(SAMPLES))

Params = dict[str, np.ndarray]


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


def simulate(folder: Path) -> None:
    """Run the job of ``folder`` in FLARE's simulator; show the log if it fails."""
    command = [sys.executable, "-m", "nvflare.cli", "simulator", str(folder), "-w", str(folder.parent / "workspace")]
    one_thread = {**os.environ, "OMP_NUM_THREADS": "1"}
    with (folder.parent / "log.txt").open("w+") as log:
        outcome = subprocess.run(
            [*command, "-n", "3", "-t", "3"],
            cwd=folder.parent,
            env=one_thread,
            stdout=log,
            stderr=subprocess.STDOUT,
            timeout=SECONDS,
            check=False,
        )
        log.seek(0)
        assert outcome.returncode == 0, log.read()[-8000:]


def toy() -> dict[str, Any]:
    names: dict[str, Any] = {}
    exec(TOY, names)
    return names


def expected_model(direction: Callable[[np.ndarray], np.ndarray], p: np.ndarray, server_lr: float) -> Params:
    """The model after the rounds, from the sites' known updates: ``direction`` maps the updates ``[U, P]`` to d."""
    names, model = toy(), toy()["initial"]()
    for _ in range(ROUNDS):
        updates = [names["update"](site, model) for site in sorted(SAMPLES)]
        model["w"] = model["w"] + server_lr * direction(np.stack([update["w"] for update in updates]))
        model["bn.running_mean"] = model["bn.running_mean"] + p @ np.stack([u["bn.running_mean"] for u in updates])
        model["bn.num_batches_tracked"] = model["bn.num_batches_tracked"] + 30  # site-3 counts the most
    return model


def fedomg_direction(updates: np.ndarray) -> np.ndarray:
    direction = invariant_direction(torch.from_numpy(updates).double(), [1 / 3] * 3, FEDOMG["kappa"], rescale=True)
    assert isinstance(direction, torch.Tensor)
    return direction.numpy()


def assert_models_and_reports(folder: Path) -> None:
    """Both workflows of the job left the model and the reports that the mathematics gives."""
    shares = np.array([0.1, 0.3, 0.6])
    expected = {
        "fedomg": expected_model(fedomg_direction, np.full(3, 1 / 3), FEDOMG["server_lr"]),
        "fedavg": expected_model(lambda updates: shares @ updates, shares, FEDAVG["server_lr"]),
    }
    for name, model in expected.items():
        with np.load(folder / f"{name}.npz") as saved:
            final = dict(saved)
        assert final.keys() == model.keys()
        for key, value in model.items():
            np.testing.assert_allclose(final[key], value, rtol=1e-5, err_msg=f"{name}: {key}")
        assert final["bn.num_batches_tracked"].dtype == np.int64
        assert final["w"].dtype == np.float32
        reports = [json.loads(line) for line in (folder / f"{name}.npz.reports").read_text().splitlines()]
        assert [report["sites"] for report in reports] == [sorted(SAMPLES)] * ROUNDS
        assert all(("gamma" in report) is (name == "fedomg") for report in reports)


AGGREGATORS = {
    "fedomg": component("fdg_plugins.methods.fedomg.FedOMGAggregator", **FEDOMG),
    "fedavg": component("fdg_plugins.methods.fedavg.FedAvgAggregator", **FEDAVG),
}
GENERATOR = "nvflare.app_common.shareablegenerators.full_model_shareable_generator.FullModelShareableGenerator"


@pytest.mark.parametrize("stock", ["fedavg.FedAvg", "scatter_and_gather.ScatterAndGather"])
def test_a_workflow_of_flares_takes_the_steps_of_the_aggregators(tmp_path: Path, stock: str) -> None:
    workflows, components = [], [{"id": "generator", **component(GENERATOR)}]
    for name, aggregator in AGGREGATORS.items():
        own: dict[str, Any] = {"num_rounds": ROUNDS, "persistor_id": f"{name}_persistor"}
        if stock == "fedavg.FedAvg":
            own |= {"num_clients": 3, "task_check_period": 0.05, "aggregator": aggregator}
        else:
            own |= {"min_clients": 3, "aggregator_id": f"{name}_aggregator", "shareable_generator_id": "generator"}
            components.append({"id": f"{name}_aggregator", **aggregator})
        workflows.append({"id": name, **component(f"nvflare.app_common.workflows.{stock}", **own)})
        persistor = component("toy.ToyPersistor", file=str(tmp_path / f"{name}.npz"))
        components.append({"id": f"{name}_persistor", **persistor})
    write_job(tmp_path / "job", workflows, components)
    simulate(tmp_path / "job")
    assert_models_and_reports(tmp_path)
