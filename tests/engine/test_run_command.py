# SPDX-License-Identifier: Apache-2.0
"""``fdg run`` as a user meets it: the folder, the lines, what is refused, a failure, Ctrl-C; a real run."""

import hashlib
import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from typer.testing import CliRunner, Result

from fdg_plugins.cli.main import app
from fdg_plugins.lab.engine import engines
from fdg_plugins.lab.engine.names import EngineName
from fdg_plugins.lab.sweep.processes import processes_below
from tests.engine.engine_stubs import FakeEngine, fake, record_after
from tests.own_drawings import draw_own

DIGITS = ("--dataset", "rotateddigits", "--target", "angle_0")
NAME = "fedavg-rotateddigits-angle_0-seed0"
JOBS = Path(__file__).parents[2] / "jobs"
JOB = str(JOBS / "pacs_fedomg")
FDG = str(Path(sys.executable).with_name("fdg"))
# The command with the fake in a process of its own, for the tests that send it signals.
DRIVER = """
import signal, sys
from pathlib import Path
signal.signal(signal.SIGINT, signal.default_int_handler)  # whoever started the tests may ignore it
from tests.engine.engine_stubs import fake
from fdg_plugins.cli.main import app
from fdg_plugins.lab.engine import engines
engines.ENGINES = dict.fromkeys(engines.ENGINES, fake(Path(sys.argv[1]), "hangs"))
app(sys.argv[2:])
"""

UseFake = Callable[..., FakeEngine]


@pytest.fixture(autouse=True)
def _in_a_folder_of_its_own(
    no_fdg_variables: None, quick_polls: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The user's shell sets nothing, and the command is called in an empty folder."""
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")


@pytest.fixture
def use_fake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> UseFake:
    """Return a function that puts a fake in the place of both engines of this machine, and returns it."""

    def put(end: str = "finishes") -> FakeEngine:
        engine = fake(tmp_path / "records", end)
        monkeypatch.setattr(engines, "ENGINES", {EngineName.SIMULATOR: engine, EngineName.PROCESS: engine})
        return engine

    return put


def run(*arguments: object) -> Result:
    return CliRunner().invoke(app, ["run", *map(str, arguments)])


def test_a_finished_run_is_in_a_new_folder_and_its_commands_work_as_printed(use_fake: UseFake) -> None:
    engine = use_fake()
    result = run("fedavg", *DIGITS, "--at-once", "2")
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


def test_a_tracker_is_named_to_the_run_and_a_missing_package_is_said_first(
    use_fake: UseFake, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = use_fake()
    monkeypatch.setenv("FDG_TRACKING", "none")
    assert run("fedavg", *DIGITS).exit_code == 0
    assert engine.launches[0].environment["FDG_TRACKING"] == "none"
    monkeypatch.setattr("fdg_plugins.flare.trackers.find_spec", lambda package: None)
    monkeypatch.setenv("FDG_TRACKING", "wandb")
    result = run("fedavg", *DIGITS, "--to", "mine")
    assert (result.exit_code, result.stdout) == (2, "")
    assert "pip install 'fdg-plugins[wandb]'" in result.stderr
    assert not Path("mine").exists()


def test_workers_are_the_sites_at_a_time_of_one_process(use_fake: UseFake) -> None:
    engine = use_fake()
    assert run("fedavg", *DIGITS, "--engine", "process", "--at-once", "3").exit_code == 0
    assert engine.launches[0].at_once == 3


def test_a_run_that_fails_says_why_and_keeps_what_it_recorded(use_fake: UseFake) -> None:
    use_fake("dies")
    result = run("fedavg", *DIGITS, "--to", "mine")
    assert result.exit_code == 1
    assert result.stderr == (
        "the run failed after round 2: the simulator ended with exit code 3 and left a record that says running; "
        "the log is mine/log.txt\nonce the cause is gone, go on with: fdg resume mine\n"
    )
    assert {path.name for path in Path("mine").iterdir()} == {"job", "log.txt", "results.json", "run.json"}
    assert json.loads(Path("mine", "results.json").read_text())["status"] == "stopped"


def test_a_run_that_ended_early_goes_on_by_the_printed_command(
    use_fake: UseFake, data_root: Path, tmp_path: Path
) -> None:
    use_fake("dies")
    root = tmp_path / "data of mine"
    root.symlink_to(data_root)
    job = Path(__file__).parents[2] / "jobs" / "pacs_fedavg"
    failed = run(job, "--data-root", root, "--set", "rounds=2", "--to", "mine")
    words = shlex.split(failed.stderr.splitlines()[-1].removeprefix("once the cause is gone, go on with: "))
    assert words == ["fdg", "resume", "mine", "--data-root", str(root)]
    before = json.loads(Path("mine", "run.json").read_text())
    engine = use_fake()
    done = CliRunner().invoke(app, words[1:])
    assert (done.exit_code, done.stderr) == (0, "")
    assert done.stdout.startswith("job pacs_fedavg on PACS, held out art_painting, 2 rounds, in a fake; folder mine\n")
    assert engine.launches[0].environment["FDG_ROUNDS"] == "2"
    assert Path(engine.launches[0].environment["FDG_STATE"]) == Path("mine/state").absolute()
    after = json.loads(Path("mine", "run.json").read_text())
    assert after.pop("seconds") > before.pop("seconds")
    assert after == before
    assert Path("mine", "log.txt").read_text() == "the log of the run\n" * 2
    again = CliRunner().invoke(app, words[1:])
    assert (again.exit_code, again.stderr) == (
        2,
        "Error: the run in mine has finished: there is nothing to go on with.\n",
    )


def test_a_run_on_own_images_says_what_to_type_if_it_is_resumed_without_their_folder(
    use_fake: UseFake, tmp_path: Path
) -> None:
    use_fake("dies")
    photos = draw_own(tmp_path / "photos")
    assert run("fedavg", "--data", photos, "--target", "photo", "--to", "mine").exit_code != 0
    use_fake()
    forgotten = CliRunner().invoke(app, ["resume", "mine"])
    assert (forgotten.exit_code, forgotten.stderr) == (
        2,
        "Error: the run in mine is on images of your own, photos, and does not keep where they are; expected "
        "--data-root DIR, the folder given as --data.\n",
    )
    assert CliRunner().invoke(app, ["resume", "mine", "--data-root", str(photos)]).exit_code == 0


def test_a_run_whose_process_ends_badly_after_the_last_record_has_finished(use_fake: UseFake) -> None:
    use_fake("dies late")
    result = run("fedavg", *DIGITS, "--to", "mine")
    assert (result.exit_code, result.stderr) == (0, "")
    assert json.loads(Path("mine", "results.json").read_text())["status"] == "finished"
    assert Path("mine", "global_model.safetensors").exists()


@pytest.mark.parametrize(
    ("options", "shell", "expected"),
    [((), {}, (2, "5")), (("--at-once", "1"), {}, (1, "5")), ((), {"FDG_THREADS": "3"}, (2, "3"))],
)
def test_it_goes_on_with_as_many_threads_as_it_had_unless_told_otherwise(
    use_fake: UseFake,
    monkeypatch: pytest.MonkeyPatch,
    options: tuple[str, ...],
    shell: dict[str, str],
    expected: tuple[int, str],
) -> None:
    monkeypatch.setenv("FDG_THREADS", "5")
    use_fake("dies")
    assert run("fedavg", *DIGITS, "--at-once", "2", "--to", "mine").exit_code == 1
    monkeypatch.delenv("FDG_THREADS")
    for name, value in shell.items():
        monkeypatch.setenv(name, value)
    engine = use_fake()
    done = CliRunner().invoke(app, ["resume", "mine", *options])
    assert (done.exit_code, done.stderr) == (0, "")
    (launch,) = engine.launches
    assert (launch.at_once, launch.environment["FDG_THREADS"]) == expected


@pytest.mark.parametrize(
    ("shell", "device"), [({}, "cpu"), ({"FDG_DEVICE": "cuda:1"}, "cuda:1"), ({"FDG_DEVICE": "auto"}, "auto")]
)
def test_it_goes_on_on_the_device_and_with_the_images_that_it_had_unless_told_otherwise(
    use_fake: UseFake, monkeypatch: pytest.MonkeyPatch, shell: dict[str, str], device: str
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    given = {"FDG_DEVICE": "cpu", "FDG_COMPILE": "no", "FDG_DAMAGED_IMAGES": "leave_out", "FDG_MAX_IMAGE_PIXELS": "999"}
    for name, value in given.items():
        monkeypatch.setenv(name, value)
    use_fake("dies")
    assert run("fedavg", *DIGITS, "--to", "mine").exit_code == 1
    for name in given:
        monkeypatch.delenv(name)
    for name, value in shell.items():
        monkeypatch.setenv(name, value)
    engine = use_fake()
    done = CliRunner().invoke(app, ["resume", "mine"])
    assert (done.exit_code, done.stderr) == (0, "")
    (launch,) = engine.launches
    assert {name: launch.environment[name] for name in given} == {**given, "FDG_DEVICE": device}


def test_it_goes_on_with_the_pretrained_file_that_it_had_and_holds_it_to_its_content(
    use_fake: UseFake, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    Path("weights.safetensors").write_bytes(b"weights")
    monkeypatch.setenv("PWD", str(Path.cwd()))
    monkeypatch.setenv("FDG_PRETRAINED_FILE", "weights.safetensors")
    use_fake("dies")
    begun = run("fedavg", *DIGITS, "--set", "pretrained=none", "--to", "mine")
    assert begun.exit_code == 1, begun.stderr
    folder, elsewhere = Path("mine").absolute(), tmp_path / "elsewhere"
    expected = {
        "FDG_PRETRAINED_FILE": str(Path("weights.safetensors").absolute()),
        "FDG_PRETRAINED_SHA256": hashlib.sha256(b"weights").hexdigest(),
    }
    monkeypatch.delenv("FDG_PRETRAINED_FILE")
    elsewhere.mkdir()
    monkeypatch.chdir(elsewhere)
    engine = use_fake()
    done = CliRunner().invoke(app, ["resume", str(folder)])
    assert (done.exit_code, done.stderr) == (0, "")
    (launch,) = engine.launches
    assert {name: launch.environment[name] for name in expected} == expected


def test_a_run_that_finished_after_its_command_was_killed_is_not_run_again(use_fake: UseFake) -> None:
    use_fake("dies")
    assert run("fedavg", *DIGITS, "--to", "mine").exit_code == 1
    left = Path("mine", "workspace", "server", "simulate_job")
    left.mkdir(parents=True)
    (left / "results.json").write_text(record_after(2, "finished").model_dump_json())
    for name in ("global_model.safetensors", "global_model_selected.safetensors"):
        (left / name).write_bytes(b"model")
    engine = use_fake()
    done = CliRunner().invoke(app, ["resume", "mine"])
    assert (done.exit_code, done.stderr) == (0, "")
    assert done.stdout.startswith("the run in mine had finished after the command that started it was killed\n")
    assert "last (round 2)" in done.stdout
    assert engine.launches == []
    assert json.loads(Path("mine", "results.json").read_text())["status"] == "finished"
    assert Path("mine", "global_model.safetensors").read_bytes() == b"model"
    assert not Path("mine", "workspace").exists()


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (b"", "is not valid JSON"),
        (b"{", "is not valid JSON"),
        (b"\xff", "is not valid JSON"),
        (b"null", "is None, expected an object"),
    ],
)
def test_a_job_whose_sites_could_not_start_is_refused_by_the_file(
    use_fake: UseFake, content: bytes, sentence: str
) -> None:
    engine = use_fake()
    job = Path(shutil.copytree(JOBS / "pacs_fedavg", "mine"))
    config = job / "app_site" / "config" / "config_fed_client.json"
    config.write_bytes(content)
    result = run(job)
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr.startswith(f"Error: file {config} ")
    assert sentence in result.stderr
    assert engine.launches == []


@pytest.mark.parametrize(
    ("name", "text", "sentence"),
    [
        ("FDG_DEVICE", "gpu", "device"),
        ("FDG_WORKERS", "x", "workers"),
        ("FDG_THREADS", "0", "threads"),
        ("FDG_IMAGE_MEMORY", "nan", "image_memory"),
        ("FDG_COMPILE", "maybe", "compile"),
        ("FDG_ISOLATE", "x", "isolate"),
        ("FDG_REPORT_NAMES", "si", "report_names"),
        ("FDG_MAX_IMAGE_PIXELS", "0", "max_image_pixels"),
        ("FDG_DAMAGED_IMAGES", "skip", "damaged_images"),
        ("FDG_TRACKING", "tb", "tracking"),
        ("FDG_STATSD", "x", "FDG_STATSD is 'x', expected HOST:PORT"),
        ("FDG_PRETRAINED_FILE", "/not/there.pth", "has no ImageNet weights with these settings"),
        ("FDG_PRETRAINED_SHA256", "xyz", "sha256 of the pretrained weights is 'xyz'"),
    ],
)
def test_a_variable_that_no_run_could_use_is_refused_before_one_starts(
    use_fake: UseFake, monkeypatch: pytest.MonkeyPatch, name: str, text: str, sentence: str
) -> None:
    engine = use_fake()
    monkeypatch.setenv(name, text)
    result = run("fedavg", *DIGITS, "--set", "pretrained=auto")
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr.count("\n") == 1
    assert sentence in result.stderr
    assert engine.launches == []
    assert list(Path().iterdir()) == []


def test_a_run_on_real_images_does_not_go_on_with_the_stand_in_and_keeps_what_it_has(
    use_fake: UseFake, data_root: Path
) -> None:
    use_fake("dies")
    job = Path(__file__).parents[2] / "jobs" / "pacs_fedavg"
    run(job, "--data-root", data_root, "--set", "rounds=2", "--to", "mine")
    before = {path: path.read_bytes() for path in Path("mine").rglob("*") if path.is_file()}
    engine = use_fake()
    refused = CliRunner().invoke(app, ["resume", "mine"])
    assert (refused.exit_code, refused.stdout) == (2, "")
    assert refused.stderr == (
        "Error: the run in mine is on real images, and this command finds the STAND-IN: expected the same --data-root "
        "(FDG_DATA_ROOT).\n"
    )
    assert engine.launches == []
    assert {path: path.read_bytes() for path in Path("mine").rglob("*") if path.is_file()} == before
    assert CliRunner().invoke(app, ["resume", "mine", "--data-root", str(data_root)]).exit_code == 0


@pytest.mark.parametrize("content", ["", '{"status": "run', "[]"])
def test_a_run_whose_record_is_damaged_goes_on_from_its_state(use_fake: UseFake, content: str) -> None:
    use_fake("dies")
    run("fedavg", *DIGITS, "--to", "mine")
    Path("mine", "results.json").write_text(content)
    use_fake()
    done = CliRunner().invoke(app, ["resume", "mine"])
    assert (done.exit_code, done.stderr) == (0, "")
    assert json.loads(Path("mine", "results.json").read_text())["status"] == "finished"


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (None, "Error: folder mine has no run.json, expected the folder of a run of fdg run."),
        ("{}", "Error: file mine/run.json is not what fdg run writes: field 'name' is missing.\n"),
        ("[]", "Error: file mine/run.json is not what fdg run writes: "),
    ],
)
def test_only_the_folder_of_a_run_goes_on(content: str | None, sentence: str) -> None:
    Path("mine").mkdir()
    if content is not None:
        Path("mine", "run.json").write_text(content)
    refused = CliRunner().invoke(app, ["resume", "mine"])
    assert (refused.exit_code, refused.stdout) == (2, "")
    assert refused.stderr.startswith(sentence)


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("fedagv",), "did you mean 'fedavg'"),
        ((str(JOBS / "pacs_fedmog"),), "pacs_fedmog is not a job: it has no meta.json; did you mean"),
        (("fedavg", "--set", "rounds"), "expected name=value"),
        (("fedavg", "--set", "rounds=1,2"), "expected NAME=VALUE with one value"),
        (("fedavg", "--set", "rounds=0"), "setting rounds (FDG_ROUNDS) is 0"),
        (("fedavg", "--set", "outlier_ratio=0.9"), "(FDG_OUTLIER_RATIO) is 0.9: expected 0, or at least 1"),
        (("fedavg", "--set", "pretrained=imagenet"), "has no ImageNet weights with these settings"),
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
    del own["FDG_THREADS"], own["FDG_STATE"]
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
    assert "--plugin, and --model with a factory, are for a method by name" in refused.stderr


def test_a_plug_in_that_has_changed_goes_on_only_as_told(use_fake: UseFake, tmp_path: Path) -> None:
    use_fake("dies")
    plugin = tmp_path / "clipped_fedavg.py"
    shutil.copy(Path(__file__).parents[2] / "custom" / plugin.name, plugin)
    assert run("clipped_fedavg", *DIGITS, "--plugin", plugin, "--to", "own").exit_code == 1
    plugin.write_text(f"{plugin.read_text()}\n# mended\n")
    use_fake()
    refused = CliRunner().invoke(app, ["resume", "own"])
    assert refused.exit_code == 2
    assert f"plug-in file {plugin} differs from the run's copy" in refused.stderr
    assert CliRunner().invoke(app, ["resume", "own", "--with-current-plugin"]).exit_code == 0
    copies = list(Path("own", "job").glob("*/custom/clipped_fedavg.py"))
    assert {copy.read_text() for copy in copies} == {plugin.read_text()}
    (config,) = Path("own", "job").glob("*/config/config_fed_server.json")
    assert json.loads(config.read_text())["workflows"][0]["args"]["with_current_plugin"] is True


def test_the_files_that_a_job_folder_brings_are_named_in_the_next_commands(use_fake: UseFake, tmp_path: Path) -> None:
    use_fake()
    plugin = Path(__file__).parents[2] / "custom" / "clipped_fedavg.py"
    asked = [
        "export",
        "job",
        "--method",
        "clipped_fedavg",
        "--dataset",
        "rotateddigits",
        "--plugin",
        str(plugin),
        "--to",
    ]
    assert CliRunner().invoke(app, [*asked, "jobs"]).exit_code == 0
    last = max((tmp_path / "records").iterdir())
    record = json.loads(last.read_text())
    record["protocol"]["plugins"] = ["clipped_fedavg"]
    last.write_text(json.dumps(record))
    result = run("jobs/rotateddigits_clipped_fedavg", "--to", "own")
    assert (result.exit_code, result.stderr) == (0, "")
    assert "fdg report own --plugin own/job/app_site/custom/clipped_fedavg.py" in result.stdout


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
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])},
    ) as command:
        deadline = time.monotonic() + 600
        while len(processes_below(folder)) < 2 and command.poll() is None and time.monotonic() < deadline:
            time.sleep(0.1)
        command.send_signal(number)
        printed, _ = command.communicate(timeout=600)
    assert command.returncode == 130, printed
    assert processes_below(folder) == []
    *_, stopped, go_on = printed.splitlines()
    assert re.fullmatch(rf"stopped( after round \d)?; the log is {re.escape(str(folder))}/log\.txt", stopped)
    assert go_on == f"go on with: fdg resume {folder}"
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
    assert one.returncode == 130
    subprocess.run([FDG, "resume", parted], check=True, timeout=600)
    assert {path.name for path in parted.iterdir()} == {path.name for path in whole.iterdir()}
    for name in ("global_model.safetensors", "global_model_selected.safetensors"):
        models = [load_file(folder / name) for folder in (whole, parted)]
        assert models[0].keys() == models[1].keys()
        assert all(torch.equal(value, models[1][key]) for key, value in models[0].items())
    records = [json.loads((folder / "results.json").read_text()) for folder in (whole, parted)]
    assert [record["status"] for record in records] == ["finished", "finished"]
    assert records[0]["evaluations"] == records[1]["evaluations"]
    assert records[1]["resumed_after"][0] >= 2


# --- a network of one's own -------------------------------------------------------------------------

NET = """
from torch import nn


def tiny(channels: int) -> nn.Module:
    return nn.Sequential(nn.Conv2d(channels, 4, 3), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, 10))
"""


def test_a_factory_of_ones_own_travels_in_the_job_which_names_it(use_fake: UseFake) -> None:
    use_fake()
    Path("my_net.py").write_text(NET, encoding="utf-8")
    result = run("fedavg", *DIGITS, "--model", "my_net:tiny", "--to", "mine")
    assert (result.exit_code, result.stderr) == (0, "")
    config = json.loads(Path("mine/job/app_server/config/config_fed_server.json").read_text())
    protocol = config["workflows"][0]["args"]["protocol"]
    assert (protocol["model"], protocol["plugins"]) == ("my_net_tiny", ["my_net_tiny"])
    kept = [Path("mine/job", app, "custom", "my_net_tiny.py") for app in ("app_server", "app_site")]
    assert all(path.read_text().startswith(NET) for path in kept)
    assert result.stdout.rstrip().endswith(f"fdg report mine --plugin {kept[0]}")


@pytest.mark.slow
def test_a_network_is_named_by_its_name_too(use_fake: UseFake) -> None:
    use_fake()
    assert run("fedavg", "--model", "resnet34", "--to", "mine").exit_code == 0
    config = json.loads(Path("mine/job/app_server/config/config_fed_server.json").read_text())
    protocol = config["workflows"][0]["args"]["protocol"]
    assert (protocol["model"], "plugins" in protocol) == ("resnet34", False)


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("fedavg", "--model", "resnet19"), "did you mean 'resnet18'"),
        (("fedavg", "--model", "resnet18", "--set", "model=convnet"), "--set names 'model', and so does --model"),
        (("fedavg", "--set", "model=my_net:tiny"), "model 'my_net:tiny' is unknown"),
        (("fedavg", "--model", "convnext_tiny", "--set", "image_size=16"), "image_size (FDG_IMAGE_SIZE) is 16"),
        (("fedavg", "--model", "vit_b_16", "--set", "image_size=40"), "expected a multiple of 16 for model 'vit_b_16'"),
        (("fedavg", "--model", "resnet18", "--set", "normalization=instance"), "'default' or 'batch' or 'group'"),
        (("fedavg", "--model", "vit_b_16", "--set", "normalization=group"), "expected 'default': model 'vit_b_16'"),
        ((JOB, "--model", "my_net:tiny"), "--plugin, and --model with a factory, are for a method by name"),
    ],
)
def test_a_network_that_cannot_be_is_refused_before_anything_starts(
    use_fake: UseFake, arguments: tuple[str, ...], sentence: str
) -> None:
    engine = use_fake()
    Path("my_net.py").write_text(NET, encoding="utf-8")
    result = run(*arguments)
    assert (result.exit_code, engine.launches) == (2, [])
    assert sentence in result.stderr
    assert not Path("runs").exists()
