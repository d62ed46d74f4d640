# SPDX-License-Identifier: Apache-2.0
"""``fdg export job`` on real job folders: the twin is the same job, and brings no code."""

import json
import shutil
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from fdg_plugins.cli.main import app
from fdg_plugins.lab.engine.workflow import SERVER_CONFIG
from fdg_plugins.settings.named_protocols import protocol_settings

JOBS = Path(__file__).parents[2] / "jobs"


def run(*arguments: object) -> Result:
    return CliRunner().invoke(app, ["export", "job", *(str(argument) for argument in arguments)])


@pytest.fixture
def job(tmp_path: Path) -> Path:
    """A copy of a job of the project, which the test may damage."""
    return Path(shutil.copytree(JOBS / "pacs_fedomg_ga", tmp_path / "pacs_fedomg_ga"))


def files(folder: Path) -> dict[str, bytes]:
    """Return the files below ``folder`` by their path in it; folders without files too, as empty ones."""
    return {str(path.relative_to(folder)): path.read_bytes() if path.is_file() else b"" for path in folder.rglob("*")}


@pytest.mark.parametrize("name", sorted(path.name for path in JOBS.iterdir() if path.is_dir()))
def test_every_job_of_the_project_has_a_twin_without_custom_folders(tmp_path: Path, name: str) -> None:
    result = run(JOBS / name, "--to", tmp_path / "out")
    assert result.exit_code == 0, result.output
    twin = files(tmp_path / "out" / name)
    original = {path: content for path, content in files(JOBS / name).items() if "custom" not in Path(path).parts}
    assert set(twin) == set(original)
    assert {path: json.loads(content) for path, content in twin.items() if content} == {
        path: json.loads(content) for path, content in original.items() if content
    }
    assert [path.name for path in (tmp_path / "out").iterdir()] == [name], "nothing temporary is left"


def test_the_original_stays_as_it_is(job: Path, tmp_path: Path) -> None:
    before = files(job)
    assert run(job, "--to", tmp_path / "out").exit_code == 0
    assert files(job) == before


def test_an_existing_target_is_refused(job: Path, tmp_path: Path) -> None:
    (tmp_path / "out" / job.name).mkdir(parents=True)
    check_refusal(run(job, "--to", tmp_path / "out"), "exists already")
    assert list((tmp_path / "out" / job.name).iterdir()) == []


@pytest.mark.parametrize("file", ["method.py", "notes.txt", "deep/er/lib.so", "__pycache__/method.cpython-311.pyc"])
def test_a_custom_folder_that_holds_code_is_refused(job: Path, tmp_path: Path, file: str) -> None:
    path = job / "app_site" / "custom" / file
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"x")
    check_refusal(run(job, "--to", tmp_path / "out"), f"app_site/custom/{file} is code that the job brings")
    assert not (tmp_path / "out").exists()


def test_a_job_says_which_gpus_it_needs_and_its_copy_says_the_same(tmp_path: Path) -> None:
    options = ("--gpus", 1, "--gpu-memory", 8, "--without-gpu", "site-4", "--sites", "site-1,site-2,site-3,site-4")
    assert run("--method", "fedavg", *options, "--to", tmp_path, "--name", "made").exit_code == 0
    meta = json.loads((tmp_path / "made" / "meta.json").read_text(encoding="utf-8"))
    asked = ["site-1", "site-2", "site-3"]
    assert meta["resource_spec"] == {site: {"num_of_gpus": 1, "mem_per_gpu_in_GiB": 8.0} for site in asked}
    assert meta["mandatory_clients"] == asked, "FLARE would start it without a site that has no GPU free"
    result = run(tmp_path / "made", "--to", tmp_path, "--name", "copy")
    assert result.exit_code == 0, result.output
    assert json.loads((tmp_path / "copy" / "meta.json").read_text(encoding="utf-8")) == {**meta, "name": "copy"}


def test_the_target_the_seed_and_settings_of_a_job_that_is_made_are_chosen(job: Path, tmp_path: Path) -> None:
    options = ("--target", "sketch", "--seed", 3, "--set", "rounds=7", "--set", "kappa=0.25")
    result = run("--method", "fedomg", *options, "--to", tmp_path / "out")
    assert result.exit_code == 0, result.output
    config = json.loads((tmp_path / "out" / "pacs_fedomg" / "app_server" / SERVER_CONFIG).read_text(encoding="utf-8"))
    arguments = config["workflows"][0]["args"]
    protocol = {name: arguments["protocol"][name] for name in ("target", "seed", "rounds")}
    assert protocol == {"target": "sketch", "seed": 3, "rounds": 7}
    assert arguments["aggregator"]["kappa"] == 0.25
    for option in (("--target", "sketch"), ("--seed", 0), ("--set", "rounds=7")):
        check_refusal(run(job, *option, "--to", tmp_path / "copy"), "expected --method with them")
    made = ("--method", "fedomg", "--to", tmp_path / "other")
    check_refusal(run(*made, "--set", "target=sketch"), "--set names 'target', which a run takes from --target")
    check_refusal(run(*made, "--set", "rounds=2,3"), "with one value")
    check_refusal(run(*made, "--dataset", ""), "data set '' is unknown")
    assert not (tmp_path / "other").exists()


def test_a_job_of_a_named_protocol_has_the_settings_of_a_run_of_it(job: Path, tmp_path: Path) -> None:
    options = ("--protocol", "quick", "--set", "rounds=7")
    assert run("--method", "fedomg", *options, "--to", tmp_path / "out").exit_code == 0
    config = json.loads((tmp_path / "out" / "pacs_fedomg" / "app_server" / SERVER_CONFIG).read_text(encoding="utf-8"))
    arguments = config["workflows"][0]["args"]
    for name, value in {**protocol_settings("quick", "pacs"), "rounds": 7}.items():
        assert arguments["aggregator" if name == "server_lr" else "protocol"][name] == value
    check_refusal(run(job, "--protocol", "quick", "--to", tmp_path / "copy"), "expected --method with them")
    digits = ("--method", "fedomg", "--dataset", "rotateddigits", "--protocol", "feddg-ga")
    check_refusal(run(*digits, "--to", tmp_path / "none"), "protocol 'feddg-ga' has nothing for data set rotateddigits")
    assert not (tmp_path / "none").exists()


@pytest.mark.parametrize("key", ["@default", "layer1.weight", "two words", "a:b", "$HOME", "x[0]", ""])
def test_a_key_that_flares_submission_distorts_is_refused(job: Path, tmp_path: Path, key: str) -> None:
    path = job / "app_site" / "config" / "config_fed_client.json"
    config = json.loads(path.read_text(encoding="utf-8"))
    config["executors"][0]["executor"]["args"] = {"deep": [{key: 1}]}
    path.write_text(json.dumps(config), encoding="utf-8")
    check_refusal(run(job, "--to", tmp_path / "out"), f"key {key!r} in app_site/config/config_fed_client.json")


def test_a_link_is_refused(job: Path, tmp_path: Path) -> None:
    (job / "app_site" / "config" / "keys.json").symlink_to("/etc/passwd")
    check_refusal(run(job, "--to", tmp_path / "out"), "app_site/config/keys.json is a link")


def test_what_is_no_job_is_refused(job: Path, tmp_path: Path) -> None:
    check_refusal(run(tmp_path / "nowhere", "--to", tmp_path / "out"), "is not a job: it has no meta.json")
    check_refusal(run(tmp_path, "--to", tmp_path / "out"), "is not a job: it has no meta.json")
    check_refusal(run(JOBS / "pacs_fedmog", "--to", tmp_path / "out"), "did you mean")
    (job / "meta.json").write_text('{"name": "x", "deploy_map": {"app_gone": ["server"]}}', encoding="utf-8")
    check_refusal(run(job, "--to", tmp_path / "out"), "app app_gone has no config/config_fed_server.json")
    (job / "meta.json").write_text('{"name": "x"}', encoding="utf-8")
    check_refusal(run(job, "--to", tmp_path / "out"), "deploy_map in meta.json is None, expected apps")
    (job / "meta.json").write_text("{", encoding="utf-8")
    check_refusal(run(job, "--to", tmp_path / "out"), "is not valid JSON")


def check_refusal(result: Result, sentence: str) -> None:
    assert result.exit_code == 2
    assert isinstance(result.exception, SystemExit)
    assert len(result.stderr.strip().splitlines()) == 1
    assert sentence in result.stderr
    assert result.stdout == ""
