# SPDX-License-Identifier: Apache-2.0
"""A recipe's tracker is a name in the job; the job names the same classes as without."""

import json
from pathlib import Path
from typing import Any

import pytest

from fdg_plugins.errors import SettingsError
from fdg_plugins.recipes import FDGRecipe


def server_config(folder: Path, **settings: Any) -> dict[str, Any]:
    FDGRecipe("fedomg", "pacs", name="job", **settings).export(str(folder))
    (file,) = folder.rglob("config_fed_server.json")
    content: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    return content


def test_the_workflow_is_told_a_name_and_no_class_is_added(tmp_path: Path) -> None:
    plain, tracked = server_config(tmp_path / "plain"), server_config(tmp_path / "tracked", tracking="mlflow")
    (workflow,) = tracked["workflows"]
    assert workflow["args"].pop("tracking") == "mlflow"
    assert tracked == plain


def test_an_address_is_no_tracker() -> None:
    with pytest.raises(SettingsError, match="expected one of mlflow, wandb"):
        FDGRecipe("fedomg", "pacs", tracking="http://elsewhere:5000")
