# SPDX-License-Identifier: Apache-2.0
"""``fdg sweep`` as a user meets it: plan, runs, what is left, what is refused, Ctrl-C; a real run of each kind."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest
import typer
from typer.testing import CliRunner, Result

from fdg_plugins.cli.console import OneLineErrors
from fdg_plugins.cli.report import report
from fdg_plugins.cli.sweep import sweep
from fdg_plugins.lab.sweep import jobs, references
from fdg_plugins.lab.sweep.processes import processes_below
from fdg_plugins.lab.sweep.store import MODEL_FILES, Store
from tests.sweep import fake_simulator
from tests.sweep.fake_simulator import HANGS, REASON, STOPS

DIGITS = ("--dataset", "rotateddigits", "--targets", "angle_0", "--methods", "fedavg,fedomg")
# One method of each kind.
BOTH = ("--dataset", "rotateddigits", "--targets", "angle_0", "--methods", "fedavg,irm")
PROGRAMS = ((jobs, "SIMULATOR"), (references, "FDG"))
REAL_FDG = references.FDG
CLIPPED = Path(__file__).parents[2] / "custom" / "clipped_fedavg.py"
# The command with the fake simulator in a process of its own, for the tests that send it signals.
DRIVER = f"""
import signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)  # whoever started the tests may ignore it
from tests.cli.test_sweep import app
from fdg_plugins.lab.sweep import jobs, references
jobs.SIMULATOR = references.FDG = (sys.executable, {fake_simulator.__file__!r})
app([*sys.argv[1:], "--engine", "simulator"])
"""

app = typer.Typer(cls=OneLineErrors, pretty_exceptions_enable=False)
app.command("sweep")(sweep)
app.command("report")(report)
app.callback()(lambda: None)


@pytest.fixture(autouse=True)
def _plain_environment(no_fdg_variables: None, quick_polls: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """The user's shell sets nothing; the fake simulator runs where the real programs would."""
    for module, name in PROGRAMS:
        monkeypatch.setattr(module, name, (sys.executable, fake_simulator.__file__))


def run(*arguments: object) -> Result:
    return CliRunner().invoke(app, ["sweep", *map(str, arguments), "--engine", "simulator"])


def is_alive(process: psutil.Process) -> bool:
    """A process that has ended may stay a zombie until whoever adopted it looks."""
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def test_every_finished_run_is_kept_and_the_next_command_named(tmp_path: Path) -> None:
    result = run("--to", tmp_path / "sweep", *DIGITS, "--seeds", "0,1")
    assert (result.exit_code, result.stderr) == (0, "")
    assert "4 of 4 runs have finished, 4 of them now; 0 failed" in result.stdout
    assert f"next: fdg report {tmp_path / 'sweep'}" in result.stdout
    names = {path.name for path in (tmp_path / "sweep" / "runs").iterdir()}
    assert names == {f"{method}-angle_0-seed{seed}" for method in ("fedavg", "fedomg") for seed in (0, 1)}
    content = (tmp_path / "sweep" / "sweep.json").read_text()
    assert json.loads(content)["request"]["protocol"] == "paper"
    assert str(tmp_path) not in content, "nothing in it is of this machine"


def test_a_sweep_that_another_has_begun_while_this_one_was_planned_is_left_as_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    known, to = Store.locked, tmp_path / "sweep"

    @contextmanager
    def after_another(store: Store) -> Iterator[None]:
        monkeypatch.setattr(Store, "locked", known)
        other = run("--to", to, "--dataset", "rotateddigits", "--methods", "fedavg", "--targets", "angle_0")
        assert other.exit_code == 0, other.stderr
        with known(store):
            yield

    monkeypatch.setattr(Store, "locked", after_another)
    result = run("--to", to, "--dataset", "rotateddigits", "--methods", "fedomg", "--targets", "angle_0")
    assert (result.exit_code, result.stderr.count("\n")) == (2, 1)
    assert result.stderr == f"Error: another fdg sweep has written to {to} meanwhile: give the command again.\n"
    assert json.loads((to / "sweep.json").read_text())["request"]["methods"] == ["fedavg"]


def test_the_folder_alone_says_what_is_left_to_do_and_lists_may_grow(tmp_path: Path) -> None:
    run("--to", tmp_path / "sweep", *DIGITS)
    again = run("--to", tmp_path / "sweep")
    assert again.exit_code == 0
    assert "2 of 2 runs have finished, 0 of them now" in again.stdout
    grown = run("--to", tmp_path / "sweep", "--methods", "fedavg,fedomg,feddim")
    assert "3 of 3 runs have finished, 1 of them now" in grown.stdout
    shrunk = run("--to", tmp_path / "sweep", "--methods", "fedavg")
    assert shrunk.exit_code == 2
    assert "fedomg, feddim is now left out" in shrunk.stderr


def test_references_are_planned_run_kept_and_gone_on_with_beside_federated_methods(tmp_path: Path) -> None:
    asked = ("--to", tmp_path / "sweep", *BOTH, "--set", "irm:strength=10,100", "--protocol", "quick")
    first = run(*asked, "--keep-models", "--parallel", "3")
    assert (first.exit_code, first.stderr) == (0, "")
    assert "3 of 3 runs have finished, 3 of them now; 0 failed" in first.stdout
    kept = tmp_path / "sweep" / "runs" / "irm-angle_0-seed0-strength10"
    assert {path.name for path in kept.iterdir()} >= {"job", "run.json", "log.txt", "results.json", *MODEL_FILES}
    assert json.loads((kept / "job" / "plan.json").read_text())["settings"]["strength"] == 10
    assert json.loads((kept / "run.json").read_text())["settings"]["strength"] == 10
    assert "strength=10" in json.loads((kept / "results.json").read_text())["arguments"]
    again = run("--to", tmp_path / "sweep", "--seeds", "0,1", "--parallel", "3")
    assert "6 of 6 runs have finished, 3 of them now" in again.stdout


def test_a_reference_that_fails_is_named_and_one_of_other_settings_is_refused(tmp_path: Path) -> None:
    asked = ("--to", tmp_path / "sweep", *BOTH[:-1], "irm", "--seeds", f"0,{STOPS}", "--parallel", "2")
    assert run(*asked).exit_code == 1
    assert (tmp_path / "sweep" / "failed" / f"irm-angle_0-seed{STOPS}" / "reason.txt").read_text() == (f"{REASON}\n")
    file = tmp_path / "sweep" / "runs" / "irm-angle_0-seed0" / "job" / "plan.json"
    content = json.loads(file.read_text())
    file.write_text(json.dumps({**content, "settings": {**content["settings"], "strength": 3.0}}))
    result = run(*asked)
    assert result.exit_code == 2
    assert "run irm-angle_0-seed0 in " in result.stderr
    assert "(strength 3.0 there, 100.0 now)" in result.stderr


@pytest.mark.slow
def test_a_sweep_runs_a_reference_for_real_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(references, "FDG", REAL_FDG)
    tiny = {"steps": 3, "checkpoint_every": 2, "max_samples_per_domain": 20, "batch_size": 2, "image_size": 16}
    given = [part for name, value in tiny.items() for part in ("--set", f"{name}={value}")]
    only = ("--dataset", "rotateddigits", "--targets", "angle_0", "--methods", "vrex", "--set", "vrex:strength=3")
    first = run("--to", tmp_path / "sweep", *only, *given, "--protocol", "quick", "--keep-models")
    assert (first.exit_code, first.stderr) == (0, "")
    kept = tmp_path / "sweep" / "runs" / "vrex-angle_0-seed0"
    record = json.loads((kept / "results.json").read_text())
    assert (record["status"], len(record["rounds"]), record["stand_in"]) == ("finished", 2, False)
    planned = json.loads((kept / "job" / "plan.json").read_text())["settings"]
    told = {**record["protocol"], **record["method"]["settings"]}
    assert planned == {name: told[name] for name in planned}, "what was planned is what was done"
    assert planned["strength"] == 3
    assert "step 3/3" in (kept / "log.txt").read_text()
    assert (kept / "global_model.safetensors").stat().st_size > 1000
    again = run("--to", tmp_path / "sweep")
    assert "1 of 1 runs have finished, 0 of them now" in again.stdout
    assert json.loads((kept / "results.json").read_text()) == record
    table = CliRunner().invoke(app, ["report", str(tmp_path / "sweep")]).stdout.splitlines()
    assert table[table.index("Centralised references (pooled source data):") + 1].startswith("V-REx ")


def test_what_fails_is_named_and_tried_again_unless_the_user_says_no(tmp_path: Path) -> None:
    asked = ("--to", tmp_path / "sweep", *DIGITS, "--seeds", f"{STOPS},0")
    first = run(*asked)
    assert first.exit_code == 1
    assert "2 of 4 runs have finished, 2 of them now; 2 failed" in first.stdout
    assert f"fedavg-angle_0-seed{STOPS}: {REASON}" in first.stdout
    assert run(*asked).stdout.count("FAILED") == 2
    without = run(*asked, "--no-retry-failed")
    assert (without.exit_code, without.stdout.count("started")) == (1, 0)


def test_a_dry_run_prints_the_plan_and_writes_nothing(tmp_path: Path) -> None:
    grid = ("--set", "kappa=0.1,0.5", "--set", "image_size=16", "--set", "rounds=2")
    result = run("--to", tmp_path / "sweep", *DIGITS, *grid, "--dry-run", "--verbose")
    assert (result.exit_code, result.stderr) == (0, "")
    for words in (
        "3 runs on RotatedDigits, protocol paper",
        "kappa is an axis of fedomg; fedavg runs once for all its values",
        "fedomg-angle_0-seed0-kappa0.5: to do",
        "to do: 3 runs, 1 at a time; how long that takes can be said once a run of each kind has finished",
    ):
        assert words in result.stdout
    assert not (tmp_path / "sweep").exists()


def test_a_dry_run_in_a_begun_folder_counts_and_learns_from_what_has_finished(tmp_path: Path) -> None:
    run("--to", tmp_path / "sweep", *DIGITS)
    before = sorted(path for path in (tmp_path / "sweep").rglob("*"))
    result = run("--to", tmp_path / "sweep", "--seeds", "0,1", "--dry-run")
    assert "to do: 2 runs, 1 at a time; about " in result.stdout
    assert "judging by the 2 that finished here" in result.stdout
    assert sorted((tmp_path / "sweep").rglob("*")) == before
    assert "nothing is left to do" in run("--to", tmp_path / "sweep", "--dry-run").stdout


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("--methods", "fedavg,"), "--methods is 'fedavg,', expected names with commas between them."),
        (("--seeds", "0,x"), "--seeds is '0,x', expected numbers"),
        (("--seeds", "1" * 5000), "--seeds is '1111"),
        (("--set", "kappa"), "--set is 'kappa', expected name=value"),
        (("--set", "kapa=1"), "did you mean 'kappa'?"),
        (("--set", "rounds=0"), "setting rounds (FDG_ROUNDS) is 0"),
        (("--gpus", "0", "--parallel", "2"), "--gpus and --parallel exclude each other"),
        (("--dataset", "packs"), "data set 'packs' is unknown"),
        (("--methods", "fedavg,irmm"), "method is 'irmm', which is neither a federated method nor a centralised"),
        (("--methods", "erm", "--set", "rounds=3"), "no method of erm has a setting 'rounds'"),
        (("--methods", "irm", "--set", "warm_up=6000"), "run irm-angle_0-seed0: warm_up is 6000 of 5001 steps"),
    ],
)
def test_a_wrong_request_ends_in_one_sentence_and_writes_nothing(
    tmp_path: Path, arguments: tuple[str, ...], sentence: str
) -> None:
    result = run("--to", tmp_path / "sweep", *DIGITS, *arguments)
    assert result.exit_code == 2
    assert result.stderr.count("\n") == 1
    assert sentence in result.stderr
    assert not (tmp_path / "sweep").exists()


def test_settings_in_the_users_shell_are_kept_away_and_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FDG_ROUNDS", "1")
    result = run("--to", tmp_path / "sweep", *DIGITS)
    assert result.exit_code == 0
    assert result.stderr == "Warning: FDG_ROUNDS is not used: the settings of a sweep come from --set.\n"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("number", "methods"), [(signal.SIGINT, "fedavg,fedomg"), (signal.SIGTERM, "irm,fedavg")], ids=["SIGINT", "SIGTERM"]
)
def test_stopped_by_a_signal_it_leaves_no_process_and_goes_on_where_it_was(
    tmp_path: Path, number: signal.Signals, methods: str
) -> None:
    folder = tmp_path / "sweep"
    with subprocess.Popen(
        [
            sys.executable,
            "-c",
            DRIVER,
            "sweep",
            "--to",
            str(folder),
            *DIGITS[:-1],
            methods,
            "--seeds",
            f"0,{HANGS}",
        ],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])},
    ) as command:
        deadline = time.monotonic() + 600
        while len(processes_below(folder)) < 2 and command.poll() is None and time.monotonic() < deadline:
            time.sleep(0.1)
        in_it = [process for process in processes_below(folder) if process.is_running()]
        command.send_signal(number)
        printed, _ = command.communicate(timeout=600)
    assert command.returncode == 130, printed
    assert in_it
    assert not [process for process in in_it if is_alive(process)]
    assert f"stopped; to go on: fdg sweep --to {folder}" in printed
    assert "2 of 4 runs have finished" in printed
    assert sorted(path.name for path in folder.iterdir()) == [".lock", "runs", "sweep.json"]
    plan = run("--to", folder, "--dry-run", "--verbose").stdout
    assert plan.count(": finished") == 2
    assert plan.count(": to do") == 2


@pytest.mark.slow
@pytest.mark.nightly
def test_a_real_sweep_is_stopped_after_its_first_run_and_goes_on(tmp_path: Path) -> None:
    folder = tmp_path / "sweep"
    tiny = ("--protocol", "quick", "--set", "rounds=2", "--set", "max_samples_per_domain=40", "--set", "image_size=16")
    real = DRIVER.replace("jobs.SIMULATOR = references.FDG =", "_ =")
    command = [sys.executable, "-c", real, "sweep", "--to", str(folder), *DIGITS, *tiny, "--keep-models"]
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as first:
        deadline = time.monotonic() + 600
        while not (folder / "runs").exists() and time.monotonic() < deadline:
            time.sleep(0.5)
        while len(processes_below(folder)) < 3 and time.monotonic() < deadline:
            time.sleep(0.1)
        first.send_signal(signal.SIGINT)
        printed, _ = first.communicate(timeout=600)
    assert first.returncode == 130, printed
    assert processes_below(folder) == []
    (kept,) = (folder / "runs").iterdir()
    written = (kept / "results.json").stat().st_mtime
    again = subprocess.run(
        [sys.executable, "-c", real, "sweep", "--to", str(folder)],
        capture_output=True,
        text=True,
        env=environment,
        timeout=600,
        check=False,
    )
    assert again.returncode == 0, again.stdout + again.stderr
    assert "2 of 2 runs have finished, 1 of them now; 0 failed" in again.stdout
    assert (kept / "results.json").stat().st_mtime == written
    for method in ("fedavg", "fedomg"):
        record = json.loads((folder / "runs" / f"{method}-angle_0-seed0" / "results.json").read_text())
        assert (record["status"], len(record["rounds"])) == ("finished", 2)
        assert record["protocol"]["max_samples_per_domain"] == 40
        assert record["method"]["aggregator"].lower().startswith(method)
    assert (kept / "global_model_selected.safetensors").stat().st_size > 1000
