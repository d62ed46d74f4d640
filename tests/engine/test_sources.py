# SPDX-License-Identifier: Apache-2.0
"""The job of a run, from a method by name or from a job folder, checked before anything is started."""

import shutil
from pathlib import Path
from typing import Any

import pytest

from fdg_plugins.data import PACS
from fdg_plugins.errors import FDGError, SettingsError
from fdg_plugins.lab.engine import run as engine_run
from fdg_plugins.lab.engine.run import check_run, make_launch
from fdg_plugins.lab.engine.sources import Asked, JobSource, find_source
from fdg_plugins.lab.sweep.machine import ENGINES, EngineName
from fdg_plugins.lab.sweep.plan import DataFound
from fdg_plugins.plugins.files import load_file
from fdg_plugins.recipes import make_recipe
from tests.recipes.exported_jobs import workflow

ROOT = Path(__file__).parents[2]
JOB = str(ROOT / "jobs" / "pacs_fedomg")
CONFIG = Path("app_server", "config", "config_fed_server.json")
FOUND = DataFound(stand_in=True, images=dict.fromkeys(PACS.domains, 210))
SIMULATOR, PROCESS = ENGINES[EngineName.SIMULATOR], ENGINES[EngineName.PROCESS]


def source(what: str, shell: dict[str, str] | None = None, **changes: Any) -> JobSource:
    return find_source(Asked(what, **changes), {"PATH": "/bin"}, shell or {})


def of_many_sites(folder: Path, dataset: str, count: int) -> str:
    """Write the job of FedAvg on ``count`` sites of each source domain; return its folder."""
    make_recipe("fedavg", dataset, name="job", sites_per_domain=count).export(str(folder))
    return str(folder / "job")


def test_a_method_by_name_has_the_settings_of_its_recipe_and_the_command_alone(tmp_path: Path) -> None:
    made = source("FedOMG+fedga", {"FDG_ROUNDS": "7"}, seed=3, settings={"kappa": 0.25}, protocol="quick")
    assert (made.title, made.run.name) == ("FedOMG + GA", "fedomg+ga-pacs-art_painting-seed3")
    assert made.environment == {"PATH": "/bin"}
    job = made.job(stand_in=True)
    job.write(tmp_path)
    assert (job.protocol.rounds, job.protocol.image_size, job.sites) == (10, 64, 4)
    arguments = workflow(tmp_path / "job")
    assert (arguments["aggregator"]["kappa"], arguments["protocol"]["seed"]) == (0.25, 3)
    load_file(ROOT / "custom" / "clipped_fedavg.py")
    source("clipped_fedavg").job(stand_in=True).write(tmp_path / "plug-in")
    assert (tmp_path / "plug-in" / "job" / "app_server" / "custom" / "clipped_fedavg.py").is_file()


def test_a_job_folder_is_copied_with_custom_folders(tmp_path: Path) -> None:
    """FLARE's simulator builds our components only in an app that could bring code."""
    job = Path(shutil.copytree(JOB, tmp_path / "mine", ignore=shutil.ignore_patterns("custom")))
    made = source(str(job))
    made.job(stand_in=True).write(tmp_path / "run")
    assert len(list((tmp_path / "run" / "job").glob("*/custom"))) == 2
    assert not list(job.rglob("custom"))


def test_a_share_of_the_sites_is_one_of_those_that_the_run_has(tmp_path: Path) -> None:
    made = source("fedavg", dataset="cifar10", protocol="fedomg-fl", participation=0.4)
    assert made.run.settings["sites_per_round"] == 40
    for dataset, count, target, drawn in (("pacs", 10, None, 12), ("mnist", 50, None, 20), ("pacs", 4, "sketch", 4)):
        job = of_many_sites(tmp_path / f"{dataset}{count}", dataset, count)
        folder = source(job, target=target, participation=0.4)
        assert folder.run.settings["sites_per_round"] == drawn


def test_the_sites_of_a_job_folder_are_as_it_names_them(tmp_path: Path) -> None:
    job = of_many_sites(tmp_path, "mnist", 150)
    made = source(job, settings={"partition": "iid"})
    assert made.job(stand_in=True).protocol.sites_per_domain == 150
    launch, _ = make_launch(SIMULATOR, made, FOUND, tmp_path / "run", None)
    assert tuple(launch.words)[-2:] == ("-m", "151")
    for what in (JOB, job):
        with pytest.raises(SettingsError):
            source(what, settings={"sites_per_domain": 10})


@pytest.mark.parametrize(
    ("what", "changes"),
    [
        *(("fedavg", {"settings": {name: 1}}) for name in ("kappa", "target", "threads", "name")),
        ("jobs/nope", {}),
        ("fedavg", {"target": ""}),
        ("fedavg", {"dataset": ""}),
        ("fedprox+arfl", {"settings": {"strength": 0.3}}),
        (JOB, {"settings": {"kappa": -1}}),
        (JOB, {"protocol": "quick"}),
    ],
)
def test_wrong_source_is_refused(what: str, changes: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine_run, "look_at_data", lambda *_: pytest.fail("the stand-in would be drawn"))
    with pytest.raises(FDGError):
        check_run(source(what, **changes))


def test_a_setting_of_the_weighting_or_of_the_objective_reaches_the_one_that_has_it(tmp_path: Path) -> None:
    job = source(str(ROOT / "jobs" / "pacs_fedomg_ga"), settings={"step_size": 0.1})
    assert job.environment["FDG_STEP_SIZE"] == "0.1"
    source(JOB, settings={"weighting": "ga", "step_size": 0.1})
    own = {"objective": {"name": "prox", "strength": 0.3}, "weighting": {"name": "arfl", "strength": 2.0}}
    source("fedprox+arfl", settings=own).job(stand_in=True).write(tmp_path)
    arguments = workflow(tmp_path / "job")
    assert arguments["protocol"]["objective"] == own["objective"]
    assert arguments["aggregator"]["weighting"] == own["weighting"]
    job_of_both = str(tmp_path / "job")
    source(job_of_both, {"FDG_OBJECTIVE": '{"name": "erm"}', "FDG_STRENGTH": "2"})
    with pytest.raises(SettingsError):  # whose is meant?
        source(job_of_both, {"FDG_STRENGTH": "0.3"})
