# SPDX-License-Identifier: Apache-2.0
"""A new method costs three files: its record, its page and its test. Everything that has a list of methods finds it."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

TREE = Path(__file__).parents[2]
TIMEOUT_S = 900

RECORD = '''\
# SPDX-License-Identifier: Apache-2.0
"""FedPower: the sites' weights follow a power of their numbers of samples.

For a federation of very unequal sites: between FedAvg's weights by samples and uniform ones.
"""

from collections.abc import Sequence

import torch

from fdg_plugins.aggregators.contributions import Contribution
from fdg_plugins.aggregators.weightings import ONLY_ROUND, RoundOf, Weighting
from fdg_plugins.plugins.method import Default, Equation, Method, Reference, SettingSource


class PowerWeighting(Weighting):
    """``n_u ** power`` over the round's total.

    Args:
        power: from 0, uniform weights, to 1, by samples.
    """


    def __init__(self, power: float = 0.5) -> None:
        self.power = power

    def __call__(self, contributions: Sequence[Contribution], round_of: RoundOf = ONLY_ROUND) -> torch.Tensor:
        """Return the weights, float64 ``[U]``."""
        counts = torch.tensor([contribution.num_samples for contribution in contributions], dtype=torch.float64)
        return counts**self.power / (counts**self.power).sum()


METHOD = Method(
    key="fedpower",
    title="FedPower",
    part="power",
    part_title="Power",
    line="weights of the sites are a power of their numbers of samples",
    reference=Reference(authors="Nobody", title="A Method of This Test", venue="Nowhere", year=2026),
    acts=("weighting",),
    weighting=PowerWeighting,
    defaults=(Default(weighting={"power": 0.5}, source="ours"),),
    letters="nu number of samples; p power",
    equations=(Equation(formula="w = nu^p / sum nu^p", meaning="weights of a round"),),
    settings=(SettingSource(name="power", symbol="p", paper="0.5"),),
)
'''

PAGE = "# FedPower\n\nWeights of the sites are a power of their numbers of samples.\n"

TEST = '''\
# SPDX-License-Identifier: Apache-2.0
"""FedPower, from its page in the terminal to a line in a report."""

from pathlib import Path

import pytest
from typer.testing import CliRunner

import fdg_plugins
from fdg_plugins.cli.main import app
from fdg_plugins.flare.components import SERVER, class_paths
from fdg_plugins.plugins.composition import parse_method, title_of
from fdg_plugins.recipes import make_recipe
from fdg_plugins.lab.sweep.kinds import FEDERATED
from tests.controllers.test_every_method import run

pytestmark = pytest.mark.usefixtures("wire", "no_fdg_variables")


def fdg(*arguments: str) -> str:
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 0, result.output
    return result.stdout


def test_this_is_the_copy() -> None:
    assert Path(fdg_plugins.__file__).is_relative_to(Path.cwd())


def test_it_is_explained() -> None:
    assert "fedpower" in fdg("explain")
    page = fdg("explain", "fedpower")
    assert page.startswith("FedPower: weights of the sites are a power")
    assert "power 0.5" in page
    assert "FedOMG + Power" in fdg("explain", "omg + fedpower")


def test_it_has_a_name_a_recipe_and_a_place_on_the_allow_list() -> None:
    assert FEDERATED.canonical_name("FedOMG+fedpower") == parse_method("power+omg").name == "fedomg+power"
    assert title_of("fedomg+power") == "FedOMG + Power"
    assert make_recipe("fedpower", "pacs", power=0.25).name == "pacs_fedpower"
    assert "fdg_plugins.methods.fedavg.FedAvgAggregator" in class_paths(SERVER, ["fedpower"])


def test_it_trains_and_is_reported(tmp_path: Path) -> None:
    for method in ("fedpower", "fedomg+power"):
        job = run(method, tmp_path / method, max_samples_per_domain=30)
        assert job.record.status == "finished"
        assert sum(job.record.rounds[0].aggregation.weights.values()) == pytest.approx(1)
    lines = fdg("report", str(tmp_path)).splitlines()
    assert [line.split("  ")[0] for line in lines if "Power" in line][:2] == ["FedOMG + Power", "FedPower"]
'''

ADDED = {
    "fdg_plugins/methods/fedpower.py": RECORD,
    "docs/methods/fedpower.md": PAGE,
    "tests/controllers/test_fedpower.py": TEST,
}


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """A copy of what a method may need of the tree, with the three files added and no other changed."""
    to = tmp_path / "copy"
    for folder in ("fdg_plugins", "docs/methods", "tests/controllers"):
        shutil.copytree(TREE / folder, to / folder, ignore=shutil.ignore_patterns("__pycache__"))
    for file in ("pyproject.toml", "tests/__init__.py", "tests/conftest.py", "tests/flare_runner.py"):
        shutil.copy(TREE / file, to / file)
    for file, text in ADDED.items():
        assert not (to / file).exists(), "a method adds files, and changes none"
        (to / file).write_text(text, encoding="utf-8")
    return to


@pytest.mark.slow
def test_three_files_are_explained_run_and_reported(copy: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": str(copy)}
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "tests/controllers/test_fedpower.py"]
    done = subprocess.run(
        command, cwd=copy, env=environment, capture_output=True, text=True, timeout=TIMEOUT_S, check=False
    )
    assert done.returncode == 0, done.stdout[-4000:]
    assert "4 passed" in done.stdout
