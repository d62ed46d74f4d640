# SPDX-License-Identifier: Apache-2.0
"""Trackers by name: what a job may say, and what MLflow's database and Weights & Biases' offline files then hold."""

import os
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace

import pytest
from nvflare.apis.analytix import ANALYTIC_EVENT_TYPE, AnalyticsDataType
from nvflare.apis.event_type import EventType
from nvflare.apis.fl_constant import FLContextKey
from nvflare.apis.fl_context import FLContextManager
from nvflare.apis.utils.analytix_utils import create_analytic_dxo

from fdg_plugins.flare.trackers import TrackedRun, make_receiver

SETTINGS: dict[str, bool | int | float | str] = {"method": "fedomg", "target": "sketch", "seed": 3, "run": "j"}
RUN = TrackedRun("fedomg-pacs-sketch-seed3", "fdg-pacs", SETTINGS)


def track(name: str, folder: Path) -> None:
    """Track a run of two rounds, whose job has its folder at ``folder``."""
    engine = SimpleNamespace(
        get_workspace=lambda: SimpleNamespace(get_run_dir=lambda job: str(folder)),
        run_manager=SimpleNamespace(components={}),
        fire_event=lambda *_: None,
    )
    fl_ctx = FLContextManager(engine=engine, identity_name="server", job_id="j").new_context()
    receiver = make_receiver(name, RUN)
    receiver.handle_event(EventType.START_RUN, fl_ctx)
    for step in (0, 1):
        dxo = create_analytic_dxo("accuracy/target", 0.25 + step / 2, AnalyticsDataType.SCALAR, global_step=step)
        fl_ctx.set_prop(FLContextKey.EVENT_DATA, dxo.to_shareable(), private=True, sticky=False)
        receiver.handle_event(ANALYTIC_EVENT_TYPE, fl_ctx)
    receiver.handle_event(EventType.END_RUN, fl_ctx)


@pytest.mark.slow
@pytest.mark.skipif(find_spec("mlflow") is None, reason="mlflow is not installed (extra mlflow)")
def test_mlflow_has_name_settings_and_metrics(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from mlflow.tracking import MlflowClient

    address, folder = f"sqlite:///{tmp_path / 'runs.db'}", tmp_path / "job"
    monkeypatch.setenv("MLFLOW_TRACKING_URI", address)
    folder.mkdir()
    for _ in range(2):
        track("mlflow", folder)
    client = MlflowClient(address)
    experiment = client.get_experiment_by_name("fdg-pacs")
    runs = client.search_runs([experiment.experiment_id], order_by=["attributes.start_time"])
    assert [(run.info.run_name, run.info.status) for run in runs] == [(RUN.name, "FINISHED")] * 2
    assert runs[0].data.params == {name: str(value) for name, value in RUN.settings.items()}
    history = client.get_metric_history(runs[0].info.run_id, "accuracy/target")
    assert {metric.step: metric.value for metric in history} == {0: 0.25, 1: 0.75}
    assert list(folder.iterdir()) == []


@pytest.mark.slow
@pytest.mark.skipif(find_spec("wandb") is None, reason="wandb is not installed (extra wandb)")
def test_wandb_has_the_run_in_the_jobs_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("WANDB_MODE", raising=False)
    track("wandb", tmp_path)
    (file,) = (tmp_path / "wandb").glob("offline-run-*/*.wandb")
    content = file.read_bytes()
    for text in (RUN.name, RUN.group, "accuracy/target", "sketch"):
        assert text.encode() in content
    assert os.environ["WANDB_MODE"] == "offline"
