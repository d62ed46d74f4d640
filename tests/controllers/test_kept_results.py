# SPDX-License-Identifier: Apache-2.0
"""The results of a simulation outlive its workspace, and never replace those of another one."""

import shutil
from pathlib import Path

import pytest

from fdg_plugins.controllers.kept_results import keep_results


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    """A simulator's workspace with the results of a run."""
    results = tmp_path / "workspace" / "server" / "simulate_job"
    (results / "tb_events").mkdir(parents=True)
    (results / "results.json").write_text("record")
    (results / "global_model.safetensors").write_text("model")
    (results / "tb_events" / "events").write_text("events")
    (results / "mlflow.db").write_text("metrics")
    (results / "meta.json").write_text("FLARE's own")
    return tmp_path / "workspace"


def keep(workspace: Path) -> Path:
    return keep_results(workspace / "server" / "simulate_job", workspace, "fedomg-pacs-sketch-seed0")


@pytest.mark.parametrize("links", [True, False])
def test_what_is_kept_outlives_the_workspace(workspace: Path, links: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if not links:
        monkeypatch.setattr("os.link", refuse)
    folder, other = keep(workspace), keep(workspace)
    assert folder != other
    shutil.rmtree(workspace)
    assert folder.parent == workspace.parent / "runs"
    left = {str(path.relative_to(folder)): path.read_text() for path in folder.rglob("*") if path.is_file()}
    assert left == {
        "results.json": "record",
        "global_model.safetensors": "model",
        "tb_events/events": "events",
        "mlflow.db": "metrics",
    }


def refuse(*_: object) -> None:
    raise OSError("no links here")
