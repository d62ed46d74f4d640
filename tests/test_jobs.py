# SPDX-License-Identifier: Apache-2.0
"""Every job folder: components that exist, settings that hold, keys that survive FLARE's own tools."""

import importlib
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from fdg_plugins.aggregators import make_aggregator
from fdg_plugins.controllers import FederationController
from fdg_plugins.data import dataset_spec
from fdg_plugins.objectives import make_objective
from fdg_plugins.plans.plans import make_plans
from tests.recipes.exported_jobs import config, filters

JOBS = sorted(path for path in (Path(__file__).parents[1] / "jobs").iterdir() if path.is_dir())
SERVER, SITE = "app_server/config/config_fed_server.json", "app_site/config/config_fed_client.json"

every_job = pytest.mark.parametrize("job", JOBS, ids=lambda job: str(job.name))


def nodes(value: Any) -> Iterator[dict[str, Any]]:
    """Yield every object in a JSON value."""
    if isinstance(value, dict):
        yield value
        value = list(value.values())
    if isinstance(value, list):
        for item in value:
            yield from nodes(item)


def build(component: dict[str, Any]) -> Any:
    module, _, name = component["path"].rpartition(".")
    return getattr(importlib.import_module(module), name)(**component.get("args", {}))


@every_job
def test_names_sites_keys_and_folders_are_those_that_flare_takes(job: Path) -> None:
    meta = config(job, "meta.json")
    protocol = config(job)["workflows"][0]["args"]["protocol"]
    assert (meta["name"], meta["deploy_map"]["app_server"]) == (job.name, ["server"])
    assert sorted(meta["deploy_map"]["app_site"]) == sorted(dataset_spec(protocol["dataset"]).domains)
    assert meta["min_clients"] <= len(meta["deploy_map"]["app_site"])
    # "nvflare job submit" rewrites the files, and cuts special characters out of keys.
    found = [node for path in job.rglob("*.json") for node in nodes(json.loads(path.read_text(encoding="utf-8")))]
    assert [key for node in found for key in node if not re.fullmatch(r"[A-Za-z0-9_]+", key)] == []
    # Without custom folders the simulator refuses components off its own list.
    customs = [path for path in job.rglob("custom") if path.is_dir()]
    assert [file.name for custom in customs for file in custom.iterdir()] == ["README.md", "README.md"]


@every_job
def test_components_can_be_built_settings_hold_and_filters_are_those_of_both_ends(job: Path) -> None:
    made = [build(node) for node in nodes([config(job), config(job, SITE)]) if "path" in node]
    (controller,) = (one for one in made if isinstance(one, FederationController))
    aggregator = make_aggregator(controller.aggregator or "")
    objective = make_objective((controller.protocol or {}).get("objective", "erm"))
    names = list(aggregator.settings())
    plans = make_plans(controller.protocol or {}, controller.stand_in_protocol or {}, {}, names)
    assert plans.stand_in.protocol.rounds < plans.real.protocol.rounds
    aggregator = aggregator.configured(plans.stand_in.aggregator)
    server, site = (
        {key: [name for name, _ in chain] for key, chain in filters(job, file).items()} for file in (SERVER, SITE)
    )
    # What privacy filters of the site see last is packed last at the site, and taken off first at the server.
    at_site = {"Check": "Report", "Send": "Receive"}
    for key, chain in server.items():
        expected = [re.sub("Check|Send", lambda found: at_site[found[0]], name) for name in chain[::-1]]
        assert site[key] == expected
    assert server.keys() == site.keys()
    assert (("task_data_filters", "train") in server) is (objective.report is not None)
    assert (("task_result_filters", "probe") in server) is objective.probes


def test_jobs_of_one_data_set_differ_only_in_what_names_the_method() -> None:
    of_methods = {"objective", "momentum", "keep_momentum", "gap_split", "travels", "batch_norm"}
    groups: dict[str, list[Any]] = {}
    for job in JOBS:
        server = config(job)
        arguments = server["workflows"][0]["args"]
        arguments.pop("aggregator")
        arguments["protocol"] = {name: one for name, one in arguments["protocol"].items() if name not in of_methods}
        common = {name: value for name, value in server.items() if "filters" not in name}
        groups.setdefault(job.name.partition("_")[0], []).append(common)
    assert {name: len(group) for name, group in groups.items()} == {"pacs": 41, "rotatedmnist": 4, "vessels": 6}
    assert all(common == group[0] for group in groups.values() for common in group)
