# SPDX-License-Identifier: Apache-2.0
"""``fdg sweep`` as a user meets it: plan, runs, what is left, what is refused, Ctrl-C; a real run of each kind."""

import json
import signal
import subprocess
import time
from contextlib import nullcontext
from pathlib import Path

import pytest
from typer.testing import Result

from fdg_plugins.cli import sweep
from fdg_plugins.lab.sweep import machine
from fdg_plugins.lab.sweep.run import StopOrder, processes_below
from tests.cli.commands import check_refusal, fdg
from tests.processes import FDG, printed_by
from tests.sweep.fake_simulator import FAKE, REASON, STOPS

PLUGIN = Path(__file__).parents[2] / "custom" / "clipped_fedavg.py"
DIGITS = ("--dataset", "rotateddigits", "--targets", "angle_0", "--methods", "fedavg,fedomg")


@pytest.fixture(autouse=True)
def _plain_environment(no_fdg_variables: None, quick_polls: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """The user's shell sets nothing; the fake simulator runs where the real programs would."""
    monkeypatch.setattr(machine, "ONE_PROCESS", FAKE)


def run(*arguments: object) -> Result:
    return fdg("sweep", *arguments)


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


def test_a_stopped_sweep_tells_how_it_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sweep, "listening", lambda: nullcontext(StopOrder(signal.SIGTERM)))
    stopped = run(tmp_path / "sweep", *DIGITS, "--data-root", tmp_path, "--set", "parallel=2")
    again = f"fdg sweep {tmp_path / 'sweep'} --data-root {tmp_path} --set parallel=2"
    assert (stopped.exit_code, stopped.stdout.splitlines()[-1]) == (130, f"stopped; to go on: {again}")


def test_a_sweep_keeps_the_plug_in_that_it_began_with(tmp_path: Path) -> None:
    (plugin := tmp_path / "clipped_fedavg.py").write_bytes(PLUGIN.read_bytes())
    folder, asked = tmp_path / "sweep", ("--methods", "clipped_fedavg", "--plugin", plugin)
    assert "1 of 1 runs have finished" in run(folder, *DIGITS[:-2], *asked).stdout
    plugin.write_bytes(PLUGIN.read_bytes() + b"\n")
    check_refusal(run(folder, "--plugin", plugin), f"differs from {folder / 'plugins' / plugin.name}")
    check_refusal(run(tmp_path, *DIGITS), "holds other things")


@pytest.mark.slow
def test_a_real_sweep_is_stopped_and_goes_on_beside_a_reference(tmp_path: Path) -> None:
    folder = tmp_path / "sweep"
    tiny = {"rounds": 2, "max_samples_per_domain": 40, "image_size": 16, "vrex:strength": 3, "keep_models": "true"}
    given = [part for name, value in tiny.items() for part in ("--set", f"{name}={value}")]
    words = [FDG, "sweep", str(folder), *DIGITS[:-1], "fedavg,vrex", "--protocol", "quick", *given]
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as first:
        while len(processes_below(folder)) < 2 and first.poll() is None:
            time.sleep(0.1)
        second = run(folder)
        first.send_signal(signal.SIGTERM)
        printed, _ = first.communicate(timeout=600)
    check_refusal(second, "is in use by another command")
    assert first.returncode == 130, printed
    assert processes_below(folder) == []
    assert f"stopped; to go on: fdg sweep {folder}" in printed
    assert "2 of 2 runs have finished" in printed_by(FDG, "sweep", folder, "--set", "keep_models=true")
    for method in ("fedavg", "vrex"):
        kept = folder / "runs" / f"{method}-angle_0-seed0"
        record = json.loads((kept / "results.json").read_text())
        assert (record["status"], len(record["rounds"]), record["stand_in"]) == ("finished", 2, False)
        assert (kept / "global_model_selected.safetensors").stat().st_size > 1000
        assert not (kept / "state").exists()
    table = fdg("report", folder).stdout.splitlines()
    assert table[table.index("References (pooled source data, or each site alone):") + 1].startswith("V-REx ")
