# SPDX-License-Identifier: Apache-2.0
"""The folder of a run: always a new one, and in the end what the run has left, without the engine's workspace."""

import json
import shutil
from datetime import datetime
from pathlib import Path

import pytest

from fdg_plugins.errors import DataError
from fdg_plugins.lab.engine.folder import check_new, held, make_folder, settle

NOW = datetime(2030, 5, 6, 7, 8, 9)
RESULTS = Path("workspace", "server")


@pytest.fixture
def ended(tmp_path: Path) -> Path:
    """The folder of a run that has ended in its second round."""
    (tmp_path / RESULTS / "tb_events").mkdir(parents=True)
    (tmp_path / RESULTS / "meta.json").write_text("{}")
    (tmp_path / RESULTS / "global_model.safetensors").write_bytes(b"model")
    (tmp_path / RESULTS / "results.json").write_text('{"status": "running", "stopped_because": null, "rounds": [1]}')
    (tmp_path / "log.txt").write_text("log")
    return tmp_path


def test_runs_of_one_second_have_folders_of_their_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    made = [make_folder(None, "fedavg-pacs-photo-seed0", NOW) for _ in range(3)]
    stem = "runs/fedavg-pacs-photo-seed0-20300506-070809"
    assert [str(folder) for folder in made] == [stem, f"{stem}-2", f"{stem}-3"]


def test_a_named_folder_is_new_or_empty(tmp_path: Path) -> None:
    assert make_folder(tmp_path / "a" / "b", "name", NOW) == tmp_path / "a" / "b"
    assert make_folder(tmp_path / "a" / "b", "name", NOW) == tmp_path / "a" / "b"
    for taken in (tmp_path, Path(__file__)):
        with pytest.raises(DataError, match="exists already, expected a new or an empty folder"):
            check_new(taken)


def test_a_folder_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(DataError, match=r"folder .*file/run cannot be written: Not a directory"):
        make_folder(tmp_path / "file" / "run", "name", NOW)


def test_what_a_run_has_left_is_in_its_folder_and_the_workspace_is_gone(ended: Path) -> None:
    settle(ended, RESULTS, {"seconds": 1.5}, reason=None)
    left = {path.name for path in ended.iterdir()}
    assert left == {"global_model.safetensors", "log.txt", "results.json", "run.json", "tb_events"}
    assert json.loads((ended / "run.json").read_text()) == {"seconds": 1.5}
    assert json.loads((ended / "results.json").read_text())["status"] == "running", "as the run wrote it"


def test_what_an_earlier_part_of_the_run_has_left_is_replaced_or_added_to(ended: Path) -> None:
    (ended / "tb_events").mkdir()
    (ended / "tb_events" / "earlier").write_text("events")
    (ended / RESULTS / "tb_events" / "later").write_text("events")
    (ended / "global_model.safetensors").write_bytes(b"earlier model")
    settle(ended, RESULTS, {}, reason=None)
    assert (ended / "global_model.safetensors").read_bytes() == b"model"
    assert {path.name for path in (ended / "tb_events").iterdir()} == {"earlier", "later"}


def test_each_part_of_a_resumed_run_has_a_database_of_its_own_and_none_is_lost(ended: Path) -> None:
    for number in range(3):
        (ended / RESULTS).mkdir(parents=True, exist_ok=True)
        (ended / RESULTS / "mlflow.db").write_text(f"part {number}")
        settle(ended, RESULTS, {}, "stopped")
    left = {path.name: path.read_text() for path in ended.glob("mlflow*")}
    assert left == {"mlflow.db": "part 0", "mlflow-2.db": "part 1", "mlflow-3.db": "part 2"}


def test_what_a_killed_execution_has_tracked_stays_when_the_run_goes_on(ended: Path) -> None:
    (ended / "mlflow.db").write_text("earlier")
    (ended / RESULTS / "mlflow.db").write_text("later")
    (ended / RESULTS / "mlflow.db-journal").write_text("of the later")
    (ended / RESULTS / "tb_events" / "later").write_text("events")
    (ended / RESULTS / "wandb").mkdir()
    with held(ended, RESULTS):
        assert {path.name for path in ended.iterdir()} == {
            *("log.txt", "state", "tb_events", "wandb"),
            *("mlflow.db", "mlflow-2.db", "mlflow-2.db-journal"),
        }
        assert (ended / "tb_events" / "later").exists()
        assert (ended / "mlflow.db").read_text() == "earlier"


def test_a_link_to_the_latest_run_is_replaced_and_the_run_it_led_to_stays_as_it_was(ended: Path) -> None:
    for place, name in ((ended, "run-1"), (ended / RESULTS, "run-2")):
        (place / "wandb" / name).mkdir(parents=True)
        (place / "wandb" / name / "file").write_text(name)
        (place / "wandb" / "latest-run").symlink_to(name)
    settle(ended, RESULTS, {}, reason=None)
    assert {path.name for path in (ended / "wandb").iterdir()} == {"run-1", "run-2", "latest-run"}
    assert {name: (ended / "wandb" / name / "file").read_text() for name in ("run-1", "run-2", "latest-run")} == {
        "run-1": "run-1",
        "run-2": "run-2",
        "latest-run": "run-2",
    }


def test_the_state_stays_as_long_as_it_is_of_use(ended: Path) -> None:
    checkpoint = ended / "state" / "server" / "fdg_state" / "job" / "checkpoint.safetensors"
    for reason, is_kept in (("stopped", True), (None, False)):
        checkpoint.parent.mkdir(parents=True, exist_ok=True)
        checkpoint.touch()
        settle(ended, RESULTS, {}, reason)
        assert checkpoint.exists() == is_kept
    (ended / "state").mkdir()
    settle(ended, RESULTS, {}, "stopped before its first round ended")
    assert not (ended / "state").exists()


def test_a_run_is_executed_by_one_process_at_a_time(ended: Path) -> None:
    with held(ended, RESULTS):
        assert not (ended / "workspace").exists(), "it was left by a process that was killed"
        with (
            pytest.raises(DataError, match=r"^the run in .* is still going on, expected one that was stopped\.$"),
            held(ended, RESULTS),
        ):
            pass
    with held(ended, RESULTS):
        assert (ended / "log.txt").exists()


def test_what_a_killed_execution_has_finished_nevertheless_stays_to_be_settled(ended: Path) -> None:
    (ended / RESULTS / "results.json").write_text('{"status": "finished", "rounds": [1]}')
    with held(ended, RESULTS) as finished:
        assert finished == {"status": "finished", "rounds": [1]}
        settle(ended, RESULTS, {}, reason=None)
    assert (ended / "global_model.safetensors").read_bytes() == b"model"
    assert not (ended / "workspace").exists()


def test_a_run_that_has_finished_since_it_was_looked_at_is_not_executed_again(ended: Path) -> None:
    (ended / RESULTS / "results.json").write_text('{"status": "finished", "rounds": [1]}')
    with held(ended, RESULTS):
        settle(ended, RESULTS, {}, reason=None)
    before = sorted(ended.rglob("*"))
    with pytest.raises(DataError, match="has finished: there is nothing to go on with"), held(ended, RESULTS):
        pytest.fail("a finished run was held")
    assert sorted(ended.rglob("*")) == before


def test_the_record_comes_last_so_what_could_not_be_moved_is_found_again(
    ended: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (ended / RESULTS / "results.json").write_text('{"status": "finished", "rounds": [1]}')
    blocked = ended / "global_model.safetensors"
    (blocked / "in the way").mkdir(parents=True)
    with pytest.raises(DataError, match="cannot be written"):
        settle(ended, RESULTS, {}, reason=None)
    assert not (ended / "results.json").exists()
    shutil.rmtree(blocked)
    with held(ended, RESULTS) as finished:
        assert finished is not None
        settle(ended, RESULTS, {}, reason=None)
    assert blocked.read_bytes() == b"model"


def test_an_error_of_the_run_itself_is_not_told_as_one_of_its_folder(ended: Path) -> None:
    with pytest.raises(BrokenPipeError), held(ended, RESULTS):
        raise BrokenPipeError


def test_the_record_of_a_run_that_was_ended_says_so(ended: Path) -> None:
    settle(ended, RESULTS, {}, reason="the user stopped the run")
    record = json.loads((ended / "results.json").read_text())
    assert record == {"status": "stopped", "stopped_because": "the user stopped the run", "rounds": [1]}


def test_a_reason_that_the_run_has_recorded_itself_stays(ended: Path) -> None:
    (ended / RESULTS / "results.json").write_text('{"status": "stopped", "stopped_because": "a full disk"}')
    settle(ended, RESULTS, {}, reason="the simulator ended")
    assert json.loads((ended / "results.json").read_text())["stopped_because"] == "a full disk"


def test_a_run_that_left_nothing_leaves_its_log(tmp_path: Path) -> None:
    (tmp_path / "log.txt").write_text("log")
    settle(tmp_path, RESULTS, {}, reason="the simulator ended")
    assert {path.name for path in tmp_path.iterdir()} == {"log.txt", "run.json"}
