# SPDX-License-Identifier: Apache-2.0
"""A custom network, model=FILE:FACTORY, in runs and sweeps, references included: planned, or refused before a start."""

from pathlib import Path

import pytest
import torch

from tests.cli.commands import check_refusal, fdg

pytestmark = pytest.mark.usefixtures("no_fdg_variables")

NETWORKS = """
from torch import nn


class Pair(nn.Sequential):
    def forward(self, images):
        return super().forward(images), images


def small(num_classes: int, channels: int = 3) -> nn.Module:
    return nn.Sequential(nn.Conv2d(channels, 4, 4, stride=4), nn.Flatten(), nn.Linear(64, num_classes))


def pair(num_classes: int, channels: int = 3) -> nn.Module:
    return Pair(nn.Flatten(), nn.Linear(channels * 32 * 32, num_classes))


def fixed(num_classes: int) -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.Linear(3 * 32 * 32, num_classes))
"""
SWEEP = ("sweep", "own", "--methods", "fedavg,erm", "--dry-run")
DIGITS = ("--dataset", "rotateddigits", "--targets", "angle_0", "--set", "image_size=16")


@pytest.fixture(autouse=True)
def _own_network(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "my_net.py").write_text(NETWORKS, encoding="utf-8")
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize(("factory", "options"), [("small", DIGITS), ("fixed", ())])
def test_a_sweep_plans_its_runs_with_the_network(factory: str, options: tuple[str, ...]) -> None:
    result = fdg(*SWEEP, *options, "--set", f"model=my_net.py:{factory}")
    assert result.exit_code == 0, result.stderr
    lines = [line for line in result.stdout.splitlines() if f"my_net_{factory}" in line]
    assert [line.partition(":")[0] for line in lines] == ["fedavg", "erm"], "of federated runs and of references"
    assert not Path("own").exists()


def test_what_no_run_could_use_is_refused_before_one_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    commands = (("run", "fedavg"), SWEEP)
    for command in commands:
        check_refusal(fdg(*command, "--set", "model=my_net.py:pair"), "model 'my_net_pair' returns")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setenv("FDG_DEVICE", "cuda")
    for command in commands:
        check_refusal(fdg(*command), "device is 'cuda', but this machine has")
    assert not Path("runs").exists()
