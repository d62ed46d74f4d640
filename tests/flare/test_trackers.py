# SPDX-License-Identifier: Apache-2.0
"""Trackers by name: what a job may say, and what a real MLflow server and Weights & Biases' offline files then hold."""

import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace
from urllib.error import URLError
from urllib.request import urlopen

import pytest
from nvflare.apis.analytix import ANALYTIC_EVENT_TYPE, AnalyticsDataType
from nvflare.apis.event_type import EventType
from nvflare.apis.fl_component import FLComponent
from nvflare.apis.fl_constant import FLContextKey
from nvflare.apis.fl_context import FLContext, FLContextManager
from nvflare.apis.utils.analytix_utils import create_analytic_dxo

from fdg_plugins.errors import SettingsError
from fdg_plugins.flare.trackers import TrackedRun, chosen_tracker, make_receiver

SETTINGS: dict[str, bool | int | float | str] = {"method": "fedomg", "target": "sketch", "seed": 3, "run": "j"}
RUN = TrackedRun("fedomg-pacs-sketch-seed3", "fdg-pacs", SETTINGS)
needs_mlflow = pytest.mark.skipif(find_spec("mlflow") is None, reason="mlflow is not installed (extra mlflow)")
needs_wandb = pytest.mark.skipif(find_spec("wandb") is None, reason="wandb is not installed (extra wandb)")


def context(folder: Path, *components: FLComponent) -> FLContext:
    """Return the context of a server whose job has its folder at ``folder``."""
    workspace = SimpleNamespace(get_run_dir=lambda job: str(folder))
    manager = SimpleNamespace(components=dict(enumerate(components)))
    engine = SimpleNamespace(get_workspace=lambda: workspace, run_manager=manager, fire_event=lambda *_: None)
    made = FLContextManager(engine=engine, identity_name="server", job_id="j").new_context()
    return made


def send(receiver: FLComponent, fl_ctx: FLContext, tag: str, value: float, step: int) -> None:
    """Hand a number to a receiver."""
    dxo = create_analytic_dxo(tag, value, AnalyticsDataType.SCALAR, global_step=step)
    fl_ctx.set_prop(FLContextKey.EVENT_DATA, dxo.to_shareable(), private=True, sticky=False)
    receiver.handle_event(ANALYTIC_EVENT_TYPE, fl_ctx)


def track(name: str, folder: Path) -> None:
    """Track a run of two rounds."""
    receiver, fl_ctx = make_receiver(name, RUN), context(folder)
    receiver.handle_event(EventType.START_RUN, fl_ctx)
    for step in (0, 1):
        send(receiver, fl_ctx, "accuracy/target", 0.25 + step / 2, step)
    receiver.handle_event(EventType.END_RUN, fl_ctx)


@pytest.mark.parametrize("name", ["mlflow", "wandb"])
def test_a_missing_package_is_named_before_anything_starts(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fdg_plugins.flare.trackers.find_spec", lambda package: None)
    with pytest.raises(SettingsError, match=rf"needs a package: pip install 'fdg-plugins\[{name}\]'\.$"):
        chosen_tracker(name, {})


@pytest.fixture
def address(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """An MLflow server on this machine, which the environment names."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "mlflow", "server", "--host", "127.0.0.1", "--port", str(port), "--workers", "1"]
    command += ["--backend-store-uri", f"sqlite:///{tmp_path / 'server.db'}"]
    server = subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"http://127.0.0.1:{port}")
    try:
        wait_for(f"http://127.0.0.1:{port}")
        yield f"http://127.0.0.1:{port}"
    finally:
        server.terminate()
        server.wait(300)


def wait_for(address: str) -> None:
    """Return when the server answers."""
    for _ in range(600):
        try:
            urlopen(f"{address}/health", timeout=5).close()
        except (URLError, OSError):
            time.sleep(0.5)
        else:
            return
    raise TimeoutError(address)


@pytest.mark.slow
@needs_mlflow
def test_an_mlflow_server_has_the_run_with_its_name_its_settings_and_its_metrics(address: str, tmp_path: Path) -> None:
    from mlflow.tracking import MlflowClient

    folder = tmp_path / "job"
    folder.mkdir()
    for _ in range(2):
        track("mlflow", folder)
    client = MlflowClient(address)
    experiment = client.get_experiment_by_name("fdg-pacs")
    runs = client.search_runs([experiment.experiment_id], order_by=["attributes.start_time"])
    assert [run.info.run_name for run in runs] == [RUN.name] * 2
    assert sorted(run.info.status for run in runs) == ["FINISHED"] * 2
    assert runs[0].data.params == {name: str(value) for name, value in RUN.settings.items()}
    history = client.get_metric_history(runs[0].info.run_id, "accuracy/target")
    assert {metric.step: metric.value for metric in history} == {0: 0.25, 1: 0.75}
    assert list(folder.iterdir()) == []


@pytest.mark.slow
@needs_wandb
def test_weights_and_biases_has_the_run_in_the_folder_of_the_job(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("WANDB_MODE", raising=False)
    track("wandb", tmp_path)
    (file,) = (tmp_path / "wandb").glob("offline-run-*/*.wandb")
    content = file.read_bytes()
    for text in (RUN.name, RUN.group, "accuracy/target", "sketch"):
        assert text.encode() in content
    assert os.environ["WANDB_MODE"] == "offline"
