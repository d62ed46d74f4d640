# SPDX-License-Identifier: Apache-2.0
"""Recipes write the jobs of the project, in a form that FLARE's tools and the sites' allow lists take."""

import importlib
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from fdg_plugins.aggregators import make_aggregator
from fdg_plugins.controllers import FederationController
from fdg_plugins.data.catalogue import DATASETS, dataset_spec
from fdg_plugins.errors import DataError
from fdg_plugins.filters import DifferentialPrivacyFilter
from fdg_plugins.flare.components import SERVER, SITE, class_paths
from fdg_plugins.objectives import make_objective
from fdg_plugins.plans import make_plans
from fdg_plugins.recipes import FDGRecipe, export_jobs, results_file
from tests.recipes.exported_jobs import SERVER_FILE, SITE_FILE, arguments, config, files, filters

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def jobs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """All jobs of the project, as the recipes write them."""
    folder = tmp_path_factory.mktemp("jobs")
    export_jobs(folder)
    return folder


def test_the_projects_jobs_are_what_the_recipes_write_byte_for_byte(jobs: Path) -> None:
    assert files(jobs) == files(ROOT / "jobs"), "run: nox -s generate"


def build(component: dict[str, Any]) -> Any:
    module, _, name = component["path"].rpartition(".")
    return getattr(importlib.import_module(module), name)(**component.get("args", {}))


def nodes(value: Any) -> Iterator[dict[str, Any]]:
    if isinstance(value, dict):
        yield value
    for item in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        yield from nodes(item)


def test_of_every_job_components_can_be_built_settings_hold_and_filters_are_those_of_both_ends(jobs: Path) -> None:
    for job in (job for job in jobs.iterdir() if job.name != "evaluate"):  # which trains nothing
        configs = [config(job), config(job, SITE_FILE)]
        # "nvflare job submit" cuts special characters out of keys.
        assert [key for node in nodes(configs) for key in node if not re.fullmatch(r"[A-Za-z0-9_]+", key)] == []
        made = [build(node) for node in nodes(configs) if "path" in node]
        (controller,) = (one for one in made if isinstance(one, FederationController))
        aggregator, protocol = make_aggregator(controller.aggregator or ""), controller.protocol or {}
        plans = make_plans(protocol, controller.stand_in_protocol or {}, {}, aggregator)
        assert plans.stand_in.protocol.rounds < plans.real.protocol.rounds
        objective = make_objective(protocol.get("objective", "erm"))
        server, site = (
            {key: [name for name, _ in chain] for key, chain in filters(job, file).items()}
            for file in (SERVER_FILE, SITE_FILE)
        )
        # What privacy filters of the site see last is packed last at the site, and taken off first at the server.
        for key, chain in server.items():
            expected = [name.replace("Check", "Report").replace("Send", "Receive") for name in chain[::-1]]
            assert site[key] == expected
        assert server.keys() == site.keys()
        assert (("task_data_filters", "train") in server) is (objective.report is not None)
        assert (("task_result_filters", "probe") in server) is objective.probes


def named_classes(jobs: Path, end: str) -> set[str]:
    file = {SERVER: "config_fed_server.json", SITE: "config_fed_client.json"}[end]
    found: set[str] = set()
    for path in jobs.rglob(file):
        named = re.findall(r'"(?:path|class_path)": "([^"]+)"', path.read_text(encoding="utf-8"))
        assert named, path
        found.update(named)
    return found


@pytest.mark.parametrize("end", [SERVER, SITE])
def test_allow_list_is_what_jobs_name(jobs: Path, tmp_path: Path, end: str) -> None:
    rounded = FDGRecipe("fedavg", update_precision="bfloat16")
    rounded.add_client_output_filter(DifferentialPrivacyFilter(1.0, 8.0, 3.0), tasks=["train"])
    rounded.export(str(tmp_path))
    named = named_classes(jobs, end) | named_classes(tmp_path, end)
    listed = set(class_paths(end))
    assert named <= listed
    assert {path for path in listed - named if ".methods." not in path} == set()  # which jobs name without a path


def test_every_data_set_of_the_catalogue_has_a_job(tmp_path: Path) -> None:
    for dataset in sorted(DATASETS.names()):
        recipe = FDGRecipe("fedomg", dataset)
        protocol = arguments(recipe, tmp_path)["protocol"]
        assert protocol["dataset"] == dataset
        assert protocol["target"] in recipe.sites
        spec, count = dataset_spec(dataset), protocol.get("sites_per_domain", 1)
        assert len(recipe.sites) == 1 + count * (len(spec.domains) - 1)
        assert {spec.share_of(site)[0] for site in recipe.sites} == set(spec.domains)
        meta = config(tmp_path / recipe.name, "meta.json")
        assert meta["deploy_map"] == {"app_server": ["server"], "app_site": recipe.sites}
        assert meta["min_clients"] == 3
    sites = ["hospital-a", "hospital-b", "registry"]
    FDGRecipe("fedomg", name="trial.7", sites=sites).export(str(tmp_path))
    meta = config(tmp_path / "trial.7", "meta.json")
    assert (meta["name"], meta["deploy_map"]["app_site"]) == ("trial.7", sites)


def test_updates_are_rounded_last_at_the_site_and_widened_first_at_the_server(tmp_path: Path) -> None:
    recipe = FDGRecipe("fedomg", weighting="ga", objective="dim", update_precision="bfloat16")
    noise = {"clip_norm": 1.0, "noise_multiplier": 8.0, "max_epsilon": 8.0}
    recipe.add_client_output_filter(DifferentialPrivacyFilter(**noise), tasks=["train"])
    recipe.add_server_config({"max_task_timeout": 7})
    for _ in range(2):  # a second export is like the first
        recipe.export(str(tmp_path))
    job = tmp_path / recipe.name
    site = filters(job, SITE_FILE)["task_result_filters", "train"]
    assert site == [
        ("GapReportFilter", {}),
        ("ExchangeReportFilter", {}),
        ("DifferentialPrivacyFilter", noise),
        ("RoundedUpdateSendFilter", {}),
    ]
    server = [name for name, _ in filters(job, SERVER_FILE)["task_result_filters", "train"]]
    assert server == ["RoundedUpdateReceiveFilter", "ExchangeCheckFilter", "GapCheckFilter"]
    assert config(job)["max_task_timeout"] == 7


@pytest.mark.parametrize(
    ("model", "offload", "chunk"), [("convnet", False, 0), ("convnet", True, 2**24), ("resnet18", False, 2**24)]
)
def test_small_models_travel_whole_at_both_ends(model: str, offload: bool, chunk: int, tmp_path: Path) -> None:
    recipe = FDGRecipe("fedavg", model=model, enable_tensor_disk_offload=offload)
    recipe.export(str(tmp_path))
    for file in (SERVER_FILE, SITE_FILE):
        assert config(tmp_path / recipe.name, file)["tensor_download_chunk_size"] == chunk


def test_the_record_is_found_in_what_a_run_returns(tmp_path: Path) -> None:
    for folder in ("workspace", "server/simulate_job"):
        (tmp_path / folder).mkdir(parents=True)
        (tmp_path / folder / "results.json").touch()
        assert results_file(str(tmp_path)) == tmp_path / folder / "results.json"
    for lacking in (None, tmp_path / "other"):
        with pytest.raises(DataError):
            results_file(lacking)
