# SPDX-License-Identifier: Apache-2.0
"""``fdg sweep`` as a user meets it: plan, runs, what is left, what is refused, Ctrl-C; a real run of each kind."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from typer.testing import Result

from fdg_plugins.lab.sweep import machine
from fdg_plugins.lab.sweep.run import processes_below
from tests.cli.commands import check_refusal, fdg
from tests.sweep.fake_simulator import FAKE, HANGS, REASON, STOPS

DIGITS = ("--dataset", "rotateddigits", "--targets", "angle_0", "--methods", "fedavg,fedomg")
# The command with the fake simulator in a process of its own, for the tests that send it signals.
DRIVER = """
import signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)  # whoever started the tests may ignore it
from fdg_plugins.cli.main import app
from fdg_plugins.lab.sweep import machine
from tests.sweep.fake_simulator import FAKE
machine.ONE_PROCESS = FAKE
app(["sweep", *sys.argv[1:]])
"""
REAL = DRIVER.replace("machine.ONE_PROCESS =", "_ =")


@pytest.fixture(autouse=True)
def _plain_environment(no_fdg_variables: None, quick_polls: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """The user's shell sets nothing; the fake simulator runs where the real programs would."""
    monkeypatch.setattr(machine, "ONE_PROCESS", FAKE)


def run(*arguments: object) -> Result:
    return fdg("sweep", *arguments)


def begin(code: str, *arguments: object) -> "subprocess.Popen[str]":
    """Start the command in a process of its own."""
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    command = [sys.executable, "-c", code, *map(str, arguments)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment)


def wait_for_processes(folder: Path, count: int, command: "subprocess.Popen[str]") -> None:
    deadline = time.monotonic() + 600
    while len(processes_below(folder)) < count and command.poll() is None and time.monotonic() < deadline:
        time.sleep(0.1)


def test_the_number_of_sites_is_a_setting_of_every_run(tmp_path: Path) -> None:
    result = run(tmp_path, *DIGITS, "--sites", "8", "--dry-run")
    assert "fedavg, fedomg: sites 8" in result.stdout
    asked = run(tmp_path, *DIGITS, "--set", "sites=5,10", "--set", "sites_per_round=3", "--dry-run").stdout
    assert "4 runs" in asked
    check_refusal(run(tmp_path, *DIGITS, "--sites", "4"), "sites is 4")


def test_finished_runs_are_kept_and_lists_may_grow(tmp_path: Path) -> None:
    folder = tmp_path / "sweep"
    result = run(folder, *DIGITS)
    assert (result.exit_code, result.stderr) == (0, "")
    assert "2 of 2 runs have finished, 2 of them now; 0 failed" in result.stdout
    assert f"next: fdg report {folder}" in result.stdout
    assert str(tmp_path) not in (folder / "sweep.json").read_text(), "nothing in it is of this machine"
    assert "2 of 2 runs have finished, 0 of them now" in run(folder).stdout
    grown = run(folder, "--methods", "fedavg,fedomg,irm", "--set", "irm:strength=10,100", "--set", "parallel=2")
    assert "4 of 4 runs have finished, 2 of them now" in grown.stdout
    kept = folder / "runs" / "irm-angle_0-seed0-strength10"
    assert {path.name for path in kept.iterdir()} == {"job", "run.json", "log.txt", "results.json"}
    assert json.loads((kept / "job" / "plan.json").read_text())["settings"]["strength"] == 10
    assert run(folder, "--methods", "fedavg").exit_code == 2, "it may not shrink"


def test_what_fails_is_named_and_tried_again(tmp_path: Path) -> None:
    asked = (tmp_path / "sweep", *DIGITS, "--seeds", f"{STOPS},0")
    first = run(*asked)
    assert first.exit_code == 1
    assert "2 of 4 runs have finished, 2 of them now; 2 failed" in first.stdout
    assert f"fedavg-angle_0-seed{STOPS}: {REASON}" in first.stdout
    assert run(*asked).stdout.count("FAILED") == 2


def test_a_dry_run_prints_the_plan_and_writes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    grid = ("--set", "kappa=0.1,0.5", "--set", "image_size=16", "--set", "rounds=2")
    monkeypatch.setenv("FDG_ROUNDS", "1")
    result = run(tmp_path / "sweep", *DIGITS, *grid, "--dry-run")
    assert result.stderr == "Warning: FDG_ROUNDS is not used: the settings of a run come from --set.\n"
    assert "kappa is an axis of fedomg; fedavg runs once for all its values" in result.stdout
    assert "to do: 3 runs, " in result.stdout
    assert not (tmp_path / "sweep").exists()


def test_a_wrong_request_ends_in_one_sentence_and_writes_nothing(tmp_path: Path) -> None:
    irm = ("--methods", "irm", "--set", "warm_up=6000")
    several, no = ("--set", "parallel=1,2"), ("--set", "keep_models=no")
    for arguments in (("--methods", "fedavg,"), ("--seeds", "0,x"), ("--set", "rounds=0"), irm, several, no):
        check_refusal(run(tmp_path / "sweep", *DIGITS, *arguments))
    assert not (tmp_path / "sweep").exists()


@pytest.mark.slow
@pytest.mark.parametrize(("number", "methods"), [(signal.SIGINT, "fedavg,fedomg"), (signal.SIGTERM, "irm,fedavg")])
def test_stopped_by_a_signal_it_leaves_no_process_and_goes_on_where_it_was(
    tmp_path: Path, number: signal.Signals, methods: str
) -> None:
    folder = tmp_path / "sweep"
    with begin(DRIVER, folder, *DIGITS[:-1], methods, "--seeds", f"0,{HANGS}") as command:
        wait_for_processes(folder, 2, command)
        second = run(folder)
        command.send_signal(number)
        printed, _ = command.communicate(timeout=600)
    assert (second.exit_code, "is in use by another command" in second.stderr) == (2, True)
    assert command.returncode == 130, printed
    assert processes_below(folder) == []
    assert f"stopped; to go on: fdg sweep {folder}" in printed
    assert "2 of 4 runs have finished" in printed
    assert "to do: 2 runs" in run(folder, "--dry-run").stdout


@pytest.mark.slow
def test_a_real_sweep_is_stopped_and_goes_on_beside_a_reference(tmp_path: Path) -> None:
    folder = tmp_path / "sweep"
    tiny = {"rounds": 2, "max_samples_per_domain": 40, "image_size": 16, "vrex:strength": 3}
    given = [part for name, value in tiny.items() for part in ("--set", f"{name}={value}")]
    asked = (*DIGITS[:-1], "fedavg,vrex", "--protocol", "quick", *given, "--set", "keep_models=true")
    with begin(REAL, folder, *asked) as first:
        wait_for_processes(folder, 2, first)
        first.send_signal(signal.SIGINT)
        printed, _ = first.communicate(timeout=600)
    assert first.returncode == 130, printed
    assert processes_below(folder) == []
    with begin(REAL, folder, "--set", "keep_models=true") as again:
        printed, _ = again.communicate(timeout=600)
    assert again.returncode == 0, printed
    assert "2 of 2 runs have finished" in printed
    for method in ("fedavg", "vrex"):
        kept = folder / "runs" / f"{method}-angle_0-seed0"
        record = json.loads((kept / "results.json").read_text())
        assert (record["status"], len(record["rounds"]), record["stand_in"]) == ("finished", 2, False)
        assert (kept / "global_model_selected.safetensors").stat().st_size > 1000
        assert not (kept / "state").exists()
    table = fdg("report", folder).stdout.splitlines()
    assert table[table.index("References (pooled source data, or each site alone):") + 1].startswith("V-REx ")
