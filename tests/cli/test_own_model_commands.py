# SPDX-License-Identifier: Apache-2.0
"""A network of one's own, --model FILE:FACTORY, in a sweep with references and in a job for a federation."""

import json
from pathlib import Path

import pytest
import torch
from typer.testing import CliRunner, Result

from fdg_plugins.cli.main import app
from fdg_plugins.lab.sweep.kinds import kind_of
from fdg_plugins.lab.sweep.plan import PlannedRun
from fdg_plugins.storage import read_json

pytestmark = pytest.mark.usefixtures("no_fdg_variables")

NETWORK = """
from torch import nn


def small(num_classes: int, channels: int = 3) -> nn.Module:
    return nn.Sequential(nn.Conv2d(channels, 4, 4, stride=4), nn.Flatten(), nn.Linear(64, num_classes))
"""
NAME = "my_net_small"


@pytest.fixture(autouse=True)
def _own_network(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "my_net.py").write_text(NETWORK, encoding="utf-8")
    monkeypatch.chdir(tmp_path)


def fdg(*arguments: object) -> Result:
    return CliRunner().invoke(app, [*map(str, arguments)])


SWEEP = ("sweep", "--to", "own", "--methods", "fedavg,erm", "--dataset", "rotateddigits", "--targets", "angle_0")


def test_a_sweep_plans_its_runs_with_the_network() -> None:
    result = fdg(*SWEEP, "--model", "my_net.py:small", "--set", "image_size=16", "--dry-run")
    assert result.exit_code == 0, result.stderr
    lines = [line for line in result.stdout.splitlines() if NAME in line]
    assert [line.partition(":")[0] for line in lines] == ["fedavg", "erm"], "of federated runs and of references"
    assert not Path("own").exists()


def test_a_reference_is_given_the_file_of_the_network() -> None:
    made = (
        "export",
        "job",
        "--method",
        "fedavg",
        "--dataset",
        "rotateddigits",
        "--set",
        "image_size=16",
        "--to",
        "jobs",
    )
    assert fdg(*made, "--model", "my_net.py:small").exit_code == 0
    run = PlannedRun("erm", "rotateddigits", "quick", "erm", "angle_0", 0, {"model": NAME})
    words = list(kind_of("erm").words(run, 1, 1))
    assert Path(words[words.index("--plugin") + 1]).name == f"{NAME}.py"


def test_two_networks_are_one_too_many() -> None:
    result = fdg(*SWEEP, "--model", "my_net.py:small", "--set", "model=convnet", "--dry-run")
    assert (result.exit_code, result.stderr.count("\n")) == (2, 1)
    assert "--set names 'model', and so does --model" in result.stderr


def test_a_job_brings_the_code_of_the_network_and_names_it() -> None:
    made = (
        "export",
        "job",
        "--method",
        "fedomg",
        "--dataset",
        "rotateddigits",
        "--set",
        "image_size=16",
        "--to",
        "jobs",
    )
    result = fdg(*made, "--model", "my_net.py:small")
    assert result.exit_code == 0, result.stderr
    assert f"it brings the code of {NAME}.py" in result.stdout
    job = Path("jobs", "rotateddigits_fedomg")
    protocol = read_json(job / "app_server" / "config" / "config_fed_server.json")["workflows"][0]["args"]["protocol"]
    assert (protocol["model"], protocol["plugins"]) == (NAME, [NAME])
    assert "my_net.py:small" not in json.dumps(protocol)
    assert (job / "app_site" / "custom" / f"{NAME}.py").is_file()
    by_name = fdg(*made, "--model", "groupnorm_convnet", "--name", "by_name")
    assert "it brings no code" in by_name.stdout


def test_a_job_for_sites_with_names_of_their_own() -> None:
    result = fdg("export", "job", "--method", "fedavg", "--sites", "site-1, site-2,site-3,site-4", "--to", "jobs")
    assert result.exit_code == 0, result.stderr
    deployed = read_json(Path("jobs", "pacs_fedavg", "meta.json"))["deploy_map"]
    assert sorted(site for sites in deployed.values() for site in sites) == [
        *("server", "site-1", "site-2", "site-3", "site-4")
    ]


def test_an_existing_job_takes_no_network() -> None:
    job = Path(__file__).parents[2] / "jobs" / "pacs_fedomg"
    result = fdg("export", "job", job, "--model", "my_net.py:small", "--to", "jobs")
    assert (result.exit_code, result.stderr.count("\n")) == (2, 1)
    assert "expected --method with them" in " ".join(result.stderr.split())


UNSUITED = """
import torch


class Pair(torch.nn.Sequential):
    def forward(self, images):
        return super().forward(images), images


def pair(num_classes: int, channels: int = 3) -> torch.nn.Module:
    return Pair(torch.nn.Flatten(), torch.nn.Linear(channels * 32 * 32, num_classes))


def fixed(num_classes: int) -> torch.nn.Module:
    return torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(3 * 32 * 32, num_classes))
"""


@pytest.mark.parametrize("command", [("run", "fedavg"), (*SWEEP[:5], "--dry-run")], ids=["run", "sweep"])
def test_a_network_that_no_run_could_use_is_refused_before_one_starts(command: tuple[str, ...]) -> None:
    Path("unsuited.py").write_text(UNSUITED, encoding="utf-8")
    result = fdg(*command, "--model", "unsuited.py:pair")
    assert (result.exit_code, result.stderr.count("\n")) == (2, 1)
    assert "model 'unsuited_pair' returns a tuple, expected logits" in result.stderr
    assert not Path("runs").exists()


def test_no_job_is_made_for_a_federation_with_a_network_that_cannot_take_its_images() -> None:
    Path("unsuited.py").write_text(UNSUITED, encoding="utf-8")
    result = fdg("export", "job", "--method", "fedavg", "--model", "unsuited.py:fixed", "--to", "jobs")
    assert (result.exit_code, result.stderr.count("\n")) == (2, 1)
    assert "the model's features have the shape [2, 150528], expected [2, 3072]" in result.stderr
    assert not Path("jobs").exists()


def test_a_network_for_the_images_of_the_stand_in_alone_is_one_for_its_runs() -> None:
    Path("unsuited.py").write_text(UNSUITED, encoding="utf-8")
    result = fdg(*SWEEP[:5], "--model", "unsuited.py:fixed", "--dry-run")
    assert result.exit_code == 0, result.stderr


@pytest.mark.parametrize("command", [("run", "fedavg"), (*SWEEP, "--dry-run")], ids=["run", "sweep"])
def test_a_device_that_the_machine_does_not_have_is_refused_before_a_run_starts(
    command: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setenv("FDG_DEVICE", "cuda")
    result = fdg(*command)
    assert (result.exit_code, result.stderr.count("\n")) == (2, 1)
    assert "device is 'cuda', but this machine has no CUDA device" in result.stderr
    assert not Path("runs").exists()
