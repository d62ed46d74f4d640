# SPDX-License-Identifier: Apache-2.0
"""Every job folder: components that exist, settings that hold, keys that survive FLARE's own tools."""

import importlib
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from fdg_plugins.aggregators import UpdateAggregator
from fdg_plugins.controllers import FederationController
from fdg_plugins.controllers.setup import make_plans
from fdg_plugins.data import dataset_spec

JOBS = sorted(path for path in (Path(__file__).parents[1] / "jobs").iterdir() if path.is_dir())


@pytest.fixture(params=JOBS, ids=lambda path: path.name)
def job(request: pytest.FixtureRequest) -> Path:
    """Every job folder of the project."""
    folder: Path = request.param
    return folder


def read(job: Path, app: str, file: str) -> dict[str, Any]:
    content: dict[str, Any] = json.loads((job / app / "config" / file).read_text(encoding="utf-8"))
    return content


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


def test_its_name_and_its_sites_are_those_of_the_data_set(job: Path) -> None:
    meta = json.loads((job / "meta.json").read_text(encoding="utf-8"))
    assert meta["name"] == job.name
    assert meta["deploy_map"]["app_server"] == ["server"]
    protocol = read(job, "app_server", "config_fed_server.json")["workflows"][0]["args"]["protocol"]
    assert sorted(meta["deploy_map"]["app_site"]) == sorted(dataset_spec(protocol["dataset"]).domains)
    assert meta["min_clients"] <= len(meta["deploy_map"]["app_site"])


def test_every_component_can_be_built_from_its_arguments(job: Path) -> None:
    server = read(job, "app_server", "config_fed_server.json")
    site = read(job, "app_site", "config_fed_client.json")
    components = [node for node in nodes([server, site]) if "path" in node]
    assert len(components) >= 4
    for component in components:
        build(component)


def test_its_protocols_and_aggregator_settings_hold(job: Path) -> None:
    server = read(job, "app_server", "config_fed_server.json")
    controller = build(server["workflows"][0])
    assert isinstance(controller, FederationController)
    components = {component["id"]: component for component in server["components"]}
    aggregator = build(components[controller.aggregator_id])
    assert isinstance(aggregator, UpdateAggregator)
    plans = make_plans(controller.protocol or {}, controller.stand_in_protocol or {}, {}, aggregator.setting_names())
    assert plans.real.protocol.image_size == 224
    assert plans.stand_in.protocol.rounds < plans.real.protocol.rounds
    aggregator.configure(plans.stand_in.aggregator)


def test_its_keys_survive_the_submission_of_a_job(job: Path) -> None:
    # "nvflare job submit" rewrites the files, and cuts special characters out of keys.
    for path in job.rglob("*.json"):
        for node in nodes(json.loads(path.read_text(encoding="utf-8"))):
            assert [key for key in node if not re.fullmatch(r"[A-Za-z0-9_]+", key)] == [], path


def test_its_custom_folders_hold_no_code(job: Path) -> None:
    customs = [path for path in job.rglob("custom") if path.is_dir()]
    assert len(customs) == 2, "without custom folders the simulator refuses components off its own list"
    assert [file.name for custom in customs for file in custom.iterdir()] == ["README.md", "README.md"]


def test_a_filter_is_given_its_tasks_by_name(job: Path) -> None:
    configs = read(job, "app_server", "config_fed_server.json"), read(job, "app_site", "config_fed_client.json")
    chains = [chain for config in configs for chain in config.get("task_result_filters", [])]
    # FLARE knows no wildcard here: a filter for "*" would never run, and nobody would be told.
    assert all(chain["tasks"] == ["train"] for chain in chains)
    assert len(chains) in (0, 2), "a report is attached at the sites and checked at the server, or neither"
