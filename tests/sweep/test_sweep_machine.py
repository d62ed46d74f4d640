# SPDX-License-Identifier: Apache-2.0
"""How many runs at a time, with which threads, on which GPU, and what of the user's environment they see."""

from pathlib import Path

import pytest
import torch

from fdg_plugins.errors import SettingsError
from fdg_plugins.lab.sweep import machine
from fdg_plugins.lab.sweep.machine import find_machine, ignored_settings, machine_environment, run_environment
from fdg_plugins.lab.sweep.processes import MARK


def with_cores(monkeypatch: pytest.MonkeyPatch, cores: int, gpus: int = 0) -> None:
    monkeypatch.setattr(machine, "available_cores", lambda: cores)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: gpus > 0)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: gpus)


@pytest.mark.parametrize(("cores", "runs"), [(1, 1), (2, 1), (6, 1), (12, 2), (64, 10)])
def test_without_a_word_each_site_has_a_core_and_there_is_at_least_one_run(
    monkeypatch: pytest.MonkeyPatch, cores: int, runs: int
) -> None:
    with_cores(monkeypatch, cores)
    found = find_machine(6, None, None, None, {})
    assert (found.parallel, found.threads_of(6)) == (runs, 6)


@pytest.mark.parametrize(
    ("cores", "parallel", "threads"),
    [(1, None, None), (2, 1, 100), (7, 3, 2), (16, None, 1), (16, 3, 100), (64, 1, None), (64, 3, 2)],
)
def test_threads_of_arithmetic_are_no_more_than_the_cores_unless_there_are_more_sites(
    monkeypatch: pytest.MonkeyPatch, cores: int, parallel: int | None, threads: int | None
) -> None:
    with_cores(monkeypatch, cores)
    found = find_machine(4, parallel, None, threads, {})
    working = found.parallel * found.threads_of(4)
    each = found.arithmetic_threads(4)
    assert each >= 1
    assert working * each <= cores or each == 1
    assert found.threads_of(4) <= 4


def test_each_gpu_carries_one_run_and_others_share_them_on_request(monkeypatch: pytest.MonkeyPatch) -> None:
    with_cores(monkeypatch, 8, gpus=2)
    assert find_machine(4, None, None, None, {}).gpus == ("0", "1")
    assert find_machine(4, 3, None, None, {}).gpus == ("0", "1", "0")
    assert find_machine(4, None, None, None, {"CUDA_VISIBLE_DEVICES": "5, 3"}).gpus == ("5", "3")
    assert find_machine(4, None, "0, 1,0", None, {}).gpus == ("0", "1", "0")
    assert find_machine(4, None, "GPU-8a-b,MIG-1", None, {}).gpus == ("GPU-8a-b", "MIG-1")


def test_who_names_a_gpu_computes_there_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    with_cores(monkeypatch, 8, gpus=2)
    assert find_machine(4, None, None, None, {"FDG_DEVICE": "cuda:1"}).gpus == ("1",)
    assert find_machine(4, 2, None, None, {"FDG_DEVICE": "cuda:1", "CUDA_VISIBLE_DEVICES": "5,3"}).gpus == ("3", "3")
    assert find_machine(4, None, None, None, {"FDG_DEVICE": "cuda"}).gpus == ("0", "1")
    assert find_machine(4, None, "0", None, {"FDG_DEVICE": "cuda:1"}).gpus == ("0",), "the option"


def test_who_computes_on_the_cpu_has_no_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    with_cores(monkeypatch, 8, gpus=2)
    assert find_machine(4, None, None, None, {"FDG_DEVICE": "cpu"}).gpus == (None, None)


def test_gpus_that_are_not_there_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    with_cores(monkeypatch, 8)
    with pytest.raises(SettingsError, match="--gpus names 0,1, but torch finds no CUDA device"):
        find_machine(4, None, "0,1", None, {})


@pytest.mark.parametrize("gpus", ["", "0,,1", "first", "0;1", "-1"])
def test_what_names_no_gpu_is_refused(gpus: str) -> None:
    with pytest.raises(SettingsError, match="--gpus names"):
        find_machine(4, None, gpus, None, {})


def test_gpus_and_parallel_exclude_each_other() -> None:
    with pytest.raises(SettingsError, match="exclude each other"):
        find_machine(4, 2, "0,1", None, {})


def test_a_run_sees_where_and_how_to_compute_but_no_setting_of_the_users_shell(tmp_path: Path) -> None:
    shell = {"PATH": "/bin", "PWD": "/home/user", "FDG_ROUNDS": "3", "FDG_CACHE": "cache", "FDG_DEVICE": "cpu"}
    of_all = machine_environment(shell, None)
    assert of_all == {"PATH": "/bin", "PWD": "/home/user", "FDG_CACHE": "/home/user/cache", "FDG_DEVICE": "cpu"}
    assert ignored_settings(shell) == ["FDG_ROUNDS"]
    assert run_environment(of_all, tmp_path, 2, None) == {
        **of_all,
        "FDG_THREADS": "2",
        "PWD": str(tmp_path),
        MARK: str(tmp_path),
        "FDG_STATE": str(tmp_path / "state"),
    }


def test_the_data_root_of_the_command_wins_and_is_absolute(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    assert machine_environment({"FDG_DATA_ROOT": "/elsewhere"}, Path("data"))["FDG_DATA_ROOT"] == str(tmp_path / "data")
    assert machine_environment({"FDG_DATA_ROOT": "/elsewhere"}, None)["FDG_DATA_ROOT"] == "/elsewhere"


def test_a_number_of_threads_that_the_user_set_stays(tmp_path: Path) -> None:
    of_all = machine_environment({"FDG_THREADS": "5"}, None)
    assert run_environment(of_all, tmp_path, 1, None)["FDG_THREADS"] == "5"


def test_a_run_sees_only_its_gpu(tmp_path: Path) -> None:
    own = run_environment({"CUDA_VISIBLE_DEVICES": "0,1,2,3"}, tmp_path, 1, "2")
    assert (own["CUDA_VISIBLE_DEVICES"], own["FDG_DEVICE"]) == ("2", "cuda"), "never the CPU instead, without a word"
    assert run_environment({"CUDA_VISIBLE_DEVICES": "1"}, tmp_path, 1, None)["CUDA_VISIBLE_DEVICES"] == "1"
