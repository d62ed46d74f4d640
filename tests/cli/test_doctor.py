# SPDX-License-Identifier: Apache-2.0
"""``fdg doctor`` as a user runs it: every check has its line, a broken one costs no other, the exit code tells."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner, Result

from fdg_plugins.cli.console import OneLineErrors
from fdg_plugins.cli.doctor import doctor
from fdg_plugins.lab.doctor import machine, software
from fdg_plugins.lab.doctor.examination import examine
from fdg_plugins.lab.doctor.finding import Finding, Status, guarded

app = typer.Typer(cls=OneLineErrors, pretty_exceptions_enable=False)
app.command("doctor")(doctor)
app.callback()(lambda: None)

GIB = 2**30
CHECKS = ("python", "fdg-plugins", "nvflare", "torch", "torchvision", "gpu", "cores", "memory", "ImageNet weights")


def run(*arguments: object, **environment: str) -> Result:
    return CliRunner(env=environment).invoke(app, ["doctor", *(str(argument) for argument in arguments)])


@pytest.fixture(autouse=True)
def _a_machine(monkeypatch: pytest.MonkeyPatch, no_fdg_variables: None, tmp_path: Path) -> None:
    """Play a machine of 4 cores and 32 GiB, without a GPU, with room on its disk and its ports free."""
    monkeypatch.setattr(machine, "read_cores", lambda: machine.Cores(4, 4))
    monkeypatch.setattr(machine, "read_memory", lambda: machine.Memory(32 * GIB, 32 * GIB))
    monkeypatch.setattr(machine, "LITTLE_DISK", 0)
    monkeypatch.setattr(machine, "NO_DISK", 0)
    monkeypatch.setattr(machine, "check_ports", lambda: Finding("ports", Status.OK, "free"))
    monkeypatch.setattr(software, "read_gpus", lambda environment: [])
    monkeypatch.setattr(software, "DRIVER", tmp_path / "gone")


def test_every_check_has_its_line_and_the_command_its_reasons() -> None:
    result = run()
    assert result.exit_code == 0, result.output
    lines = result.stdout.splitlines()
    for check in CHECKS:
        assert [line for line in lines if line.split(maxsplit=1)[1:] and check in line], check
    assert "  FDG_THREADS=1 FDG_WORKERS=0 nvflare simulator jobs/pacs_fedomg -t 4" in lines
    assert len([line for line in lines if line.startswith("  - ")]) == 4


def test_a_gpu_is_recommended_where_there_is_one(monkeypatch: pytest.MonkeyPatch) -> None:
    gpus = [software.Gpu("0", "NVIDIA X", 80 * GIB, 79 * GIB)]
    monkeypatch.setattr(software, "read_gpus", lambda environment: gpus)
    result = run()
    assert "NVIDIA X, 79.0 GiB free of 80.0 GiB" in result.stdout
    assert "jobs/pacs_fedomg -gpu 0,0,0,0" in result.stdout


def test_a_problem_is_told_by_the_exit_code_and_counted() -> None:
    result = run(FDG_KAPA="1", FDG_ROUNDS="x")
    assert result.exit_code == 1
    assert result.stdout.count("problem  FDG_") == 2
    assert "2 problems and " in result.stdout
    assert "did you mean 'kappa'?" in result.stdout


def test_json_holds_the_findings_and_the_advice() -> None:
    read = json.loads(run("--json", FDG_THREADS="0").stdout)
    assert read["status"] == "problem"
    assert {"check": "fdg-plugins", "status": "ok"}.items() <= read["findings"][1].items()
    assert [one["check"] for one in read["findings"] if one["status"] == "problem"] == ["FDG_THREADS"]
    advice = read["advice"]
    assert (advice["sites"], advice["alive"], advice["FDG_THREADS"], advice["gpus"]) == (4, 4, 1, [])
    assert advice["command"].endswith("-t 4")
    assert run("--json", FDG_THREADS="0").exit_code == 1


@pytest.mark.parametrize("error", [ImportError("libcudart.so: no such file"), OSError(5, "I/O"), RuntimeError("nms")])
def test_a_check_that_fails_is_a_problem_and_costs_no_other(monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    def broken(environment: object) -> list[software.Gpu]:
        raise error

    monkeypatch.setattr(software, "read_gpus", broken)
    examination = examine({}, sites=4)
    (found,) = [finding for finding in examination.findings if finding.check == "gpu"]
    assert found.status is Status.PROBLEM
    assert f"cannot be checked: {type(error).__name__}: " in found.text
    assert {"python", "cores", "ports", "variables"} <= {finding.check for finding in examination.findings}
    assert examination.advice.gpus == ()


def test_what_was_found_before_a_failure_is_kept() -> None:
    first = Finding("one", Status.OK, "fine")

    def look() -> Iterator[Finding]:
        yield first
        raise OSError("gone\nbad")

    assert guarded("many", look) == [first, Finding("many", Status.PROBLEM, "cannot be checked: OSError: gone bad")]
