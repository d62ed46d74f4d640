# SPDX-License-Identifier: Apache-2.0
"""The page on plug-ins: its file is complete, and its job, explanation and entry points are as it says."""

import json
import re
import tomllib
from pathlib import Path

import pytest
import torch
from typer.testing import CliRunner

from fdg_plugins.aggregators import Contribution, make_weighting
from fdg_plugins.cli.main import app
from fdg_plugins.models import build_model
from fdg_plugins.plugins.files import load_file
from fdg_plugins.testing import WEIGHTING_CONTRACT

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "plugins.md").read_text(encoding="utf-8")


def block(language: str) -> str:
    found: list[str] = re.findall(rf"```{language}\n(.*?)```", PAGE, re.DOTALL)
    return found[0]


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "my_method.py"
    path.write_text(block("python"), encoding="utf-8")
    return path


def test_the_file_is_complete(file: Path) -> None:
    load_file(file)
    model = build_model("small_net", 3, seed=0)
    assert model(torch.zeros(2, 3, 16, 16)).shape == (2, 3)
    contributions = [Contribution(site, {}, samples) for site, samples in (("a", 1), ("b", 9))]
    assert make_weighting("root")(contributions).tolist() == [0.25, 0.75]
    for promise in WEIGHTING_CONTRACT:
        promise(type(make_weighting("root")))


def test_the_commands_know_its_names(file: Path, tmp_path: Path) -> None:
    explained = CliRunner().invoke(app, ["explain", "fedroot", "--plugin", str(file)])
    assert "FedRoot: weights follow the square root" in explained.output
    sections = ("In a job on", "Formulas", "Settings", "What leaves a site")
    shown = [section for section in sections if f"\n{section}" in explained.output]
    assert shown == ["In a job on", "What leaves a site"], "no section is empty"
    command = ["export-job", "--method", "fedomg+root", "--plugin", str(file), "--to", str(tmp_path / "jobs")]
    made = CliRunner().invoke(app, command)
    assert "it brings the code of my_method.py" in made.output, made.output
    app_server = tmp_path / "jobs" / "pacs_fedomg_root" / "app_server"
    config = json.loads((app_server / "config" / "config_fed_server.json").read_text(encoding="utf-8"))
    assert config["workflows"][0]["args"]["protocol"]["plugins"] == ["my_method"]
    assert config["workflows"][0]["args"]["aggregator"]["weighting"] == {"name": "root"}
    assert (app_server / "custom" / "my_method.py").read_text(encoding="utf-8") == block("python")


def test_the_entry_points_are_those_of_the_example() -> None:
    announced = tomllib.loads((ROOT / "examples" / "plugin" / "pyproject.toml").read_text(encoding="utf-8"))
    assert tomllib.loads(block("toml"))["project"]["entry-points"] == announced["project"]["entry-points"]
