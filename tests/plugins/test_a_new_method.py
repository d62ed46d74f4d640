# SPDX-License-Identifier: Apache-2.0
"""The method of CONTRIBUTING.md, of which only its own files are new, is explained, run and reported."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.docs.test_contributing import files_of, write

TREE = Path(__file__).parents[2]
TEST = '''\
# SPDX-License-Identifier: Apache-2.0
"""q-FFL, from its page in the terminal to a line in a report."""

from pathlib import Path

import pytest
from typer.testing import CliRunner

import fdg_plugins
from fdg_plugins.cli.main import app
from fdg_plugins.flare.components import SERVER, class_paths
from fdg_plugins.lab.sweep.jobs import canonical_name
from fdg_plugins.plugins.composition import parse_method, title_of
from fdg_plugins.recipes import make_recipe
from tests.controllers.test_every_method import run

pytestmark = pytest.mark.usefixtures("wire", "no_fdg_variables")


def fdg(*arguments: str) -> str:
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 0, result.output
    return result.stdout


def test_it_has_a_name_an_explanation_a_recipe_and_a_place_on_the_allow_list() -> None:
    assert Path(fdg_plugins.__file__).is_relative_to(Path.cwd())
    assert "qffl" in fdg("explain")
    page = fdg("explain", "qffl")
    assert page.startswith("q-FFL: weights that favour sites")
    assert "q 1" in page
    assert canonical_name("FedOMG+qffl") == parse_method("qffl+omg").name == "fedomg+qffl"
    assert title_of("fedomg+qffl") == "FedOMG + q-FFL"
    assert make_recipe("qffl", "pacs", q=0.25).name == "pacs_qffl"
    assert "fdg_plugins.methods.fedavg.FedAvgAggregator" in class_paths(SERVER, ["qffl"])


def test_it_trains_and_is_reported(tmp_path: Path) -> None:
    for method in ("qffl", "fedomg+qffl"):
        job = run(method, tmp_path / method, max_samples_per_domain=30)
        assert job.record.status == "finished"
        assert sum(job.record.rounds[0].aggregation.weights.values()) == pytest.approx(1)
    lines = fdg("report", str(tmp_path)).splitlines()
    assert [line.split("  ")[0] for line in lines if "q-FFL" in line][:2] == ["FedOMG + q-FFL", "q-FFL"]
'''


@pytest.mark.slow
def test_the_files_of_a_method_are_enough(tmp_path: Path) -> None:
    for folder in ("fdg_plugins", "docs/methods", "tests/controllers", "tests/recipes"):
        shutil.copytree(TREE / folder, tmp_path / folder, ignore=shutil.ignore_patterns("__pycache__"))
    for file in (
        "pyproject.toml",
        "tests/__init__.py",
        "tests/conftest.py",
        "tests/finished_runs.py",
        "tests/flare_runner.py",
    ):
        shutil.copy(TREE / file, tmp_path / file)
    files = files_of("Add a method")
    del files["run"]
    write({**files, "tests/controllers/test_qffl.py": TEST}, tmp_path)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "tests/controllers/test_qffl.py"]
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    done = subprocess.run(
        command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=900, check=False
    )
    assert done.returncode == 0, done.stdout[-4000:]
    assert "2 passed" in done.stdout
