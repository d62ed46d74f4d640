# SPDX-License-Identifier: Apache-2.0
"""The page on plug-ins: its file is complete, and its job, explanation and entry points are as it says."""

import json
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import torch
from typer.testing import CliRunner

from fdg_plugins.aggregators import Contribution, make_weighting
from fdg_plugins.cli.main import app
from fdg_plugins.models import build_model
from fdg_plugins.plugins.files import load_file
from fdg_plugins.tasks import TASKS
from fdg_plugins.testing import WEIGHTING_CONTRACT

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "plugins.md").read_text(encoding="utf-8")


def block(language: str) -> str:
    found: list[str] = re.findall(rf"```{language}\n(.*?)```", PAGE, re.DOTALL)
    return found[0]


def in_one_thread() -> dict[str, str]:
    return {**os.environ, "OMP_NUM_THREADS": "1"}


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


def test_the_files_of_the_page_load_and_keep_the_promises_of_their_contracts(tmp_path: Path) -> None:
    files = dict(re.findall(r"```python\n# (\w+\.py)\n(.*?)```", PAGE, re.DOTALL))
    for name, text in files.items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    assert set(files) == {"my_method.py", "median.py", "near.py", "top_two.py", "contracts.py"}
    done = subprocess.run(
        [sys.executable, "contracts.py"], cwd=tmp_path, capture_output=True, text=True, check=False, env=in_one_thread()
    )
    assert done.stderr == ""
    assert done.stdout == re.findall(r"\$ python contracts\.py\n(.*?)```", PAGE, re.DOTALL)[0]


def test_the_metric_of_the_page_is_judged_at_both_ends(tmp_path: Path) -> None:
    text = next(one for one in re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL) if one.startswith("# top_two.py"))
    (tmp_path / "top_two.py").write_text(text, encoding="utf-8")
    load_file(tmp_path / "top_two.py")
    task = TASKS.get("top_two")
    logits = torch.tensor([[3.0, 2.0, 1.0], [3.0, 2.0, 1.0]])
    total, count = task.sums(logits, torch.tensor([1, 2]))["top_two_accuracy"]
    assert (float(total), count) == (1.0, 2)
    assert task.complaint({"top_two_accuracy": (1.0, 2)}, 2, 3) is None
    assert task.complaint({"top_two_accuracy": (1.0, 2)}, 3, 3) == "its top_two_accuracy is over 2 images, expected 3"
    assert task.complaint({"accuracy": (1.0, 2)}, 2, 3) is not None


def test_the_commands_know_its_names(file: Path, tmp_path: Path) -> None:
    explained = CliRunner().invoke(app, ["explain", "fedroot", "--plugin", str(file)])
    assert "FedRoot: weights follow the square root" in explained.output
    sections = ("In a job on", "Formulas", "Settings", "What leaves a site")
    shown = [section for section in sections if f"\n{section}" in explained.output]
    assert shown == ["In a job on", "What leaves a site"], "no section is empty"
    command = ["export", "job", "--method", "fedomg+root", "--plugin", str(file), "--to", str(tmp_path / "jobs")]
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
