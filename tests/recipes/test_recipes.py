# SPDX-License-Identifier: Apache-2.0
"""Recipes write the jobs of the project, in a form that FLARE's tools and the sites' allow lists take."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from fdg_plugins.data.catalogue import DATASETS, dataset_spec
from fdg_plugins.filters import DifferentialPrivacyFilter
from fdg_plugins.flare.components import SERVER, SITE, class_paths
from fdg_plugins.recipes import (
    JOBS,
    METHODS,
    FDGRecipe,
    export_jobs,
    make_recipe,
    results_file,
)
from tests.recipes.exported_jobs import arguments, config, files, filters

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def jobs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """All jobs of the project, as the recipes write them."""
    folder = tmp_path_factory.mktemp("jobs")
    export_jobs(folder)
    return folder


def test_the_projects_jobs_are_what_the_recipes_write_byte_for_byte(jobs: Path) -> None:
    assert files(jobs) == files(ROOT / "jobs"), "run: nox -s generate"


def test_there_is_a_job_for_every_method_and_no_other(jobs: Path) -> None:
    assert {path.name for path in jobs.iterdir()} == {f"{dataset}_{name.replace('+', '_')}" for dataset, name in JOBS}
    assert {name for _, name in JOBS} == set(METHODS)


def named_classes(jobs: Path, end: str) -> set[str]:
    """Return the class paths in all configs of ``end``."""
    file = {SERVER: "config_fed_server.json", SITE: "config_fed_client.json"}[end]
    found: set[str] = set()
    for path in jobs.rglob(file):
        named = re.findall(r'"(?:path|class_path)": "([^"]+)"', path.read_text(encoding="utf-8"))
        assert named, path
        found.update(named)
    return found


@pytest.mark.parametrize("end", [SERVER, SITE])
def test_each_ends_list_covers_what_jobs_name_and_nothing_of_flares_beside(
    jobs: Path, tmp_path: Path, end: str
) -> None:
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


def test_names_of_job_and_sites_can_be_other_ones(tmp_path: Path) -> None:
    sites = ["hospital-a", "hospital-b", "registry"]
    recipe = FDGRecipe("fedomg", name="trial.7", sites=sites)
    recipe.export(str(tmp_path))
    meta = config(tmp_path / "trial.7", "meta.json")
    assert (meta["name"], meta["deploy_map"]["app_site"]) == ("trial.7", sites)
    assert recipe.sites == sites


def test_updates_are_rounded_last_at_the_site_and_widened_first_at_the_server(tmp_path: Path) -> None:
    recipe = FDGRecipe("fedomg", weighting="ga", objective="dim", update_precision="bfloat16")
    noise = {"clip_norm": 1.0, "noise_multiplier": 8.0, "max_epsilon": 8.0}
    recipe.add_client_output_filter(DifferentialPrivacyFilter(**noise), tasks=["train"])
    recipe.add_server_config({"max_task_timeout": 7})
    for _ in range(2):  # a second export is like the first
        recipe.export(str(tmp_path))
    job, site_file = tmp_path / recipe.name, "app_site/config/config_fed_client.json"
    site = filters(job, site_file)["task_result_filters", "train"]
    assert site == [
        ("GapReportFilter", {}),
        ("ExchangeReportFilter", {}),
        ("DifferentialPrivacyFilter", noise),
        ("RoundedUpdateSendFilter", {}),
    ]
    server = filters(job, "app_server/config/config_fed_server.json")
    assert [name for name, _ in server["task_result_filters", "train"]] == [
        "RoundedUpdateReceiveFilter",
        "ExchangeCheckFilter",
        "GapCheckFilter",
    ]
    assert config(job)["workflows"][0]["args"]["protocol"]["update_precision"] == "bfloat16"
    assert config(job)["max_task_timeout"] == 7
    named = (job / site_file).read_text(encoding="utf-8")
    for name in ("DifferentialPrivacyFilter", "RoundedUpdateSendFilter"):
        assert f"fdg_plugins.filters.{name}" in named, "under the path that sites allow"


def test_small_models_travel_in_messages_at_both_ends_and_others_in_chunks(tmp_path: Path) -> None:
    cases: list[tuple[dict[str, Any], int]] = [
        ({"model": "convnet"}, 0),
        ({"model": "convnet", "enable_tensor_disk_offload": True}, 16 * 2**20),
        ({"model": "resnet50"}, 16 * 2**20),
        ({}, 16 * 2**20),
    ]
    for settings, chunk in cases:
        recipe = FDGRecipe("fedavg", **settings)
        recipe.export(str(tmp_path))
        for file in ("app_server/config/config_fed_server.json", "app_site/config/config_fed_client.json"):
            assert config(tmp_path / recipe.name, file)["tensor_download_chunk_size"] == chunk


@pytest.mark.parametrize("folder", ["server/simulate_job", "workspace"])
def test_the_record_is_found_in_what_a_run_returns(folder: str, tmp_path: Path) -> None:
    (tmp_path / folder).mkdir(parents=True)
    (tmp_path / folder / "results.json").write_text(json.dumps({}), encoding="utf-8")
    assert results_file(str(tmp_path)) == tmp_path / folder / "results.json"


def test_a_recipe_by_name_is_the_recipe_of_the_class(tmp_path: Path) -> None:
    settings: dict[str, Any] = {"target": "sketch", "rounds": 3, "kappa": 0.25}
    make_recipe("fedomg+dim+ga", "pacs", strength=0.1, step_size=0.2, **settings).export(str(tmp_path / "by_name"))
    parts: dict[str, Any] = {
        "weighting": {"name": "ga", "step_size": 0.2},
        "objective": {"name": "dim", "strength": 0.1},
    }
    FDGRecipe("fedomg", "pacs", **parts, **settings).export(str(tmp_path / "by_class"))
    assert files(tmp_path / "by_name") == files(tmp_path / "by_class")
