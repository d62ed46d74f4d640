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
    for _ in range(ROUNDS):
        updates = np.stack([names["update"](site, {"w": model})["w"] for site in SITES])
        direction = invariant_direction(torch.from_numpy(updates).double(), [1 / 3] * 3, FEDOMG["kappa"], rescale=True)
        model = model + FEDOMG["server_lr"] * direction.numpy()
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
        "persistor": component("nvflare.app_common.np.np_model_persistor.NPModelPersistor", model=INITIAL),
    }
    write_job(tmp_path / "job", [{"id": "sag", **workflow}], [{"id": name, **one} for name, one in parts.items()])
    command = [sys.executable, "-m", "nvflare.cli", "simulator", "job", "-w", "workspace", "-n", "3", "-t", "3"]
    printed_by(*command, folder=tmp_path, OMP_NUM_THREADS="1")
    (saved,) = (tmp_path / "workspace").rglob("server.npy")
    found = np.load(saved)
    assert found.dtype == np.float32
    np.testing.assert_allclose(found, expected_model(), rtol=1e-5)
