# SPDX-License-Identifier: Apache-2.0
"""``fdg run`` as a user meets it: the folder, the lines, what is refused, a failure, Ctrl-C; a real run."""

import hashlib
import json
import re
import shlex
import shutil
import signal
import subprocess
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from fdg_plugins.cli import run as run_command
from fdg_plugins.lab.engine import run as engine_run
from fdg_plugins.lab.sweep.machine import EngineName, launch
from fdg_plugins.lab.sweep.run import Launch, processes_below
from tests.cli.commands import check_refusal, fdg
from tests.engine.engine_stubs import fake, record_after
from tests.finished_runs import record_in, same_models
from tests.own_networks import NETWORKS
from tests.processes import FDG

DIGITS = ("--dataset", "rotateddigits", "--target", "angle_0")
ROOT = Path(__file__).parents[2]
JOB = ROOT / "jobs" / "pacs_fedavg"

UseFake = Callable[..., list[Launch]]


@pytest.fixture(autouse=True)
def _in_a_folder_of_its_own(
    no_fdg_variables: None, quick_polls: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The user's shell sets nothing, and the command is called in an empty folder."""
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")


@pytest.fixture
def use_fake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> UseFake:
    """Return a function that puts a fake in the place of both engines of this machine, and returns its launches."""

    def put(end: str = "finishes") -> list[Launch]:
        engine, launches = fake(tmp_path / "records", end), list[Launch]()

        def noted(*arguments: Any) -> Launch:
            launches.append(launch(*arguments))
            return launches[-1]

        monkeypatch.setattr(engine_run, "launch", noted)
        monkeypatch.setattr(run_command, "ENGINES", {EngineName.SIMULATOR: engine, EngineName.PROCESS: engine})
        return launches

    return put


run, resume = partial(fdg, "run"), partial(fdg, "resume")


def content(*path: str) -> dict[str, object]:
    found: dict[str, object] = json.loads(Path(*path).read_text())
    return found


def names(folder: str | Path) -> set[str]:
    return {path.name for path in Path(folder).iterdir()}


def test_a_finished_run_is_in_a_new_folder_and_its_commands_work_as_printed(use_fake: UseFake) -> None:
    launches = use_fake("dies late")
    result = run("fedavg", *DIGITS, "--set", "at_once=2")
    assert (result.exit_code, result.stderr) == (0, "")
    first, *lines = result.stdout.splitlines()
    (folder,) = Path("runs").iterdir()
    assert re.fullmatch(r"fedavg-rotateddigits-angle_0-seed0-\d{8}-\d{6}", folder.name)
    assert first.startswith("FedAvg on RotatedDigits, held out angle_0, ")
    assert [line.split(" | ")[0] for line in lines[:2]] == ["round 1/2", "round 2/2"]
    kept = {"global_model.safetensors", "global_model_selected.safetensors", "local_models", "server_state.json"}
    assert names(folder) == kept | {"job", "log.txt", "results.json", "run.json", "tb_events"}
    assert content(str(folder), "run.json")["engine"] == "process"
    assert launches[0].at_once == 2
    for line in lines[-2:]:
        words = shlex.split(line.removeprefix("next:"), comments=True)
        done = fdg(*words[1:])
        assert (words[0], done.exit_code) == ("fdg", 0), done.output


def test_tracker_is_named_and_checked_first(use_fake: UseFake, monkeypatch: pytest.MonkeyPatch) -> None:
    launches = use_fake()
    monkeypatch.setenv("FDG_TRACKING", "none")
    assert run("fedavg", *DIGITS, "--set", "at_once=3").exit_code == 0
    assert (launches[0].at_once, launches[0].environment["FDG_TRACKING"]) == (3, "none")
    monkeypatch.setattr("fdg_plugins.errors.find_spec", lambda package: None)
    monkeypatch.setenv("FDG_TRACKING", "wandb")
    assert run("fedavg", *DIGITS, "--to", "mine").exit_code == 2
    assert not Path("mine").exists()


def test_run_goes_on_by_the_printed_command(use_fake: UseFake, data_root: Path, tmp_path: Path) -> None:
    use_fake("dies")
    root = tmp_path / "data of mine"
    root.symlink_to(data_root)
    failed = run(JOB, "--data-root", root, "--set", "rounds=2", "--to", "mine")
    assert failed.exit_code == 1
    assert names("mine") == {"job", "log.txt", "results.json", "run.json"}
    told, words = failed.stderr.splitlines()
    assert told == "the run failed after round 2: a fake ended with exit code 3; the log is mine/log.txt"
    record = content("mine", "results.json")
    assert (record["status"], record["stopped_because"]) == ("stopped", "a fake ended with exit code 3.")
    asked = shlex.split(words.removeprefix("once the cause is gone, resume with: "))
    assert asked == ["fdg", "resume", "mine", "--data-root", str(root)]
    before = content("mine", "run.json")
    launches = use_fake()
    check_refusal(resume("mine"), "is on real images, and this command finds the STAND-IN")
    assert content("mine", "run.json") == before
    check_refusal(resume(tmp_path), "fdg sweep")
    done = fdg(*asked[1:])
    assert (done.exit_code, done.stderr) == (0, "")
    environment = launches[0].environment
    assert (environment["FDG_ROUNDS"], environment["FDG_STATE"]) == ("2", str(Path("mine/state").absolute()))
    after = content("mine", "run.json")
    assert {**after, "seconds": before["seconds"]} == before
    assert Path("mine", "log.txt").read_text() == "the log of the run\n" * 2
    check_refusal(fdg(*asked[1:]), "has finished")


def test_resume_keeps_machine_settings(use_fake: UseFake, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    weights, folder = Path("weights.safetensors").absolute(), Path("mine").absolute()
    weights.write_bytes(b"weights")
    given = {"FDG_COMPILE": "no", "FDG_DAMAGED_IMAGES": "leave_out", "FDG_MAX_IMAGE_PIXELS": "999"}
    first = {"FDG_THREADS": "5", "FDG_DEVICE": "cpu", "FDG_PRETRAINED_FILE": weights.name, "PWD": str(Path.cwd())}
    use_fake("dies")
    with monkeypatch.context() as patch:
        for name, value in {**given, **first}.items():
            patch.setenv(name, value)
        begun = run("fedavg", *DIGITS, "--set", "pretrained=none", "--set", "at_once=2", "--to", "mine")
        assert begun.exit_code == 1, begun.stderr
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("FDG_THREADS", "3")
    launches = use_fake()
    done = resume(folder)
    assert (done.exit_code, done.stderr) == (0, "")
    (launch,) = launches
    assert (launch.at_once, launch.environment["FDG_THREADS"], launch.environment["FDG_DEVICE"]) == (2, "3", "cpu")
    digest = {"FDG_PRETRAINED_FILE": str(weights), "FDG_PRETRAINED_SHA256": hashlib.sha256(b"weights").hexdigest()}
    assert {**given, **digest}.items() <= launch.environment.items()


def test_a_run_that_finished_after_its_command_was_killed_is_not_run_again(use_fake: UseFake) -> None:
    use_fake("dies")
    assert run("fedavg", *DIGITS, "--to", "mine").exit_code == 1
    left = Path("mine", "workspace", "server", "simulate_job")
    left.mkdir(parents=True)
    (left / "results.json").write_text(record_after(2, "finished").model_dump_json())
    launches = use_fake()
    done = resume("mine")
    assert (done.exit_code, launches) == (0, [])
    assert content("mine", "results.json")["status"] == "finished"
    assert not Path("mine", "workspace").exists()


def test_only_the_folder_of_a_run_goes_on() -> None:
    Path("mine").mkdir()
    for text in (None, "{}", "[]"):
        if text is not None:
            Path("mine", "run.json").write_text(text)
        refused = resume("mine")
        assert (refused.exit_code, refused.stdout, refused.stderr.count("\n")) == (2, "", 1)


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("fedagv",), "did you mean 'fedavg'"),
        (("fedavg", "--set", "pretrained=imagenet"), "has no ImageNet weights with these settings"),
        (("fedavg", "--engine", "simulator", "--to", "two words"), "a path without blanks"),
        (("fedavg", "--to", "."), "exists already"),
        ((str(JOB), "--set", "model=my_net:small"), "are for a method by name"),
    ],
)
def test_wrong_request_writes_nothing(use_fake: UseFake, arguments: tuple[str, ...], sentence: str) -> None:
    use_fake()
    Path("my_net.py").write_text(NETWORKS, encoding="utf-8")
    result = run(*arguments[:1], *(DIGITS if "--dataset" not in arguments else ()), *arguments[1:])
    assert (result.exit_code, result.stdout, result.stderr.count("\n")) == (2, "", 1)
    assert sentence in result.stderr
    assert names(".") == {"my_net.py"}


def test_shell_settings_act_on_a_job_folder_only(use_fake: UseFake, monkeypatch: pytest.MonkeyPatch) -> None:
    launches = use_fake()
    monkeypatch.setenv("FDG_ROUNDS", "7")
    by_name = run("fedavg", *DIGITS)
    assert by_name.stderr == "Warning: FDG_ROUNDS is not used: the settings of a run come from --set.\n"
    assert "FDG_ROUNDS" not in launches[0].environment
    by_folder = run(ROOT / "jobs" / "rotatedmnist_fedavg", *DIGITS, "--set", "local_epochs=2")
    assert (by_folder.exit_code, by_folder.stderr) == (0, "")
    assert "job rotatedmnist_fedavg on RotatedDigits, held out angle_0, 7 rounds" in by_folder.stdout
    own = {"FDG_ROUNDS": "7", "FDG_LOCAL_EPOCHS": "2", "FDG_DATASET": "rotateddigits", "FDG_TARGET": "angle_0"}
    assert own.items() <= launches[1].environment.items()


def test_a_job_that_names_a_component_of_others_runs_in_the_simulator_unless_told_otherwise(
    use_fake: UseFake, tmp_path: Path
) -> None:
    use_fake()
    job = Path(shutil.copytree(ROOT / "jobs" / "rotatedmnist_fedavg", tmp_path / "job"))
    asked = (job, *DIGITS, "--to")
    assert run(*asked, "ours").exit_code == 0
    file = job / "app_site" / "config" / "config_fed_client.json"
    file.write_text(file.read_text().replace('"components": []', '"components": [{"id": "own", "path": "own.Part"}]'))
    result = run(*asked, "theirs")
    assert "job job names own.Part, which is not of this package, so FLARE's simulator runs it" in result.stdout
    assert run(*asked, "told", "--engine", "process").exit_code == 0
    engines = [content(folder, "run.json")["engine"] for folder in ("ours", "theirs", "told")]
    assert engines == ["process", "simulator", "process"]


def test_a_plug_in_that_has_changed_is_resumed_only_as_told(use_fake: UseFake, tmp_path: Path) -> None:
    use_fake("dies")
    plugin = Path(shutil.copy(ROOT / "custom" / "clipped_fedavg.py", tmp_path))
    assert run("clipped_fedavg", *DIGITS, "--plugin", plugin, "--to", "own").exit_code == 1
    plugin.write_text(f"{plugin.read_text()}\n# mended\n")
    use_fake()
    assert resume("own").exit_code == 2
    done = resume("own", "--with-current-plugin")
    assert (done.exit_code, f"fdg report own --plugin {plugin}" in done.stdout) == (0, True)
    assert "next: fdg plot convergence own\n" in done.stdout  # which takes no plug-in file
    assert {copy.read_text() for copy in Path("own", "job").glob(f"*/custom/{plugin.name}")} == {plugin.read_text()}
    config = json.loads(Path("own/job/app_server/config/config_fed_server.json").read_text())
    assert config["workflows"][0]["args"]["with_current_plugin"] is True


@pytest.mark.slow
def test_a_stopped_run_goes_on_with_the_bits_of_one_that_was_never_stopped(tmp_path: Path) -> None:
    tiny = {"model": "convnet", "rounds": 8, "local_epochs": 1, "image_size": 16, "max_samples_per_domain": 21}
    given = [part for name, value in tiny.items() for part in ("--set", f"{name}={value}")]
    whole, parted = tmp_path / "whole", tmp_path / "parted"
    subprocess.run([FDG, "run", "scaffold+ga", *given, "--to", whole], check=True, timeout=600)
    with subprocess.Popen(
        [FDG, "run", "scaffold+ga", *given, "--to", parted], stdout=subprocess.PIPE, text=True
    ) as one:
        assert one.stdout is not None
        next(line for line in one.stdout if line.startswith("round 2/8"))
        one.send_signal(signal.SIGTERM)
        one.stdout.read()  # to the end: no line of it meets a closed pipe
    assert (one.returncode, processes_below(parted)) == (130, [])
    assert content(str(parted), "results.json")["stopped_because"] == "the user stopped the run"
    subprocess.run([FDG, "resume", parted], check=True, timeout=600)
    assert names(parted) == names(whole)
    assert same_models(whole, parted)
    one_go, resumed = record_in(whole), record_in(parted)
    assert (one_go.status, resumed.status) == ("finished", "finished")
    assert one_go.evaluations == resumed.evaluations
    assert resumed.resumed_after[0] >= 2
