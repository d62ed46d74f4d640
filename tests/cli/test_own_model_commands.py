# SPDX-License-Identifier: Apache-2.0
"""A network of one's own, model=FILE:FACTORY, in a sweep with references and in a job for a federation."""

from pathlib import Path

import pytest
import torch

from tests.cli.commands import check_refusal, fdg

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


SWEEP = ("sweep", "own", "--methods", "fedavg,erm", "--dataset", "rotateddigits", "--targets", "angle_0")


def test_a_sweep_plans_its_runs_with_the_network() -> None:
    result = fdg(*SWEEP, "--set", "model=my_net.py:small", "--set", "image_size=16", "--dry-run")
    assert result.exit_code == 0, result.stderr
    lines = [line for line in result.stdout.splitlines() if NAME in line]
    assert [line.partition(":")[0] for line in lines] == ["fedavg", "erm"], "of federated runs and of references"
    assert not Path("own").exists()


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


@pytest.mark.parametrize("command", [("run", "fedavg"), (*SWEEP[:4], "--dry-run")], ids=["run", "sweep"])
def test_a_network_that_no_run_could_use_is_refused_before_one_starts(command: tuple[str, ...]) -> None:
    Path("unsuited.py").write_text(UNSUITED, encoding="utf-8")
    result = fdg(*command, "--set", "model=unsuited.py:pair")
    check_refusal(result, "model 'unsuited_pair' returns a tuple, expected logits")
    assert not Path("runs").exists()


def test_a_network_for_the_images_of_the_stand_in_alone_is_one_for_its_runs() -> None:
    Path("unsuited.py").write_text(UNSUITED, encoding="utf-8")
    result = fdg(*SWEEP[:4], "--set", "model=unsuited.py:fixed", "--dry-run")
    assert result.exit_code == 0, result.stderr


@pytest.mark.parametrize("command", [("run", "fedavg"), (*SWEEP, "--dry-run")], ids=["run", "sweep"])
def test_a_device_that_the_machine_does_not_have_is_refused_before_a_run_starts(
    command: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setenv("FDG_DEVICE", "cuda")
    result = fdg(*command)
    check_refusal(result, "device is 'cuda', but this machine has")
    assert not Path("runs").exists()
