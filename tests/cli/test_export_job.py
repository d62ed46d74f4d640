# SPDX-License-Identifier: Apache-2.0
"""``fdg export``: copies bring no code, jobs are what was asked for; networks of one's own in runs and sweeps."""

import filecmp
import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch

from fdg_plugins.settings.defaults import protocol_settings
from tests.cli.commands import check_refusal, fdg, printed
from tests.own_networks import NETWORKS
from tests.recipes.exported_jobs import workflow

pytestmark = pytest.mark.usefixtures("no_fdg_variables")
JOBS = Path(__file__).parents[2] / "jobs"


@pytest.fixture
def job(tmp_path: Path) -> Path:
    """A copy of a job of the project, which the test may damage."""
    return Path(shutil.copytree(JOBS / "pacs_fedomg_ga", tmp_path / "pacs_fedomg_ga"))


def configs(folder: Path) -> dict[Path, Any]:
    """Return the content of the files below ``folder`` by their path in it, but of those in ``custom/``."""
    found = [path for path in folder.rglob("*") if path.is_file() and "custom" not in path.parts]
    return {path.relative_to(folder): json.loads(path.read_text()) for path in found}


def test_a_job_of_the_project_has_a_twin_without_custom_folders(tmp_path: Path) -> None:
    name = "pacs_fedomg_ga"
    assert fdg("export", "job", JOBS / name, tmp_path / "out").exit_code == 0
    assert configs(tmp_path / "out" / name) == configs(JOBS / name)
    assert not list((tmp_path / "out").rglob("custom"))
    check_refusal(fdg("export", "job", JOBS / name, tmp_path / "out"), "exists already")


def test_code_links_and_what_is_no_job_are_refused(job: Path, tmp_path: Path) -> None:
    (job / "app_site" / "custom" / "method.py").touch()
    check_refusal(fdg("export", "job", job, tmp_path / "out"), "app_site/custom/method.py is code that the job brings")
    (job / "app_site" / "custom" / "method.py").unlink()
    (job / "app_site" / "config" / "keys.json").symlink_to("/etc/passwd")
    check_refusal(fdg("export", "job", job, tmp_path / "out"), "app_site/config/keys.json is a link")
    check_refusal(fdg("export", "job", JOBS / "pacs_fedmog", tmp_path / "out"), "did you mean")
    (job / "app_site" / "config" / "keys.json").unlink()
    for meta, told in (('{"deploy_map": {}}', "expected apps with their sites"), ("{", "valid JSON")):
        (job / "meta.json").write_text(meta)
        check_refusal(fdg("export", "job", job, tmp_path / "out"), told)
    assert not (tmp_path / "out").exists()


def test_a_key_that_flares_submission_distorts_is_refused(job: Path, tmp_path: Path) -> None:
    path = job / "app_site" / "config" / "config_fed_client.json"
    config = path.read_text()
    for key in ("@default", "layer1.weight"):
        path.write_text(config.replace('"args": {}', f'"args": {{"deep": [{{"{key}": 1}}]}}'))
        check_refusal(
            fdg("export", "job", job, tmp_path / "out"), "app_site/config/config_fed_client.json has the key", repr(key)
        )


def test_a_job_says_which_gpus_it_needs_and_its_copy_says_the_same(tmp_path: Path) -> None:
    words = ("gpus=1", "gpu_memory=8", "without_gpu=site-4", "sites=site-1,site-2,site-3,site-4", "name=made")
    printed("export", "job", "fedavg", tmp_path, *(word for text in words for word in ("--set", text)))
    meta = json.loads((tmp_path / "made" / "meta.json").read_text())
    asked = ["site-1", "site-2", "site-3"]
    assert meta["resource_spec"] == {site: {"num_of_gpus": 1, "mem_per_gpu_in_GiB": 8.0} for site in asked}
    assert meta["mandatory_clients"] == asked, "FLARE would start it without a site that has no GPU free"
    check_refusal(fdg("export", "job", tmp_path / "made", tmp_path, "--set", "name=../copy"), "name")
    check_refusal(fdg("export", "job", tmp_path / "made", tmp_path / "made"), "outside")
    assert fdg("export", "job", tmp_path / "made", tmp_path, "--set", "name=copy").exit_code == 0
    assert json.loads((tmp_path / "copy" / "meta.json").read_text()) == {**meta, "name": "copy"}


def test_the_target_the_seed_and_settings_of_a_job_that_is_made_are_chosen(job: Path, tmp_path: Path) -> None:
    words = ("--target", "sketch", "--protocol", "quick", "--set", "seed=3", "--set", "rounds=7", "--set", "kappa=0.25")
    assert fdg("export", "job", "fedomg", tmp_path / "out", *words).exit_code == 0
    made = workflow(tmp_path / "out" / "pacs_fedomg")
    assert made["aggregator"]["kappa"] == 0.25
    expected = {**protocol_settings("quick", "pacs"), "rounds": 7, "target": "sketch", "seed": 3}
    for name, value in expected.items():
        assert made["aggregator" if name == "server_lr" else "protocol"][name] == value
    to = tmp_path / "other"
    check_refusal(fdg("export", "job", job, to, "--target", "sketch"), "is a job folder")
    check_refusal(fdg("export", "job", "fedomg", to, "--set", "target=sketch"), "expected --target")
    check_refusal(fdg("export", "job", "fedomg", to, "--set", "rounds=2,3"), "with one value")
    check_refusal(fdg("export", "job", "fedomgg", to), "did you mean 'fedomg'?")
    digits = ("fedomg", to, "--dataset", "rotateddigits", "--protocol", "feddg-ga")
    check_refusal(fdg("export", "job", *digits), "expected one that has data set rotateddigits")
    assert not to.exists()


@pytest.mark.usefixtures("own_network")
def test_a_job_brings_the_code_of_a_network_of_ones_own_and_names_it() -> None:
    words = ("--dataset", "rotateddigits", "--set", "image_size=16")
    result = fdg("export", "job", "fedomg", "jobs", *words, "--set", "model=my_net.py:small")
    assert "it brings the code of my_net_small.py" in result.stdout, result.output
    protocol = workflow(Path("jobs", "rotateddigits_fedomg"))["protocol"]
    assert (protocol["model"], protocol["plugins"]) == ("my_net_small", ["my_net_small"])
    assert Path("jobs", "rotateddigits_fedomg", "app_site", "custom", "my_net_small.py").is_file()
    refused = fdg("export", "job", "fedavg", "jobs", "--set", "model=my_net.py:fixed")
    check_refusal(refused, "the model's features have the shape")


def test_the_jobs_of_the_project_are_written_and_nothing_over_anything(tmp_path: Path) -> None:
    result = fdg("export", "jobs", tmp_path, "pacs_fedomg", "vessels_fedavg")
    assert result.stdout.splitlines()[-1] == f"next: nvflare simulator {tmp_path / 'pacs_fedomg'}"
    for name in ("pacs_fedomg", "vessels_fedavg"):
        names = sorted(str(path.relative_to(JOBS / name)) for path in (JOBS / name).rglob("*") if path.is_file())
        assert filecmp.cmpfiles(tmp_path / name, JOBS / name, names, shallow=False)[1:] == ([], [])
    check_refusal(fdg("export", "jobs", tmp_path, "pacs_fedomgg"), "did you mean 'pacs_fedomg'")
    check_refusal(fdg("export", "jobs", tmp_path, "pacs_fedavg", "pacs_fedomg"), "exists already")
    assert not (tmp_path / "pacs_fedavg").exists()


SWEEP = ("sweep", "own", "--methods", "fedavg,erm", "--dry-run")
DIGITS = ("--dataset", "rotateddigits", "--targets", "angle_0", "--set", "image_size=16")


@pytest.fixture
def own_network(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "my_net.py").write_text(NETWORKS, encoding="utf-8")
    monkeypatch.chdir(tmp_path)


@pytest.mark.usefixtures("own_network")
def test_what_no_run_could_use_is_refused_before_one_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    commands = (("run", "fedavg"), SWEEP)
    for command in commands:
        check_refusal(fdg(*command, "--set", "model=my_net.py:pair"), "model 'my_net_pair' returns")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setenv("FDG_DEVICE", "cuda")
    for command in commands:
        check_refusal(fdg(*command), "device is 'cuda', but this machine has")
    assert not Path("runs").exists()
