# SPDX-License-Identifier: Apache-2.0
"""``fdg doctor``: what it finds on machines as users have them, the start that it advises, and its exit code."""

import argparse
import shlex
from collections import Counter
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from nvflare.private.fed.app.simulator.simulator import define_simulator_parser
from nvflare.private.fed.utils.fed_utils import split_gpus
from packaging.requirements import Requirement

from fdg_plugins.data import DATASETS, PACS
from fdg_plugins.data.catalogue import CELEBA, ROTATED_MNIST, files_of
from fdg_plugins.data.folders import LOCK
from fdg_plugins.data.specs import AttributeSpec
from fdg_plugins.data.stand_in import MARKER
from fdg_plugins.lab.doctor import machine
from fdg_plugins.lab.doctor.finding import Finding, Status
from fdg_plugins.lab.doctor.machine import (
    check_data,
    check_gpus,
    check_requirement,
    check_variables,
    check_versions,
    check_weights,
    recommend,
)
from tests.cli.commands import fdg

CORES, SITES, PROCESSES = st.integers(1, 256), st.integers(1, 200), st.integers(0, 400)
GPUS = st.lists(st.integers(0, 15).map(str), unique=True, max_size=8)


@given(CORES, GPUS, SITES, PROCESSES)
def test_the_advice_fits_the_machine_and_flares_simulator_reads_it(
    cores: int, gpus: list[str], sites: int, processes: int
) -> None:
    advice = recommend(cores, gpus, sites, processes)
    assert 1 <= advice.alive <= min(sites, max(1, processes), 2 * cores)
    assert advice.threads == 1 or advice.alive * advice.threads <= cores
    assert advice.workers == 0 or (gpus and advice.alive * (advice.workers + 1) <= cores)
    loads = [Counter(advice.gpus)[gpu] for gpu in gpus]
    assert max(loads, default=0) - min(loads, default=0) <= 1
    parser = argparse.ArgumentParser()
    define_simulator_parser(parser)
    options = parser.parse_args(shlex.split(advice.command)[4:])
    assert options.n_clients is None
    assert options.threads == (None if gpus else advice.alive)
    assert not gpus or split_gpus(options.gpu) == list(advice.gpus), "FLARE runs one process for each entry"


def test_the_limits_of_a_container_count(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "CGROUP", tmp_path)
    monkeypatch.setattr(machine, "available_cores", lambda: 8)
    assert machine.read_cores() == 8
    (tmp_path / "cpu.max").write_text("max 100000\n")
    assert machine.read_cores() == 8
    for file, text in (("cpu.max", "250000 100000\n"), ("memory.max", "5000\n")):
        (tmp_path / file).write_text(text)
    assert (machine.read_cores(), machine.read_memory()) == (2, 5000)
    cores, memory = machine.check_cores(2, 5000, 0, 4)
    assert (cores.status, memory.status) == (Status.WARNING, Status.PROBLEM)


def test_versions_here_are_supported_and_others_are_problems() -> None:
    findings = list(check_versions())
    assert {finding.status for finding in findings} == {Status.OK}
    assert {"python", "fdg-plugins", "nvflare", "torch", "torchvision"} == {finding.check for finding in findings}
    found = [check_requirement(Requirement(text)) for text in ("nvflare>=3", "no-such-package>=1", "rich>=13")]
    assert [one.status for one in found] == [Status.PROBLEM, Status.PROBLEM, Status.OK]


def test_gpus_have_name_and_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda number: ((number + 1) * 2**30, 8 * 2**30))
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda number: f"GPU number {number}")
    first, second = check_gpus(["4", "6"])
    assert (first.check, first.status) == ("gpu 4", Status.OK)
    assert second.text.startswith("GPU number 1, 2.0 GiB free of 8.0 GiB, torch is built")


@pytest.mark.parametrize(
    ("name", "value", "status"),
    [
        ("FDG_KAPPA", "0.25", Status.OK),
        ("FDG_OBJECTIVE", '{"name": "dim", "target": "feature"}', Status.OK),
        ("FDG_KAPA", "1", Status.PROBLEM),
        ("FDG_ROUNDS", "x", Status.PROBLEM),
        ("FDG_MODEL", "vgg", Status.PROBLEM),
        ("FDG_THREADS", "0", Status.PROBLEM),
        ("FDG_DEVICE", "cuda:7", Status.PROBLEM),
        ("FDG_STATSD", "localhost", Status.PROBLEM),
        ("FDG_TRACKING", "mlfow", Status.PROBLEM),
    ],
)
def test_a_variable_that_stops_every_job_is_a_problem(name: str, value: str, status: Status) -> None:
    (found,) = check_variables({name: value, "FDG_EMPTY": " "})
    assert (found.check, found.status) == (name, status)


def statuses(root: object, **environment: str) -> dict[str, Status]:
    found = check_data({"FDG_DATA_ROOT": str(root), **environment})
    return {finding.check.removeprefix("data, "): finding.status for finding in found}


def test_the_data_root_is_looked_through(data_root: Path, own_data_root: Path, tmp_path: Path) -> None:
    assert statuses(" ") == {"data": Status.WARNING}
    assert statuses("gone", PWD=str(tmp_path)) == {"data": Status.PROBLEM}
    assert statuses(data_root)["pacs"] is Status.OK
    assert statuses(own_data_root)["pacs"] is Status.WARNING, "it has one of four domains"
    (tmp_path / PACS.folder).mkdir()
    (tmp_path / PACS.folder / LOCK).touch()
    assert statuses(tmp_path)["pacs"] is Status.PROBLEM, "its preparation has not ended"
    (tmp_path / MARKER).touch()
    assert statuses(tmp_path)["pacs"] is Status.WARNING, "they are drawings"


def test_every_data_set_of_the_catalogue_is_found(tmp_path: Path) -> None:
    specs = [spec for spec in DATASETS.all() if spec.needs_data_root and not isinstance(spec, AttributeSpec)]
    (tmp_path / CELEBA.folder).mkdir()
    assert statuses(tmp_path)["celeba"] is Status.PROBLEM, "it is one of lists"
    for spec in specs:
        for domain in spec.domains:
            (tmp_path / spec.folder / domain).mkdir(parents=True, exist_ok=True)
    first, *others = files_of(ROTATED_MNIST)
    for file in others:
        (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / file).touch()
    assert statuses(tmp_path)[ROTATED_MNIST.name] is Status.PROBLEM
    (tmp_path / first).touch()
    assert {statuses(tmp_path)[spec.name] for spec in specs} == {Status.OK}


def test_weights_are_looked_for_where_the_server_does(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = {"resnet18": tmp_path / "resnet18"}
    monkeypatch.setattr("fdg_plugins.models.pretrained.imagenet_file", files.get)
    assert check_weights({}).status is Status.WARNING
    assert check_weights({"FDG_PRETRAINED": "imagenet"}).status is Status.PROBLEM
    (tmp_path / "resnet18").touch()
    assert check_weights({"FDG_PRETRAINED": "imagenet"}).status is Status.OK
    (tmp_path / "weights.pth").touch()
    for name, status in (("weights.pth", Status.OK), ("other.pth", Status.PROBLEM)):
        assert check_weights({"FDG_PRETRAINED_FILE": name, "PWD": str(tmp_path)}).status is status


@pytest.fixture
def a_machine(monkeypatch: pytest.MonkeyPatch, no_fdg_variables: None) -> None:
    """Play a machine of 4 cores and 32 GiB, without a GPU, with room on its disk."""
    monkeypatch.setattr(machine, "read_cores", lambda: 4)
    monkeypatch.setattr(machine, "available_cores", lambda: 4)
    monkeypatch.setattr(machine, "read_memory", lambda: 32 * 2**30)
    monkeypatch.setattr(machine, "LITTLE_DISK", 0)
    monkeypatch.setattr(machine, "NO_DISK", 0)
    monkeypatch.setattr(machine, "visible_gpus", lambda environment: ())


@pytest.mark.usefixtures("a_machine")
def test_problems_are_counted_and_told_by_the_exit_code(monkeypatch: pytest.MonkeyPatch) -> None:
    assert fdg("doctor").exit_code == 0
    monkeypatch.setenv("FDG_KAPA", "1")
    monkeypatch.setenv("FDG_THREADS", "0")
    result = fdg("doctor")
    assert (result.exit_code, "2 problems" in result.stdout) == (1, True)
    found = [line.split()[1] for line in result.stdout.splitlines() if line.startswith("problem")]
    assert found == ["FDG_KAPA", "FDG_THREADS"]


@pytest.mark.usefixtures("a_machine")
def test_a_check_that_fails_is_a_problem_and_costs_no_other(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def broken(*_: object) -> Finding:
        raise OSError(5, "I/O")

    monkeypatch.setattr(machine, "check_weights", broken)
    findings, _, command = machine.examine({}, tmp_path)
    found = {finding.check: finding for finding in findings}
    assert (found["weights"].status, found["data"].status) == (Status.PROBLEM, Status.PROBLEM)
    assert {"python", "cores", "variables"} <= {*found}
    assert command == f"fdg run fedomg --dataset {tmp_path}"
    for folder in ("a/x", "a/y", "b/x", "b/y", "c/x"):
        (tmp_path / folder).mkdir(parents=True)
        (tmp_path / folder / "1.png").touch()
    assert [one.status for one in machine.check_own_data(tmp_path)] == [Status.OK, Status.WARNING]
    assert next(machine.check_disks(tmp_path / "a" / "x" / "1.png" / "cache")).status is Status.PROBLEM
