# SPDX-License-Identifier: Apache-2.0
"""The example of a method of one's own does what it says."""

import os
import re
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from fdg_plugins.aggregators import AGGREGATORS, make_aggregator
from fdg_plugins.controllers import RunRecord
from fdg_plugins.plugins.files import load_file
from fdg_plugins.testing import AGGREGATOR_CONTRACT
from tests.aggregators.trained_sites import aggregate, contribution, vector
from tests.processes import printed_by

PROJECT = Path(__file__).parents[2]
CUSTOM = PROJECT / "custom"
TINY = {"FDG_ROUNDS": "1", "FDG_LOCAL_EPOCHS": "1", "FDG_MODEL": "convnet", "FDG_IMAGE_SIZE": "16"}


@pytest.fixture(autouse=True)
def loaded() -> None:
    load_file(CUSTOM / "clipped_fedavg.py")


def test_no_update_counts_for_more_than_the_median_length() -> None:
    aggregator = make_aggregator({"name": "clipped_fedavg", "weighting": "uniform"})
    sent = [contribution(site, vector(*value)) for site, value in (("a", (1, 0)), ("b", (0, 2)), ("c", (300, 0)))]
    # Lengths 1, 2, 300; the median is 2, so the last is shortened to [2, 0].
    assert aggregate(aggregator, sent).params["w"].tolist() == pytest.approx([1.0, 2 / 3])


@pytest.mark.parametrize("promise", AGGREGATOR_CONTRACT, ids=lambda promise: promise.__name__)
def test_it_keeps_what_every_aggregator_promises(promise: Callable[..., None]) -> None:
    promise(AGGREGATORS["clipped_fedavg"])


@pytest.mark.slow
def test_the_commands_of_the_readme_run_the_aggregator(tmp_path: Path) -> None:
    (commands,) = re.findall(r"```bash\n(.*?)```", (CUSTOM / "README.md").read_text(encoding="utf-8"), re.DOTALL)
    commands = commands.replace("/tmp/jobs", str(tmp_path / "jobs"))
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    words = ["bash", "-euc", f"{commands.strip()} -t 4 -w {tmp_path / 'workspace'}"]
    printed_by(*words, folder=PROJECT, **TINY, PATH=path, FDG_THREADS="1")
    results = tmp_path / "workspace" / "server" / "simulate_job" / "results.json"
    record = RunRecord.model_validate_json(results.read_bytes())
    assert (record.status, record.method.aggregator) == ("finished", "ClippedFedAvgAggregator")
