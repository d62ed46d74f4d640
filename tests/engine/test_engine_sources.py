# SPDX-License-Identifier: Apache-2.0
"""The job of a run, from a method by name or from a job folder, checked before anything is started."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from fdg_plugins.lab.doctor.advice import recommend

from fdg_plugins import extras
from fdg_plugins.data import PACS
from fdg_plugins.errors import FDGError, SettingsError
from fdg_plugins.lab.engine import prepare
from fdg_plugins.lab.engine.engines import ProcessEngine, SimulatorEngine
from fdg_plugins.lab.engine.prepare import check_run, make_launch
from fdg_plugins.lab.engine.sources import Asked, FolderJob, JobSource, RecipeJob, as_variables, find_source
from fdg_plugins.lab.sweep.jobs import FederatedRuns
from fdg_plugins.lab.sweep.processes import MARK
from fdg_plugins.lab.sweep.request import DataFound
from fdg_plugins.plugins.files import load_file
from fdg_plugins.recipes import make_recipe
from fdg_plugins.storage import read_json

ROOT = Path(__file__).parents[2]
JOB = str(ROOT / "jobs" / "pacs_fedomg")
CONFIG = Path("app_server", "config", "config_fed_server.json")
FOUND = DataFound(stand_in=True, images=dict.fromkeys(PACS.domains, 210))


def source(what: str, shell: dict[str, str] | None = None, **changes: Any) -> JobSource:
    return find_source(Asked(what, **changes), {"PATH": "/bin"}, shell or {})


def job_with(folder: Path, **arguments: Any) -> str:
    """Write a copy of a job whose workflow has other arguments; return its folder."""
    copy = Path(shutil.copytree(JOB, folder / "job"))
    file = copy / "app_server" / "config" / "config_fed_server.json"
    config = read_json(file)
    config["workflows"][0]["args"].update(arguments)
    file.write_text(json.dumps(config))
    return str(copy)


def test_a_job_folder_is_not_copied_into_itself(tmp_path: Path) -> None:
    job = job_with(tmp_path)
    for place in (Path(job), Path(job, "runs", "x"), Path(job, "app_server", "..", "y")):
        with pytest.raises(SettingsError, match=r"inside the job .*, of which it gets a copy, expected another place"):
            source(job).check_place(place)
    source(job).check_place(tmp_path / "runs")
    source("fedavg").check_place(Path(job))


def test_a_method_by_name_has_the_settings_of_its_recipe_and_the_command_alone(tmp_path: Path) -> None:
    made = source("FedOMG+fedga", {"FDG_ROUNDS": "7"}, seed=3, settings={"kappa": 0.25}, protocol="quick")
    assert isinstance(made, RecipeJob)
    assert (made.title, made.run.name) == ("FedOMG + GA", "fedomg+ga-pacs-art_painting-seed3")
    assert made.environment == {"PATH": "/bin"}
    written = made.write_job(FOUND, tmp_path)
    assert (written.protocol.rounds, written.protocol.image_size, written.processes) == (10, 64, 4)
    arguments = read_json(tmp_path / "job" / "app_server" / "config" / "config_fed_server.json")["workflows"][0]["args"]
    assert (arguments["aggregator"]["kappa"], arguments["protocol"]["seed"]) == (0.25, 3)


def test_a_named_protocol_sets_only_what_the_method_has() -> None:
    assert "server_lr" in source("fedavg", protocol="quick").run.settings
    assert "steps" not in source("fedavg", protocol="quick").run.settings


def test_a_method_of_a_plug_in_file_is_found(tmp_path: Path) -> None:
    load_file(ROOT / "custom" / "clipped_fedavg.py")
    source("clipped_fedavg").write_job(FOUND, tmp_path)
    assert (tmp_path / "job" / "app_server" / "custom" / "clipped_fedavg.py").is_file()


def test_what_differs_from_a_job_folder_is_set_by_variables(tmp_path: Path) -> None:
    made = source(JOB, {"FDG_ROUNDS": "7", "FDG_KAPPA": "0.1"}, target="photo", settings={"rounds": 3})
    assert isinstance(made, FolderJob)
    assert (made.title, made.run.name) == ("job pacs_fedomg", "pacs_fedomg-pacs-photo-seed0")
    own = {"FDG_ROUNDS": "3", "FDG_KAPPA": "0.1", "FDG_TARGET": "photo"}
    assert made.environment == {"PATH": "/bin", **own}
    written = made.write_job(FOUND, tmp_path)
    assert (written.protocol.rounds, written.protocol.target, written.protocol.model) == (3, "photo", "convnet")
    config = Path("app_server", "config", "config_fed_server.json")
    assert (tmp_path / "job" / config).read_bytes() == (Path(JOB) / config).read_bytes(), "the job itself is unchanged"


def test_a_job_folder_takes_a_named_protocol_too() -> None:
    assert source(JOB, protocol="quick").environment["FDG_IMAGE_SIZE"] == "64"


@pytest.mark.parametrize("method", ["fediir", "scaffold", "fedomg+iir", "fedga"])
def test_under_a_papers_protocol_a_job_folder_trains_as_its_method_by_name(method: str, tmp_path: Path) -> None:
    job = ROOT / "jobs" / f"pacs_{method.replace('+', '_')}"
    of_folder = source(str(job), protocol="feddg-ga")
    assert isinstance(of_folder, FolderJob)
    real = DataFound(stand_in=False, images={})
    by_name = source(method, protocol="feddg-ga").write_job(real, tmp_path)
    assert of_folder.described(real).protocol == by_name.protocol


def of_many_sites(folder: Path, dataset: str, count: int) -> str:
    """Write the job of FedAvg on ``count`` sites of each source domain; return its folder."""
    make_recipe("fedavg", dataset, name="job", sites_per_domain=count).export(str(folder))
    return str(folder / "job")


def test_a_share_of_the_sites_is_one_of_those_that_the_run_has(tmp_path: Path) -> None:
    made = source("fedavg", dataset="cifar10", protocol="fedomg-fl", participation=0.4)
    assert made.run.settings["sites_per_round"] == 40
    assert source("fedavg", dataset="mnist", participation=1.0).run.settings["sites_per_round"] is None
    settings = {"sites_per_domain": 10}
    assert source("fedavg", settings=settings, participation=0.5).run.settings["sites_per_round"] == 15
    for dataset, count, drawn in (("pacs", 10, 12), ("mnist", 50, 20)):
        folder = source(of_many_sites(tmp_path / dataset, dataset, count), participation=0.4)
        written = folder.write_job(FOUND, tmp_path / dataset / "written")
        assert (written.protocol.sites_per_round, folder.run.settings["sites_per_round"]) == (drawn, drawn)


def test_the_sites_of_a_job_folder_are_those_of_its_target_too(tmp_path: Path) -> None:
    job = of_many_sites(tmp_path, "pacs", 4)  # of art_painting, the held-out domain of the job, one
    made = source(job, target="sketch", participation=0.5)
    assert made.run.settings["sites_per_round"] == round(0.5 * (1 + 4 + 4))


def test_a_job_folder_keeps_its_sites_under_a_named_protocol(tmp_path: Path) -> None:
    job = source(of_many_sites(tmp_path, "mnist", 30), protocol="quick")
    assert job.write_job(FOUND, tmp_path / "written").protocol.sites_per_domain == 30
    source(str(tmp_path / "job"), settings={"sites_per_domain": 30, "partition": "iid"})


@pytest.mark.parametrize("shell", [{}, {"FDG_SITES_PER_DOMAIN": "10"}])
def test_a_job_folder_refuses_to_have_other_sites(shell: dict[str, str], tmp_path: Path) -> None:
    settings = {} if shell else {"sites_per_domain": 10}
    with pytest.raises(FDGError, match=r"^sites_per_domain is 10, expected 1, as the sites of job .* are called"):
        source(JOB, shell, settings=settings)
    with pytest.raises(FDGError, match=r"^sites_per_domain is 10, expected 30, as the sites of job"):
        source(of_many_sites(tmp_path, "mnist", 30), shell, settings=settings)


@pytest.mark.parametrize("what", ["fedavg", JOB])
def test_a_site_alone_in_its_domain_shares_nothing(what: str) -> None:
    with pytest.raises(FDGError, match=r"partition is 'dirichlet', expected 'equal'.* a domain to itself\.$"):
        check_run(source(what, settings={"partition": "dirichlet"}))


def test_the_simulator_is_told_how_many_sites_a_job_folder_has(tmp_path: Path) -> None:
    made = source(of_many_sites(tmp_path, "cifar10", 150))
    launch, _ = make_launch(SimulatorEngine(), made, FOUND, tmp_path / "run", None)
    assert launch.sites == 151
    assert tuple(FederatedRuns().command(launch.run, launch.at_once, launch.sites))[-2:] == ("-m", "151")


def test_values_become_the_text_of_variables() -> None:
    values = {"rounds": 3, "patience": None, "validate_all": True, "objective": {"name": "dim"}, "model": "convnet"}
    assert list(as_variables(values).values()) == ["3", "none", "true", '{"name": "dim"}', "convnet"]


@pytest.mark.parametrize(
    ("what", "changes", "sentence"),
    [
        ("fedagv", {}, "did you mean 'fedavg'"),
        ("irm", {}, "irm is a centralised reference, .*; fdg run irm runs it"),
        ("jobs/nope", {}, "folder jobs/nope is not a job: it has no meta.json"),
        ("fedavg", {"settings": {"kappa": 1}}, "there is no setting 'kappa'"),
        ("fedavg", {"settings": {"rounds": 0}}, r"setting rounds \(FDG_ROUNDS\) is 0"),
        ("fedavg", {"settings": {"target": "photo"}}, "--set names 'target', which a run takes from --target"),
        ("fedavg", {"settings": {"threads": 2}}, "--set names 'threads', .* environment as FDG_THREADS"),
        ("fedavg", {"target": "nope"}, "target .* is 'nope', expected a domain of pacs"),
        ("fedavg", {"dataset": "packs"}, "data set 'packs' is unknown"),
        ("fedavg", {"settings": {"name": "x"}}, "--set names 'name', which is not a setting of a protocol or method"),
        ("fedavg", {"settings": {"method": "x"}}, "--set names 'method', which is not a setting"),
        ("fedavg", {"settings": {"sites": ["a"]}}, "--set names 'sites', which is not a setting"),
        ("fedavg", {"settings": {"gpus": 1}}, "--set names 'gpus', which is not a setting"),
        ("fedavg", {"target": ""}, "target .* is '', expected a domain of pacs"),
        ("fedavg", {"dataset": ""}, "data set '' is unknown"),
        (JOB, {"target": ""}, "target is '', expected a value"),
        (JOB, {"dataset": ""}, "data set '' is unknown"),
        (JOB, {"settings": {"model": " "}}, "model is ' ', expected a value"),
        (JOB, {"settings": {"gpu_memory": 1}}, "--set names 'gpu_memory', which is not a setting"),
        (JOB, {"settings": {"kapa": 1}}, "there is no setting 'kapa'; did you mean 'kappa'"),
        (JOB, {"settings": {"kappa": -1}}, "kappa is -1"),
        (JOB, {"target": "nope"}, "target .* is 'nope', expected a domain of pacs"),
    ],
)
def test_whatever_is_wrong_is_refused_before_the_data_are_looked_at(
    what: str, changes: dict[str, Any], sentence: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(prepare, "look_at_data", lambda *_: pytest.fail("the stand-in would be drawn"))
    with pytest.raises(FDGError, match=sentence):
        check_run(source(what, **changes))


def test_a_job_without_an_aggregator_by_name_or_without_sites_is_refused(tmp_path: Path) -> None:
    with pytest.raises(FDGError, match=r"component of its own \(aggregator_id\)"):
        source(job_with(tmp_path, aggregator=None))
    meta = tmp_path / "job" / "meta.json"
    meta.write_text(json.dumps({"deploy_map": {"app": ["@ALL"]}}))
    with pytest.raises(FDGError, match="names no sites"):
        source(str(tmp_path / "job"))
    meta.write_text("{}")
    with pytest.raises(FDGError, match=r"deploy_map in meta\.json is None"):
        source(str(tmp_path / "job"))


def test_a_missing_package_is_told_before_the_data_are_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(extras, "find_spec", lambda name: None)
    monkeypatch.setattr(prepare, "look_at_data", lambda *_: pytest.fail("the data were looked at"))
    check = r"^task 'segmentation' needs the package monai, .*: pip install 'fdg-plugins\[medical\]'\.$"
    with pytest.raises(FDGError, match=check):
        check_run(source("fedavg", dataset="vessels"))


def test_a_data_root_is_looked_into(data_root: Path) -> None:
    asked = Asked("fedavg")
    assert check_run(find_source(asked, {"FDG_DATA_ROOT": str(data_root)}, {})).images == dict.fromkeys(
        PACS.domains, 28
    )
    with pytest.raises(FDGError, match="is not a folder"):
        check_run(find_source(asked, {"FDG_DATA_ROOT": "/nowhere"}, {}))


@pytest.mark.parametrize(
    ("dataset", "settings", "reason"),
    [
        ("mnist", {"sites_per_domain": 200, "partition": "dirichlet"}, "1500 images are too few for 200 sites of at"),
        ("mnist", {"sites_per_domain": 5, "partition": "iid", "max_samples_per_domain": 40}, "40 images are too few"),
        ("rotateddigits", {"sites_per_domain": 100}, "expected at least 100 of each for 100 parts"),
    ],
)
def test_too_many_sites_for_the_images_are_refused_before_any_site_is_asked(
    dataset: str, settings: dict[str, Any], reason: str
) -> None:
    with pytest.raises(FDGError, match=rf"^domain '\w+' .*{reason}"):
        check_run(source("fedavg", dataset=dataset, settings=settings))
    check_run(source("fedavg", dataset=dataset, settings={**settings, "sites_per_domain": 2}))


@pytest.mark.parametrize("cores", [1, 2, 3, 4, 8, 16])
def test_the_sites_share_the_cores_as_the_doctor_advises(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cores: int
) -> None:
    monkeypatch.setattr(prepare, "available_cores", lambda: cores)
    launch, protocol = make_launch(SimulatorEngine(), source("fedavg"), FOUND, tmp_path, None)
    advice = recommend(cores, (), sites=4, processes=100)
    assert (launch.at_once, launch.environment["FDG_THREADS"]) == (advice.alive, str(advice.threads))
    assert launch.environment[MARK] == str(tmp_path)
    assert protocol.model == "convnet", "that of the stand-in"


def test_one_process_has_all_cores(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prepare, "available_cores", lambda: 8)
    launch, _ = make_launch(ProcessEngine(), source("fedavg"), FOUND, tmp_path, None)
    assert (launch.at_once, launch.environment["FDG_THREADS"]) == (1, "8")


def test_the_user_may_choose_the_sites_at_a_time_and_the_threads_of_each(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(prepare, "available_cores", lambda: 8)
    made = find_source(Asked("fedavg"), {"FDG_THREADS": "3"}, {})
    launch, _ = make_launch(SimulatorEngine(), made, FOUND, tmp_path, 2)
    assert (launch.at_once, launch.environment["FDG_THREADS"]) == (2, "3")


def test_the_settings_of_a_weighting_act_on_a_job_folder(tmp_path: Path) -> None:
    job = source(str(ROOT / "jobs" / "pacs_fedomg_ga"), settings={"step_size": 0.1})
    job.write_job(FOUND, tmp_path / "given")
    assert job.environment["FDG_STEP_SIZE"] == "0.1"
    source(str(ROOT / "jobs" / "pacs_arfl"), {"FDG_STRENGTH": "2"}).write_job(FOUND, tmp_path / "shell")
    with pytest.raises(FDGError, match=r"there is no setting 'step_size'"):
        source(JOB, settings={"step_size": 0.1}).write_job(FOUND, tmp_path / "none")


def test_a_name_that_weighting_and_objective_share_is_refused_wherever_it_is_given(tmp_path: Path) -> None:
    sentence = r"strength is a setting of the weighting and of the objective, expected it in one of them"
    with pytest.raises(FDGError, match=sentence):
        source("fedprox+arfl", settings={"strength": 0.3}).write_job(FOUND, tmp_path / "name")
    own = {"objective": {"name": "prox", "strength": 0.3}, "weighting": {"name": "arfl", "strength": 2.0}}
    source("fedprox+arfl", settings=own).write_job(FOUND, tmp_path)
    config = read_json(tmp_path / "job" / "app_server" / "config" / "config_fed_server.json")
    arguments = config["workflows"][0]["args"]
    assert arguments["protocol"]["objective"] == own["objective"]
    assert arguments["aggregator"]["weighting"] == own["weighting"]
    with pytest.raises(FDGError, match=sentence):
        source(str(tmp_path / "job"), {"FDG_STRENGTH": "0.3"})


def test_a_job_without_custom_folders_gets_them_in_the_copy_that_runs(tmp_path: Path) -> None:
    """FLARE's simulator builds our components only in an app that could bring code."""
    shutil.copytree(JOB, tmp_path / "mine", ignore=shutil.ignore_patterns("custom"))
    source(str(tmp_path / "mine")).write_job(FOUND, tmp_path / "run")
    assert sorted(path.parent.name for path in (tmp_path / "run" / "job").glob("*/custom")) == [
        "app_server",
        "app_site",
    ]
    assert not list((tmp_path / "mine").rglob("custom"))


def test_a_network_that_the_method_cannot_train_is_refused_before_anything_starts() -> None:
    sentence = r"^run rsc-.*: objective 'rsc' does not go with model 'vit_b_16': the model's extractor has no"
    with pytest.raises(FDGError, match=sentence):
        check_run(source("rsc", settings={"model": "vit_b_16", "image_size": 32}))
    check_run(source("rsc", settings={"model": "vit_b_16", "image_size": 32, "feature_fraction": 0}))


def test_who_shares_a_name_is_seen_from_what_is_in_force(tmp_path: Path) -> None:
    sentence = r"strength is a setting of the weighting and of the objective, expected it in one of them"
    prox = {"objective": {"name": "prox"}, "strength": 0.3}
    with pytest.raises(FDGError, match=sentence):
        source(str(ROOT / "jobs" / "pacs_arfl"), settings=prox)
    for name, shell in (("pacs_fedprox", {}), ("pacs_fedavg", {"FDG_OBJECTIVE": '{"name": "prox"}'})):
        with pytest.raises(FDGError, match=sentence):
            source(str(ROOT / "jobs" / name), {"FDG_WEIGHTING": "arfl", "FDG_STRENGTH": "2", **shell})
    source("fedprox+arfl").write_job(FOUND, tmp_path)
    job = str(tmp_path / "job")
    source(job, {"FDG_OBJECTIVE": '{"name": "erm"}', "FDG_STRENGTH": "2"})
    stand_in = {**read_json(tmp_path / "job" / CONFIG)["workflows"][0]["args"]["stand_in_protocol"], "strength": 3}
    config = read_json(tmp_path / "job" / CONFIG)
    config["workflows"][0]["args"]["stand_in_protocol"] = stand_in
    (tmp_path / "job" / CONFIG).write_text(json.dumps(config))
    with pytest.raises(FDGError, match=sentence):
        source(job)


def test_a_weighting_and_a_setting_of_it_may_come_together() -> None:
    arfl = {"FDG_WEIGHTING": "arfl", "FDG_GAP_SPLIT": "train"}
    source(str(ROOT / "jobs" / "pacs_fedavg"), {**arfl, "FDG_STRENGTH": "2"})
    source(JOB, settings={"weighting": "ga", "step_size": 0.1})
