# SPDX-License-Identifier: Apache-2.0
"""``fdg doctor`` as a user runs it: every check has its line, a broken one costs no other, the exit code tells."""

from pathlib import Path

import pytest

from fdg_plugins.lab.doctor import machine
from fdg_plugins.lab.doctor.finding import Finding, Status
from tests.cli.commands import fdg

CHECKS = ("python", "fdg-plugins", "nvflare", "torch", "gpu", "cores", "memory", "ImageNet weights", "variables")


@pytest.fixture(autouse=True)
def _a_machine(monkeypatch: pytest.MonkeyPatch, no_fdg_variables: None) -> None:
    """Play a machine of 4 cores and 32 GiB, without a GPU, with room on its disk."""
    monkeypatch.setattr(machine, "read_cores", lambda: 4)
    monkeypatch.setattr(machine, "available_cores", lambda: 4)
    monkeypatch.setattr(machine, "read_memory", lambda: 32 * 2**30)
    monkeypatch.setattr(machine, "LITTLE_DISK", 0)
    monkeypatch.setattr(machine, "NO_DISK", 0)
    monkeypatch.setattr(machine, "visible_gpus", lambda environment: ())


def test_every_check_has_its_line_and_the_command_is_last() -> None:
    result = fdg("doctor")
    assert result.exit_code == 0, result.output
    assert [check for check in CHECKS if check not in result.stdout] == []
    assert result.stdout.splitlines()[-1] == "  FDG_THREADS=1 FDG_WORKERS=0 nvflare simulator jobs/pacs_fedomg -t 4"


def test_problems_are_counted_and_told_by_the_exit_code(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FDG_KAPA", "1")
    monkeypatch.setenv("FDG_THREADS", "0")
    result = fdg("doctor")
    assert (result.exit_code, "2 problems" in result.stdout) == (1, True)
    found = [line.split()[1] for line in result.stdout.splitlines() if line.startswith("problem")]
    assert found == ["FDG_KAPA", "FDG_THREADS"]


def test_a_check_that_fails_is_a_problem_and_costs_no_other(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def broken(*_: object) -> Finding:
        raise OSError(5, "I/O")

    monkeypatch.setattr(machine, "check_weights", broken)
    findings, _, command = machine.examine({}, tmp_path)
    found = {finding.check: finding for finding in findings}
    assert (found["weights"].status, found["data"].status) == (Status.PROBLEM, Status.PROBLEM)
    assert {"python", "cores", "variables"} <= {*found}
    assert command == f"fdg run fedomg --dataset {tmp_path}"
