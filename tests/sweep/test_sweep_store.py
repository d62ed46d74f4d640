# SPDX-License-Identifier: Apache-2.0
"""The folder of a sweep: what is in ``runs/`` is complete, nobody else works in it, nothing foreign is touched."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from fdg_plugins.errors import DataError, SettingsError
from fdg_plugins.lab.sweep.store import LOG_FILE, MODEL_FILES, WORKSPACE, Store, check_folder
from fdg_plugins.record.checkpoint import Checkpoint
from fdg_plugins.record.run_files import RESULTS_FILE
from fdg_plugins.storage import read_json
from tests.controllers.federation_stubs import run_record
from tests.sweep.sweep_stubs import planned, write_fake_job

RUN = planned(seed=0)
LEFT = Path(WORKSPACE, "server")


def worked(store: Store) -> Path:
    """Leave in the working folder of ``RUN``, with the record in ``LEFT``, what its process would leave."""
    working = store.begin(RUN.name)
    write_fake_job(RUN, working)
    (working / LOG_FILE).write_text("what it printed")
    (working / LEFT).mkdir(parents=True)
    for name in (RESULTS_FILE, *MODEL_FILES, "server_state.json"):
        (working / LEFT / name).write_text("{}")
    return working


def names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


@pytest.mark.parametrize("keep_models", [True, False])
def test_a_finished_run_is_moved_as_a_whole(tmp_path: Path, keep_models: bool) -> None:
    store = Store(tmp_path)
    worked(store)
    assert not store.is_finished(RUN.name)
    store.keep(RUN, LEFT, 12.34, keep_models)
    assert store.is_finished(RUN.name)
    expected = {"job", "run.json", LOG_FILE, RESULTS_FILE} | (set(MODEL_FILES) if keep_models else set())
    assert names(store.runs / RUN.name) == expected
    assert names(tmp_path) == {"runs"}
    assert store.seconds(RUN.name) == 12.3
    assert read_json(store.runs / RUN.name / "run.json")["settings"] == {"rounds": 4}


@pytest.mark.parametrize("keep_models", [True, False])
def test_what_a_tracker_wrote_is_kept(tmp_path: Path, keep_models: bool) -> None:
    store = Store(tmp_path)
    left = worked(store) / LEFT
    (left / "mlflow.db").write_bytes(b"runs")
    (left / "wandb").mkdir()
    (left / "wandb" / "run.wandb").write_bytes(b"run")
    store.keep(RUN, LEFT, 1.0, keep_models)
    assert (store.runs / RUN.name / "mlflow.db").read_bytes() == b"runs"
    assert (store.runs / RUN.name / "wandb" / "run.wandb").read_bytes() == b"run"


@pytest.mark.parametrize("asked", [True, False])
def test_the_sites_models_are_kept_if_a_run_is_asked_for_them(tmp_path: Path, asked: bool) -> None:
    store, run = Store(tmp_path), RUN._replace(settings={"keep_local_models": asked})
    (worked(store) / LEFT / "local_models").mkdir()
    store.keep(run, LEFT, 1.0, keep_models=False)
    assert (store.runs / run.name / "local_models").exists() is asked
    assert not (store.runs / run.name / MODEL_FILES[0]).exists()


def test_a_failed_run_leaves_its_log_and_its_reason_until_it_finishes(tmp_path: Path) -> None:
    store = Store(tmp_path)
    for reason in ("the first reason", "the second reason"):
        worked(store)
        store.fail(RUN.name, reason)
        assert store.failure(RUN.name) == reason
        assert names(store.failed / RUN.name) == {LOG_FILE, "reason.txt"}
    worked(store)
    store.keep(RUN, LEFT, 1.0, keep_models=False)
    assert store.failure(RUN.name) is None
    assert names(tmp_path) == {"runs"}


def write_checkpoint(path: Path, rounds: int) -> None:
    Checkpoint(run_record(), {"w": torch.zeros(2)}, {}, None, {}).write(path, json.dumps({"rounds": [{}] * rounds}))


@pytest.mark.parametrize("content", [b"", b"broken", None])
def test_a_checkpoint_that_does_not_tell_its_rounds_is_tried_once(tmp_path: Path, content: bytes | None) -> None:
    store = Store(tmp_path)
    checkpoint = worked(store) / "state" / "server" / "fdg_state" / "job" / "checkpoint.safetensors"
    checkpoint.parent.mkdir(parents=True)
    if content is None:
        save_file({"w": torch.zeros(2)}, checkpoint)
    else:
        checkpoint.write_bytes(content)
    store.fail(RUN.name, "it was killed.")
    assert store.begin(RUN.name) == store.running / RUN.name
    assert checkpoint.exists()
    store.fail(RUN.name, "it cannot be read.")
    assert names(tmp_path) == {"failed"}


def test_a_run_that_fails_after_some_rounds_goes_on_from_them_unless_that_leads_no_further(tmp_path: Path) -> None:
    store = Store(tmp_path)
    checkpoint = worked(store) / "state" / "server" / "fdg_state" / "job" / "checkpoint.safetensors"
    checkpoint.parent.mkdir(parents=True)
    for after_round in (3, 7):  # killed twice, each time some rounds later
        write_checkpoint(checkpoint, after_round)
        store.fail(RUN.name, "it was killed.")
        assert names(store.running / RUN.name) == {"job", LOG_FILE, "state"}
        assert names(store.failed / RUN.name) == {LOG_FILE, "reason.txt", "checkpoints.txt"}
        assert checkpoint.exists()
        assert store.begin(RUN.name) == store.running / RUN.name
    write_checkpoint(checkpoint, 7)  # a run that goes on writes it anew, before its next round
    os.utime(checkpoint, ns=(1, 1))
    store.fail(RUN.name, "the checkpoint is damaged.")
    assert names(tmp_path) == {"failed"}
    assert names(store.failed / RUN.name) == {LOG_FILE, "reason.txt"}
    assert store.failure(RUN.name) == "the checkpoint is damaged."


def test_what_an_earlier_try_left_is_not_met_by_the_next(tmp_path: Path) -> None:
    store = Store(tmp_path)
    worked(store)
    assert names(store.begin(RUN.name)) == set()


def test_an_interrupted_run_goes_on_with_what_it_has_left(tmp_path: Path) -> None:
    store = Store(tmp_path)
    working = worked(store)
    checkpoint = working / "state" / "server" / "fdg_state" / "job" / "checkpoint.safetensors"
    checkpoint.parent.mkdir(parents=True)
    checkpoint.touch()
    store.clear()
    assert names(working) == {"job", LOG_FILE, "state"}
    assert store.begin(RUN.name) == working
    assert checkpoint.exists()
    (working / LEFT).mkdir(parents=True)
    (working / LEFT / RESULTS_FILE).write_text("{}")
    store.keep(RUN, LEFT, 1.0, keep_models=False)
    assert names(store.runs / RUN.name) == {"job", "run.json", LOG_FILE, RESULTS_FILE}
    assert names(tmp_path) == {"runs"}


def test_what_was_tracked_before_an_interruption_stays(tmp_path: Path) -> None:
    store, left = Store(tmp_path), Path(WORKSPACE, "server", "simulate_job")
    for number in range(3):
        working = store.begin(RUN.name)
        (working / "state" / "server" / "fdg_state" / "job").mkdir(parents=True, exist_ok=True)
        (working / "state" / "server" / "fdg_state" / "job" / "checkpoint.safetensors").touch()
        (working / left / "wandb" / f"offline-run-{number}").mkdir(parents=True)
        (working / left / "mlflow.db").write_text(f"part {number}")
        (working / left / RESULTS_FILE).write_text("{}")
    store.keep(RUN, left, 1.0, keep_models=False)
    kept = store.runs / RUN.name
    assert {path.name: path.read_text() for path in kept.glob("mlflow*")} == {
        "mlflow.db": "part 0",
        "mlflow-2.db": "part 1",
        "mlflow-3.db": "part 2",
    }
    assert names(kept / "wandb") == {"offline-run-0", "offline-run-1", "offline-run-2"}


def test_one_sweep_at_a_time_works_in_a_folder(tmp_path: Path) -> None:
    code = (
        "import sys; from pathlib import Path; from fdg_plugins.lab.sweep.store import Store\n"
        "with Store(Path(sys.argv[1])).locked():\n    print('in', flush=True); sys.stdin.read()"
    )
    other = subprocess.Popen(
        [sys.executable, "-c", code, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    with other:
        assert other.stdout is not None
        assert other.stdout.readline() == "in\n"
        with pytest.raises(DataError, match=f"{tmp_path} is in use by another"), Store(tmp_path).locked():
            pass
        other.kill()
        other.wait()
        with Store(tmp_path).locked():
            assert other.returncode != 0, "the lock ends with a process that was killed"


def test_a_folder_that_holds_other_things_is_refused(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("")
    with pytest.raises(DataError, match=f"{tmp_path} holds other things"):
        Store(tmp_path).read()
    with pytest.raises(DataError, match=r"thesis\.tex is not a folder"):
        Store(tmp_path / "thesis.tex").read()
    assert Store(tmp_path / "new").read() is None


def test_a_folder_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with (
        pytest.raises(DataError, match="file/sweep cannot be written: Not a directory"),
        Store(tmp_path / "file" / "sweep").locked(),
    ):
        pass


def test_a_run_without_its_time_is_named(tmp_path: Path) -> None:
    store = Store(tmp_path)
    worked(store)
    store.keep(RUN, LEFT, 1.0, keep_models=False)
    (store.runs / RUN.name / "run.json").write_text("{}")
    with pytest.raises(DataError, match=r"run\.json has no seconds"):
        store.seconds(RUN.name)


@pytest.mark.parametrize("name", ["my sweeps", "it's", 'a"b', "a#b", "a\\b", "a\nb"])
def test_a_path_that_flares_simulator_would_take_apart_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(SettingsError, match="which FLARE's simulator cannot take"):
        check_folder(tmp_path / name)
    check_folder(tmp_path / "fedomg+ga-0.5_x")
