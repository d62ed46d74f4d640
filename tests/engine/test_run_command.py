# SPDX-License-Identifier: Apache-2.0
"""``fdg run`` as a user meets it: the folder, the lines, what is refused, a failure, Ctrl-C; a real run."""

import json
import os
import re
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from engine_stubs import FakeEngine, fake
from typer.testing import CliRunner, Result

from fdg_plugins.cli.main import app
from fdg_plugins.engine import engines
from fdg_plugins.engine.names import EngineName
from fdg_plugins.sweep.processes import processes_below

DIGITS = ("--dataset", "rotateddigits", "--target", "angle_0")
NAME = "fedavg-rotateddigits-angle_0-seed0"
FDG = str(Path(sys.executable).with_name("fdg"))
# The command with the fake in a process of its own, for the tests that send it signals.
DRIVER = """
import signal, sys
from pathlib import Path
signal.signal(signal.SIGINT, signal.default_int_handler)  # whoever started the tests may ignore it
from engine_stubs import fake
from fdg_plugins.cli.main import app
from fdg_plugins.engine import engines
engines.ENGINES = dict.fromkeys(engines.ENGINES, fake(Path(sys.argv[1]), "hangs"))
app(sys.argv[2:])
"""

UseFake = Callable[..., FakeEngine]


@pytest.fixture(autouse=True)
def _in_a_folder_of_its_own(no_fdg_variables: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The user's shell sets nothing, and the command is called in an empty folder."""
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")


@pytest.fixture
def use_fake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> UseFake:
    """Return a function that puts a fake in the simulator's place, and returns it."""

    def put(end: str = "finishes") -> FakeEngine:
        engine = fake(tmp_path / "records", end)
        monkeypatch.setattr(engines, "ENGINES", {EngineName.SIMULATOR: engine})
        return engine

    return put


def run(*arguments: object) -> Result:
    return CliRunner().invoke(app, ["run", *map(str, arguments)])


def test_a_finished_run_is_in_a_new_folder_and_its_commands_work_as_printed(use_fake: UseFake) -> None:
    engine = use_fake()
    result = run("fedavg", *DIGITS, "--threads", "2")
    assert (result.exit_code, result.stderr) == (0, "")
    first, *lines = result.stdout.splitlines()
    (folder,) = Path("runs").iterdir()
    assert re.fullmatch(rf"{NAME}-\d{{8}}-\d{{6}}", folder.name)
    assert first.startswith("FedAvg on RotatedDigits, held out angle_0, ")
    assert first.endswith(f" rounds, in a fake; folder {folder}")
    assert [line.split(" | ")[0] for line in lines[:3]] == [
        "round 1/2",
        "round 2/2",
        "model after round 2: source val 70.0 %, target art_painting 70.0 %",
    ]
    assert "last (round 2)" in result.stdout
    kept = {"global_model.safetensors", "global_model_selected.safetensors", "local_models", "server_state.json"}
    assert {path.name for path in folder.iterdir()} == kept | {
        *("job", "log.txt", "results.json", "run.json", "tb_events")
    }
    assert json.loads((folder / "run.json").read_text())["engine"] == "simulator"
    assert (folder / "log.txt").read_text() == "the log of the run\n"
    assert engine.launches[0].at_once == 2
    for line in lines[-2:]:
        words = shlex.split(line.removeprefix("next:"), comments=True)
        assert words[0] == "fdg"
        done = CliRunner().invoke(app, words[1:])
        assert done.exit_code == 0, done.output


def test_a_run_that_fails_says_why_and_keeps_what_it_recorded(use_fake: UseFake) -> None:
    use_fake("dies")
    result = run("fedavg", *DIGITS, "--to", "mine")
    assert result.exit_code == 1
    assert result.stderr == (
        "the run failed: the simulator ended with exit code 3 and left a record that says running; "
        "the log is mine/log.txt\n"
    )
    assert {path.name for path in Path("mine").iterdir()} == {"job", "log.txt", "results.json", "run.json"}
    assert json.loads(Path("mine", "results.json").read_text())["status"] == "stopped"


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("fedagv",), "did you mean 'fedavg'"),
        (("vrex",), "fdg centralised vrex runs it"),
        (("fedavg", "--set", "rounds"), "expected name=value"),
        (("fedavg", "--set", "rounds=1,2"), "expected NAME=VALUE with one value"),
        (("fedavg", "--set", "rounds=0"), "setting rounds (FDG_ROUNDS) is 0"),
        (("fedavg", "--to", "two words"), "which FLARE's simulator cannot take"),
        (("fedavg", "--to", "."), "exists already, expected a new or an empty folder"),
        (
            ("fedavg", "--dataset", "pacs", "--target", "photo", "--data-root", "/nowhere"),
            "data root /nowhere is not a folder",
        ),
    ],
)
def test_a_wrong_request_ends_in_one_sentence_and_writes_nothing(
    use_fake: UseFake, arguments: tuple[str, ...], sentence: str
) -> None:
    use_fake()
    Path("occupied").write_text("")
    result = run(*arguments[:1], *DIGITS, *arguments[1:])
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr.count("\n") == 1
    assert sentence in result.stderr
    assert [path.name for path in Path().iterdir()] == ["occupied"]


def test_settings_in_the_users_shell_act_on_a_job_folder_only(
    use_fake: UseFake, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = use_fake()
    monkeypatch.setenv("FDG_ROUNDS", "7")
    by_name = run("fedavg", *DIGITS)
    assert by_name.stderr == "Warning: FDG_ROUNDS is not used: the settings of a run come from --set.\n"
    assert "FDG_ROUNDS" not in engine.launches[0].environment
    job = Path(__file__).parents[2] / "jobs" / "rotatedmnist_fedavg"
    by_folder = run(job, *DIGITS, "--set", "local_epochs=2")
    assert (by_folder.exit_code, by_folder.stderr) == (0, "")
    assert "job rotatedmnist_fedavg on RotatedDigits, held out angle_0, 7 rounds" in by_folder.stdout
    own = {name: value for name, value in engine.launches[1].environment.items() if name.startswith("FDG_")}
    own.pop("FDG_THREADS")
    assert own == {
        **{"FDG_ROUNDS": "7", "FDG_LOCAL_EPOCHS": "2"},
        **{"FDG_DATASET": "rotateddigits", "FDG_TARGET": "angle_0"},
    }


def test_a_plug_in_file_is_for_a_method_and_named_in_the_next_commands(use_fake: UseFake) -> None:
    use_fake()
    root = Path(__file__).parents[2]
    plugin = str(root / "custom" / "clipped_fedavg.py")
    result = run("clipped_fedavg", *DIGITS, "--plugin", plugin, "--to", "own")
    assert result.exit_code == 0
    assert f"fdg report own --plugin {plugin}" in result.stdout
    refused = run(root / "jobs" / "pacs_fedavg", "--plugin", plugin)
    assert (refused.exit_code, refused.stderr.count("\n")) == (2, 1)
    assert "--plugin is for a method by name" in refused.stderr


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_stopped_by_a_signal_it_leaves_no_process_and_the_record(tmp_path: Path, number: signal.Signals) -> None:
    folder = tmp_path / "run"
    asked = [str(tmp_path / "records"), "run", "fedavg", *DIGITS, "--to", str(folder)]
    with subprocess.Popen(
        [sys.executable, "-c", DRIVER, *asked],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parent)},
    ) as command:
        deadline = time.monotonic() + 120
        while len(processes_below(folder)) < 2 and command.poll() is None and time.monotonic() < deadline:
            time.sleep(0.1)
        command.send_signal(number)
        printed, _ = command.communicate(timeout=60)
    assert command.returncode == 130, printed
    assert processes_below(folder) == []
    assert printed.splitlines()[-1] == f"stopped; the log is {folder}/log.txt"
    assert {path.name for path in folder.iterdir()} == {"job", "log.txt", "results.json", "run.json"}
    record = json.loads((folder / "results.json").read_text())
    assert (record["status"], record["stopped_because"]) == ("stopped", "the user stopped the run")


@pytest.mark.slow
def test_a_real_run_on_the_stand_in_is_kept_and_reported(tmp_path: Path) -> None:
    tiny = {"rounds": 1, "local_epochs": 1, "image_size": 16, "max_samples_per_domain": 21}
    given = [part for name, value in tiny.items() for part in ("--set", f"{name}={value}")]
    done = subprocess.run([FDG, "run", "fedomg", *given], capture_output=True, text=True, check=False, timeout=600)
    assert done.returncode == 0, done.stdout + done.stderr
    first, line, last, *_ = done.stdout.splitlines()
    assert first.startswith("FedOMG on the STAND-IN for PACS (not the data itself), held out art_painting, 1 round, ")
    assert line.startswith("round 1/1 | sites 3/3 | train loss ")
    assert last.startswith("model after round 1: source val ")
    (folder,) = Path("runs").iterdir()
    assert processes_below(folder.absolute()) == []
    kept = {"global_model.safetensors", "global_model_selected.safetensors", "server_state.json", "tb_events"}
    assert {path.name for path in folder.iterdir()} == kept | {"job", "log.txt", "results.json", "run.json"}
    record = json.loads((folder / "results.json").read_text())
    assert (record["status"], record["stand_in"], len(record["rounds"])) == ("finished", True, 1)
    report = CliRunner().invoke(app, ["report", str(folder)])
    assert report.exit_code == 0
    assert "FedOMG" in report.stdout
