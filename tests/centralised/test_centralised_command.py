# SPDX-License-Identifier: Apache-2.0
"""``fdg run``: what it prints and leaves, how Ctrl-C ends it, and its answers to a user's mistakes."""

import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from fdg_plugins.cli.main import app
from fdg_plugins.controllers import RunRecord
from fdg_plugins.lab.centralised.progress import RunDisplay
from fdg_plugins.record.run_files import LAST_FILE, RESULTS_FILE, SELECTED_FILE

pytestmark = pytest.mark.usefixtures("no_fdg_variables")

TINY = {"steps": 3, "checkpoint_every": 2, "max_samples_per_domain": 20, "batch_size": 2, "image_size": 16}


def command(*arguments: object) -> Result:
    return CliRunner().invoke(app, ["run", *(str(argument) for argument in arguments)])


def tiny(folder: Path, algorithm: str = "vrex", **settings: object) -> Result:
    given = [part for name, value in {**TINY, **settings}.items() for part in ("--set", f"{name}={value}")]
    return command(algorithm, "--dataset", "rotateddigits", "--target", "angle_0", "--to", folder, *given)


def record_in(folder: Path) -> RunRecord:
    return RunRecord.model_validate_json((folder / RESULTS_FILE).read_text(encoding="utf-8"))


def test_a_run_prints_its_checkpoints_and_the_final_table_and_leaves_record_and_models(tmp_path: Path) -> None:
    result = tiny(tmp_path / "run", strength=3)
    assert (result.exit_code, result.stderr) == (0, "")
    lines = result.stdout.splitlines()
    assert lines[0].startswith("RotatedDigits [from scratch]: pooled angle_15, angle_30,")
    assert lines[0].endswith("held out angle_0")
    assert lines[1].startswith("V-REx (strength 3.0, warm_up 0)")
    assert "3 steps of adam, batch 2 per domain, learning rate 0.001" in lines[2]
    places = [line.split(" | ")[0] for line in lines if " | target angle_0 " in line]
    assert places == ["initial model", "step 2/3", "step 3/3"]
    assert any(line.startswith("last (round 2)") for line in lines)
    assert {path.name for path in (tmp_path / "run").iterdir()} == {RESULTS_FILE, LAST_FILE, SELECTED_FILE}
    record = record_in(tmp_path / "run")
    assert record.status == "finished"
    assert record.method.settings["strength"] == 3.0
    assert f"next: fdg report {tmp_path / 'run'}" in result.stdout


def test_a_run_that_fails_after_it_has_begun_says_where_its_record_is(tmp_path: Path) -> None:
    result = tiny(tmp_path / "run", "erm", learning_rate="1e30")
    assert result.exit_code == 1
    reason = record_in(tmp_path / "run").stopped_because
    assert reason is not None
    last = result.stderr.splitlines()[-1]
    assert last == f"the run failed: {reason.rstrip('.')}; the record is {tmp_path / 'run' / RESULTS_FILE}"
    again = tiny(tmp_path / "run", "erm")
    assert (again.exit_code, again.stdout) == (2, "")


def test_a_plug_in_file_is_named_in_the_next_command(tmp_path: Path) -> None:
    plugin = Path(__file__).parents[2] / "custom" / "clipped_fedavg.py"
    given = [part for name, value in TINY.items() for part in ("--set", f"{name}={value}")]
    place = ("--dataset", "rotateddigits", "--target", "angle_0", "--to", tmp_path / "run")
    result = command("vrex", *place, "--plugin", plugin, *given)
    assert f"next: fdg report {tmp_path / 'run'} --plugin {plugin}, with" in result.stdout


def test_the_run_becomes_a_row_of_the_report(tmp_path: Path) -> None:
    tiny(tmp_path / "run")
    result = CliRunner().invoke(app, ["report", str(tmp_path)])
    assert result.exit_code == 0
    lines = result.stdout.splitlines()
    assert lines[lines.index("Centralised references (pooled source data):") + 1].startswith("V-REx ")


@pytest.fixture
def heeded() -> Iterator[Any]:
    """Python's own answer to Ctrl-C, which whoever started the tests may have it ignore."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield signal.default_int_handler
    signal.signal(signal.SIGINT, before)


def test_ctrl_c_ends_it_with_one_line_and_130_and_the_record_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, heeded: Any
) -> None:
    def stepped(self: RunDisplay, steps_done: int) -> None:
        if steps_done == 2:
            signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(RunDisplay, "stepped", stepped)
    result = tiny(tmp_path / "run", steps=1000)
    assert result.exit_code == 130
    assert result.stderr == f"stopped; the record is {tmp_path / 'run' / RESULTS_FILE}\n"
    record = record_in(tmp_path / "run")
    assert (record.status, record.stopped_because) == ("stopped", "it was stopped after step 2 of 1000.")
    assert signal.getsignal(signal.SIGINT) is heeded


def test_the_stand_in_is_used_where_no_data_root_is_named_and_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = ["--set", "steps=2", "--set", "checkpoint_every=2", "--set", "batch_size=2", "--set", "image_size=16"]
    monkeypatch.setenv("FDG_STEPS", "5")
    result = command(
        "fish", "--dataset", "rotatedmnist", "--target", "angle_0", "--to", tmp_path / "run", *settings,
        "--set", "max_samples_per_domain=20",
    )  # fmt: skip
    assert result.exit_code == 0
    assert result.stdout.startswith("STAND-IN for RotatedMNIST [STAND-IN, from scratch]: pooled")
    assert result.stderr == "Warning: FDG_STEPS is not used: the settings of a run come from --set.\n"
    assert record_in(tmp_path / "run").stand_in


def test_real_images_are_read_from_the_data_root(data_root: Path, tmp_path: Path) -> None:
    given = ["steps=2", "checkpoint_every=2", "batch_size=4", "image_size=16", "model=convnet", "pretrained=none"]
    sets = [part for text in given for part in ("--set", text)]
    result = command("iga", "--target", "photo", "--data-root", data_root, "--to", tmp_path / "run", *sets)
    assert result.exit_code == 0, result.stderr
    record = record_in(tmp_path / "run")
    assert (record.data, record.stand_in, record.sources) == ("PACS", False, ("art_painting", "cartoon", "sketch"))


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["dann", "--target", "photo"], "dann"),
        (["erm", "--target", "angle_0", "--dataset", "pacs"], "target is 'angle_0', expected a domain of pacs"),
        (["erm", "--target", "photo", "--dataset", "cifar"], "data set 'cifar' is unknown"),
        (["erm", "--target", "photo", "--data-root", "/no/such/folder"], "data root /no/such/folder is not a folder"),
        (["erm", "--target", "sun09", "--dataset", "vlcs"], "data set vlcs has no data root and no stand-in"),
        (["erm", "--target", "photo", "--seed", "-1"], "--seed"),
        (["erm", "--target", "photo", "--protocol", "slow"], "slow"),
        (["erm", "--target", "photo", "--set", "steps"], "--set is 'steps', expected name=value"),
        (["erm", "--target", "photo", "--set", "steps=1,2"], "--set steps has the form of a sweep's"),
        (["erm", "--target", "photo", "--set", "erm:steps=1"], "--set erm:steps has the form of a sweep's"),
        (["erm", "--target", "photo", "--set", "rounds=1"], "a centralised run of 'erm' has no setting 'rounds'"),
        (["irm", "--target", "photo", "--set", "strength=-1"], "strength is -1.0, expected a finite number"),
    ],
)
def test_a_users_mistake_is_said_and_ends_with_2(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str], words: str
) -> None:
    monkeypatch.setenv("FDG_CACHE", str(tmp_path / "cache"))
    result = command(*arguments, "--to", tmp_path / "run")
    assert result.exit_code == 2
    assert result.stdout == ""
    assert words in result.stderr
    assert "Traceback" not in result.stderr
    assert not (tmp_path / "run").exists()


def test_a_folder_that_is_taken_is_refused(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine", encoding="utf-8")
    result = tiny(tmp_path)
    assert result.exit_code == 2
    assert str(tmp_path) in result.stderr


def test_a_device_that_is_not_there_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FDG_DEVICE", "gpu")
    result = tiny(tmp_path / "run")
    assert result.exit_code == 2
    assert "device" in result.stderr


def test_an_empty_name_of_a_data_set_does_not_run_the_default(tmp_path: Path) -> None:
    result = command("erm", "--dataset", "", "--target", "photo", "--to", tmp_path / "run")
    assert result.exit_code == 2
    assert "data set '' is unknown" in " ".join(result.stderr.split())
