# SPDX-License-Identifier: Apache-2.0
"""FedOMG inside FLARE's ScatterAndGather, in its simulator: three sites, two rounds, the model that follows.

In FLARE's FedAvg it is in ``test_client_api.py``.
"""

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from fdg_plugins.core import invariant_direction
from tests.processes import printed_by

pytestmark = pytest.mark.slow

ROUNDS = 2
SAMPLES = {"site-1": 10, "site-2": 30, "site-3": 60}
FEDOMG: dict[str, Any] = {"kappa": 0.5, "server_lr": 0.8, "rescale": True, "weighting": "uniform"}

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
    """Run the job of ``folder`` in FLARE's simulator."""
    command = [sys.executable, "-m", "nvflare.cli", "simulator", folder, "-w", folder.parent / "workspace"]
    printed_by(*command, "-n", "3", "-t", "3", folder=folder.parent, OMP_NUM_THREADS="1")


def toy() -> dict[str, Any]:
    names: dict[str, Any] = {}
    exec(TOY, names)
    return names


def expected_model() -> Params:
    """Return the model after the rounds, from the sites' known updates."""
    names, model = toy(), toy()["initial"]()
    for _ in range(ROUNDS):
        updates = [names["update"](site, model) for site in sorted(SAMPLES)]
        matrix = torch.from_numpy(np.stack([update["w"] for update in updates])).double()
        direction = invariant_direction(matrix, [1 / 3] * 3, FEDOMG["kappa"], rescale=True)
        assert isinstance(direction, torch.Tensor)
        model["w"] = model["w"] + FEDOMG["server_lr"] * direction.numpy()
        model["bn.running_mean"] = model["bn.running_mean"] + np.mean([u["bn.running_mean"] for u in updates], axis=0)
        model["bn.num_batches_tracked"] = model["bn.num_batches_tracked"] + 30  # site-3 counts the most
    return model


GENERATOR = "nvflare.app_common.shareablegenerators.full_model_shareable_generator.FullModelShareableGenerator"


def test_scatter_and_gather_takes_the_steps_of_fedomg(tmp_path: Path) -> None:
    own = {"aggregator_id": "aggregator", "shareable_generator_id": "generator", "persistor_id": "persistor"}
    workflow = component(
        "nvflare.app_common.workflows.scatter_and_gather.ScatterAndGather", num_rounds=ROUNDS, min_clients=3, **own
    )
    parts = {
        "generator": component(GENERATOR),
        "aggregator": component("fdg_plugins.methods.fedomg.FedOMGAggregator", **FEDOMG),
        "persistor": component("toy.ToyPersistor", file=str(tmp_path / "model.npz")),
    }
    write_job(tmp_path / "job", [{"id": "sag", **workflow}], [{"id": name, **one} for name, one in parts.items()])
    simulate(tmp_path / "job")
    expected = expected_model()
    with np.load(tmp_path / "model.npz") as saved:
        final = dict(saved)
    assert final.keys() == expected.keys()
    for key, value in expected.items():
        np.testing.assert_allclose(final[key], value, rtol=1e-5, err_msg=key)
    assert final["bn.num_batches_tracked"].dtype == np.int64
    assert final["w"].dtype == np.float32
    reports = [json.loads(line) for line in (tmp_path / "model.npz.reports").read_text().splitlines()]
    assert [report["sites"] for report in reports] == [sorted(SAMPLES)] * ROUNDS
    assert all("gamma" in report for report in reports)
