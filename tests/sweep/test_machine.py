# SPDX-License-Identifier: Apache-2.0
"""How many runs at a time, with which threads, on which GPU, and what of the user's environment they see."""

from pathlib import Path

import pytest
import torch

from fdg_plugins.lab.sweep import machine
from fdg_plugins.lab.sweep.machine import (
    ENGINES,
    EngineName,
    Machine,
    find_machine,
    ignored_settings,
    launch,
    machine_environment,
    run_environment,
)
from fdg_plugins.lab.sweep.run import MARK


def with_cores(monkeypatch: pytest.MonkeyPatch, cores: int, gpus: int = 0) -> None:
    monkeypatch.setattr(machine, "available_cores", lambda: cores)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: gpus > 0)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: gpus)


@pytest.mark.parametrize(("at_once", "count"), [(None, 8), (2, 4), (100, 1)])
def test_each_process_has_a_core_and_there_is_at_least_one_run(
    monkeypatch: pytest.MonkeyPatch, at_once: int | None, count: int
) -> None:
    with_cores(monkeypatch, 8)
    assert find_machine(None, at_once, {}).gpus == (None,) * count
    assert find_machine(3, at_once, {}).gpus == (None,) * 3


def test_each_gpu_carries_one_run_and_others_share_them_on_request(monkeypatch: pytest.MonkeyPatch) -> None:
    with_cores(monkeypatch, 8, gpus=2)

    def gpus(parallel: int | None = None, **environment: str) -> tuple[str | None, ...]:
        return find_machine(parallel, None, environment).gpus

    assert gpus() == gpus(FDG_DEVICE="cuda") == ("0", "1")
    assert gpus(3) == ("0", "1", "0")
    assert gpus(CUDA_VISIBLE_DEVICES="5, 3") == ("5", "3")
    assert gpus(2, FDG_DEVICE="cuda:1", CUDA_VISIBLE_DEVICES="5,3") == ("3", "3")
    assert gpus(2, FDG_DEVICE="cpu") == (None, None)


@pytest.mark.parametrize(
    ("name", "asked", "slots", "expected"),
    [
        (EngineName.SIMULATOR, None, 1, (6, "1")),
        (EngineName.SIMULATOR, 2, 1, (2, "4")),
        (EngineName.PROCESS, None, 2, (1, "4")),
        (EngineName.PROCESS, 100, 1, (6, "1")),
        (EngineName.PROCESS, 2, 2, (2, "2")),
    ],
)
def test_the_cores_are_divided_between_all_that_compute_at_once(
    name: EngineName, asked: int | None, slots: int, expected: tuple[int, str]
) -> None:
    found = launch(ENGINES[name], Path("run"), 6, Machine(8, (None,) * slots, asked), {})
    assert (found.at_once, found.environment["FDG_THREADS"]) == expected


def test_a_run_sees_where_and_how_to_compute_but_no_setting_of_the_users_shell(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shell = {"PATH": "/bin", "PWD": "/home/user", "FDG_ROUNDS": "3", "FDG_CACHE": "cache", "FDG_DEVICE": "cpu"}
    of_all = machine_environment(shell, None)
    assert of_all == {"PATH": "/bin", "PWD": "/home/user", "FDG_CACHE": "/home/user/cache", "FDG_DEVICE": "cpu"}
    assert ignored_settings(shell) == ["FDG_ROUNDS"]
    own = {"PWD": str(tmp_path), MARK: str(tmp_path), "FDG_STATE": str(tmp_path / "state")}
    assert run_environment(of_all, tmp_path, 2, None) == {**of_all, "FDG_THREADS": "2", **own}
    assert run_environment({"FDG_THREADS": "5"}, tmp_path, 1, None)["FDG_THREADS"] == "5"
    on_gpu = run_environment({"CUDA_VISIBLE_DEVICES": "0,1,2"}, tmp_path, 1, "2")
    assert (on_gpu["CUDA_VISIBLE_DEVICES"], on_gpu["FDG_DEVICE"]) == ("2", "cuda")
    monkeypatch.chdir(tmp_path)
    assert machine_environment({"FDG_DATA_ROOT": "/elsewhere"}, Path("data"))["FDG_DATA_ROOT"] == str(tmp_path / "data")
