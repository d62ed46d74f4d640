# SPDX-License-Identifier: Apache-2.0
"""Many sites that share five domains, some of them drawn for each round, in the simulator with two threads."""

from pathlib import Path
from types import ModuleType

import pytest

from fdg_plugins.data import open_domain
from fdg_plugins.storage import read_json
from tests.scripts import load_script

from .conftest import Simulator

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def example() -> ModuleType:
    """The example script."""
    return load_script(ROOT / "examples" / "many_sites.py")


@pytest.mark.usefixtures("no_fdg_variables")
def test_the_sites_of_a_domain_hold_each_of_its_images_once(example: ModuleType, tmp_path: Path) -> None:
    names = example.write_federation(ROOT / "jobs" / "rotatedmnist_fediir", 50, tmp_path / "many", None)
    entries = read_json(tmp_path / "many" / "workspace" / "local" / "fdg_site.json")
    assert names == list(entries)
    assert len(names) == 51
    assert names[0] == "angle_0"
    assert read_json(tmp_path / "many" / "job" / "meta.json")["deploy_map"]["app_site"] == names
    of_domain = [entry for entry in entries.values() if entry["domain"] == "angle_30"]
    assert len(of_domain) == 10
    held: list[str] = []
    for entry in of_domain:
        number, count = map(int, entry["part"].split("/"))
        data = open_domain(None, "rotatedmnist", "angle_30", seed=0, part=(number, count))
        held += [sample.file for sample in (*data.train, *data.validation)]
    whole = open_domain(None, "rotatedmnist", "angle_30", seed=0)
    assert sorted(held) == sorted(sample.file for sample in (*whole.train, *whole.validation))


@pytest.mark.nightly
@pytest.mark.usefixtures("no_fdg_variables")
def test_more_sites_than_threads_take_turns(example: ModuleType, simulator: Simulator) -> None:
    names = example.write_federation(ROOT / "jobs" / "rotatedmnist_feddim", 6, simulator.folder / "many", None)
    settings = {
        "FDG_SITES_PER_ROUND": "3",
        # Every turn of a site is a process of its own, also if there is nothing to do: a round takes minutes.
        "FDG_ROUNDS": "1",
        "FDG_LOCAL_EPOCHS": "1",
        "FDG_IMAGE_SIZE": "16",
        "FDG_THREADS": "1",
    }
    run = simulator.run("many/job", "-t", "2", "-w", "many/workspace", settings=settings, workspace="many/workspace")
    assert run.returncode == 0, run.log
    record = run.record()
    assert len(record.sources) == 6
    (finished,) = record.rounds
    assert len(finished.drawn) == 3
    assert (finished.sites, finished.failures, finished.refused_reports) == (finished.drawn, {}, {})
    assert set(record.evaluations[-1].sites) == set(names)
    assert run.lines("round 1/1", "sites 3/3")
