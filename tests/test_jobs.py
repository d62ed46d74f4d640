# SPDX-License-Identifier: Apache-2.0
"""Every job folder: components that exist, settings that hold, keys that survive FLARE's own tools."""

import importlib
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from fdg_plugins.aggregators import make_aggregator
from fdg_plugins.controllers import FederationController
from fdg_plugins.data import dataset_spec
from fdg_plugins.messages import REPORT_GAP
from fdg_plugins.objectives import make_objective
from fdg_plugins.plans.plans import make_plans

JOBS = sorted(path for path in (Path(__file__).parents[1] / "jobs").iterdir() if path.is_dir())


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


def test_names_sites_keys_and_folders_are_those_that_flare_takes() -> None:
    for job in JOBS:
        meta = json.loads((job / "meta.json").read_text(encoding="utf-8"))
        protocol = read(job, "app_server", "config_fed_server.json")["workflows"][0]["args"]["protocol"]
        assert (meta["name"], meta["deploy_map"]["app_server"]) == (job.name, ["server"])
        assert sorted(meta["deploy_map"]["app_site"]) == sorted(dataset_spec(protocol["dataset"]).domains)
        assert meta["min_clients"] <= len(meta["deploy_map"]["app_site"])
        # "nvflare job submit" rewrites the files, and cuts special characters out of keys.
        found = [node for path in job.rglob("*.json") for node in nodes(json.loads(path.read_text(encoding="utf-8")))]
        assert [key for node in found for key in node if not re.fullmatch(r"[A-Za-z0-9_]+", key)] == [], job.name
        # Without custom folders the simulator refuses components off its own list.
        customs = [path for path in job.rglob("custom") if path.is_dir()]
        assert [file.name for custom in customs for file in custom.iterdir()] == ["README.md", "README.md"], job.name


def test_every_component_can_be_built_and_the_settings_hold() -> None:
    for job in JOBS:
        server = read(job, "app_server", "config_fed_server.json")
        site = read(job, "app_site", "config_fed_client.json")
        made = [build(node) for node in nodes([server, site]) if "path" in node]
        assert len(made) >= 3
        (controller,) = (one for one in made if isinstance(one, FederationController))
        assert controller.aggregator is not None
        aggregator = make_aggregator(controller.aggregator)
        names = aggregator.setting_names()
        plans = make_plans(controller.protocol or {}, controller.stand_in_protocol or {}, {}, names)
        sizes = {"pacs": 224, "rotatedmnist": 28, "vessels": 192}
        assert plans.real.protocol.image_size == sizes[str(plans.real.protocol.dataset)]
        assert plans.stand_in.protocol.rounds < plans.real.protocol.rounds
        aggregator.configure(plans.stand_in.aggregator)


def chains(config: dict[str, Any]) -> dict[tuple[str, str], list[str]]:
    """Return the filters' class names by kind and task, in order."""
    return {
        (kind, task): [filter_["path"].rpartition(".")[2] for filter_ in chain["filters"]]
        for kind in ("task_data_filters", "task_result_filters")
        for chain in config.get(kind, [])
        for task in chain["tasks"]
    }


def test_its_filters_are_those_that_its_method_needs_at_both_ends() -> None:
    for job in JOBS:
        server = read(job, "app_server", "config_fed_server.json")
        controller = build(server["workflows"][0])
        assert controller.aggregator is not None
        aggregator = make_aggregator(controller.aggregator)
        objective = make_objective(controller.protocol.get("objective", "erm"))
        gap = aggregator.rule().shares == REPORT_GAP
        exchanges = objective.report is not None
        probe, train, down = (
            ("task_result_filters", "probe"),
            ("task_result_filters", "train"),
            ("task_data_filters", "train"),
        )
        wanted: dict[tuple[str, str], list[str]] = {}
        # What privacy filters of the site see last is packed last at the site, and taken off first at the server.
        if gap or exchanges:
            wanted[train] = ["ExchangeCheckFilter"] * exchanges + ["GapCheckFilter"] * gap
        if exchanges:
            wanted[down] = ["ExchangeSendFilter"]
        if objective.probes:
            wanted[probe] = ["ExchangeCheckFilter"]
        # FLARE knows no wildcard here: a filter for "*" would never run, and nobody would be told.
        assert chains(server) == wanted
        at_site = {"Check": "Report", "Send": "Receive"}
        for chain, names in wanted.items():
            for there, here in at_site.items():
                names[:] = [name.replace(there, here) for name in names]
            wanted[chain] = names[::-1]
        assert chains(read(job, "app_site", "config_fed_client.json")) == wanted


def test_a_job_differs_from_its_neighbour_only_in_what_names_the_method() -> None:
    groups: dict[str, list[Any]] = {}
    for job in JOBS:
        server = read(job, "app_server", "config_fed_server.json")
        arguments = server["workflows"][0]["args"]
        arguments.pop("aggregator")
        objective = make_objective(arguments["protocol"].pop("objective", "erm"))
        if objective.name in ("scaffold", "mosam"):  # stated for plain SGD
            assert arguments["protocol"].pop("momentum") == 0
        if {"scaffold", "mofedsam", "fednova"} & set(job.name.split("_")):  # which count steps
            assert arguments["protocol"].pop("keep_momentum") is False
        if job.name.endswith("arfl"):  # whose loss is that of the training images
            assert arguments["protocol"].pop("gap_split") == "train"
        if objective.name == "babu":  # whose head is never trained
            assert arguments["protocol"].pop("travels") == "body"
        parts = set(job.name.split("_"))
        if {"fedga", "ga", "fediir", "iir"} & parts:  # which compare models, or gradients in two modes
            held = {"fediir", "iir"} & parts and "pacs" in parts
            assert arguments["protocol"].pop("batch_norm") == ("frozen" if held else "reestimate")
        common = {name: value for name, value in server.items() if "filters" not in name}
        groups.setdefault(job.name.partition("_")[0], []).append(common)
    assert {name: len(group) for name, group in groups.items()} == {"pacs": 41, "rotatedmnist": 4, "vessels": 6}
    assert all(common == group[0] for group in groups.values() for common in group)
