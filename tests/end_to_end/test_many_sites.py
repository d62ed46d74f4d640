# SPDX-License-Identifier: Apache-2.0
"""Many sites that share five domains, some of them drawn for each round, in the simulator with two threads."""

from pathlib import Path
from types import ModuleType

import pytest

from fdg_plugins.data import open_domain
from fdg_plugins.storage import read_json
from tests.scripts import load_script

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
